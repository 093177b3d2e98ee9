package consensus

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkedLedger is a ledger that looks at a state before it is taken over.
type checkedLedger struct {
	*ledger
	err error
}

func (l checkedLedger) CheckSnapshot(r io.Reader) error {
	if err := newLedger().Restore(r); err != nil {
		return err
	}
	return l.err
}

// TestRestoreReplacesTheStateEverywhere saves a state, goes on, and restores it under proposals.
func TestRestoreReplacesTheStateEverywhere(t *testing.T) {
	c := newCluster(t, nil, "a", "b", "c")
	before := c.propose(20)
	var saved bytes.Buffer
	if err := c.leader().group.Save(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	after := c.propose(20)
	follower := c.followers()[0]
	if _, err := follower.group.Restore(t.Context(), bytes.NewReader(saved.Bytes())); err != nil && !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower restored: %v", err)
	}
	leader, lost := c.lead()
	inFlight := make([]*Proposal, 30)
	for i := range inFlight {
		inFlight[i] = leader.group.Propose(ledgerEntry(c.number.Add(1), c.size))
	}
	var info SavedInfo
	c.try("restore", func() (err error) {
		info, err = c.leader().group.Restore(t.Context(), bytes.NewReader(saved.Bytes()))
		return err
	})
	if info.Size == 0 || info.Index == 0 || info.Saved.IsZero() {
		t.Errorf("restored %+v", info)
	}
	<-lost
	for _, p := range inFlight {
		<-p.Done()
	}
	c.converge(before)
	for _, r := range c.running() {
		if slices.ContainsFunc(after, r.ledger.has) {
			t.Errorf("%s has what came after the save", r.id)
		}
	}
	for _, r := range c.running() {
		c.stop(r)
	}
	for _, p := range c.voters {
		c.restart(p.ID)
	}
	c.converge(before)
}

// TestRestoreRefusesWhatIsDamaged changes, cuts and lengthens a saved state. Nothing of the group's changes.
func TestRestoreRefusesWhatIsDamaged(t *testing.T) {
	l := checkedLedger{ledger: newLedger()}
	cfg := quietConfig(t.TempDir())
	g := openGroup(t, cfg, &l)
	defer closeGroup(t, g)
	for number := range uint64(10) {
		propose(t, g, ledgerEntry(number, 50))
	}
	var saved bytes.Buffer
	if err := g.Save(testContext(t), &saved); err != nil {
		t.Fatal(err)
	}
	propose(t, g, ledgerEntry(10, 50))
	ctx := t.Context()
	refused := func(t rapid.TB, state []byte) {
		if _, err := g.Restore(ctx, bytes.NewReader(state)); !errors.Is(err, ErrCorrupt) || !errors.Is(err, ErrNotApplied) {
			t.Fatalf("Restore returned %v", err)
		}
		if len(l.numbers) != 11 {
			t.Fatalf("%d numbers are left, want 11", len(l.numbers))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		state := slices.Clone(saved.Bytes())
		at := rapid.IntRange(0, len(state)-1).Draw(t, "at")
		switch rapid.SampledFrom([]string{"flip", "cut", "append"}).Draw(t, "damage") {
		case "flip":
			state[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case "cut":
			state = state[:at]
		case "append":
			state = append(state, byte(at))
		}
		refused(t, state)
	})
	l.err = errors.New("of another version")
	refused(t, saved.Bytes())
	l.err = nil
	if _, err := os.Stat(filepath.Join(cfg.Dir, restoreName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spooled state is left: %v", err)
	}
	if _, err := g.Restore(testContext(t), bytes.NewReader(saved.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := g.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, index := propose(t, g, ledgerEntry(11, 50)); len(l.numbers) != 11 || l.last != index {
		t.Errorf("after the restore: %d numbers, the last at %d", len(l.numbers), l.last)
	}
}

// TestRestoreIntoAnotherGroup takes a state over into a new directory, and opens that again.
func TestRestoreIntoAnotherGroup(t *testing.T) {
	from := openGroup(t, quietConfig(t.TempDir()), newLedger())
	for number := range uint64(10) {
		propose(t, from, ledgerEntry(number, 10))
	}
	var saved bytes.Buffer
	if err := from.Save(testContext(t), &saved); err != nil {
		t.Fatal(err)
	}
	closeGroup(t, from)
	cfg := quietConfig(t.TempDir())
	l := newLedger()
	to := openGroup(t, cfg, l)
	propose(t, to, ledgerEntry(100, 10))
	if _, err := to.Restore(testContext(t), &saved); err != nil {
		t.Fatal(err)
	}
	if err := to.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	propose(t, to, ledgerEntry(101, 10))
	closeGroup(t, to)
	for range 2 {
		again := newLedger()
		closeGroup(t, openGroup(t, cfg, again))
		if len(again.numbers) != 11 || again.has(100) || !again.has(101) || !again.has(9) || again.fault != nil {
			t.Fatalf("after a restart: %v, %v", again.numbers, again.fault)
		}
	}
}
