package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// site is one cell of a test about moving lanes.
type site struct {
	t     testing.TB
	s     *engine.State
	index uint64
	now   cell.Instant
	ids   int
}

func newSite(t testing.TB, limits engine.Limits) *site {
	return &site{t: t, s: newState(t, limits), now: start}
}

// do applies one fact through its bytes, and checks the state.
func (x *site) do(f engine.Fact) engine.Result {
	x.t.Helper()
	return x.entry(&engine.Entry{Facts: []engine.Fact{f}}).Results[0]
}

func (x *site) entry(e *engine.Entry) engine.Applied {
	x.t.Helper()
	e.Time = x.now
	e, err := engine.DecodeEntry(engine.AppendEntry(nil, e))
	if err != nil {
		x.t.Fatal(err)
	}
	x.index++
	a := x.s.Apply(x.index, e)
	if err := x.s.Check(); err != nil {
		x.t.Fatal(err)
	}
	return a
}

func (x *site) must(f engine.Fact) engine.Result {
	x.t.Helper()
	r := x.do(f)
	if r.Err != nil || r.Duplicate {
		x.t.Fatalf("%T: %+v", f, r)
	}
	return r
}

// refused applies a fact that must not be taken, and must change nothing but the index.
func (x *site) refused(f engine.Fact, target error) engine.Result {
	x.t.Helper()
	x.entry(&engine.Entry{})
	before := snapshotOf(x.t, x.s)
	r := x.do(f)
	if !errors.Is(r.Err, target) {
		x.t.Fatalf("%T: %v, want %v", f, r.Err, target)
	}
	after := snapshotOf(x.t, x.s)
	if !reflect.DeepEqual(splitSnapshot(before)[1:], splitSnapshot(after)[1:]) {
		x.t.Fatalf("%T was refused, and changed something", f)
	}
	return r
}

var (
	siteLane = cell.Lane{Tenant: "acme", Class: cell.ClassBatch}
	siteMove = cell.Move{Migration: "m", Attempt: 1}
)

func sitePolicy() cell.TenantPolicy {
	return cell.TenantPolicy{
		Tenant: "acme", Weight: 1000, Epoch: 1, Credit: cell.Credit{Max: 1000}, Starts: cell.StartRate{Jobs: 5, Per: time.Minute},
	}
}

func siteStage(epoch cell.Epoch) *engine.StageFact {
	return &engine.StageFact{Lane: siteLane, Policy: sitePolicy(), Move: siteMove, Epoch: epoch}
}

func siteMode(m cell.Mode, epoch cell.Epoch, share int32) *engine.ModeFact {
	return &engine.ModeFact{Lane: siteLane, Mode: m, Epoch: epoch, Move: siteMove, Share: share}
}

func (x *site) submit(key string) cell.JobID {
	x.t.Helper()
	x.ids++
	f := &engine.SubmitFact{ID: cell.JobID{0: 1, 13: byte(x.ids >> 16), 14: byte(x.ids >> 8), 15: byte(x.ids)}, Tenant: "acme", Class: cell.ClassBatch}
	f.Spec = engine.Spec{Operation: "op", Key: key, Retry: engine.Retry{AttemptsMax: 3}, Retention: time.Hour}
	x.must(f)
	return f.ID
}

// run lets a job succeed.
func (x *site) run(id cell.JobID) {
	x.t.Helper()
	x.must(&engine.GrantFact{ID: id, Lease: engine.Lease{Token: engine.Token{Nonce: 1}, Session: "s", Charged: 1}})
	x.must(&engine.OutcomeFact{ID: id, Token: x.s.Job(id).Lease.Token, Kind: engine.OutcomeSuccess, Charged: 10})
}

// copyTo copies all that is to be copied of the lane.
func (x *site) copyTo(to *site) {
	x.t.Helper()
	for {
		from := to.s.Lane(siteLane).Cursor
		records, _, next, err := x.s.Export(siteLane, from, 1<<16, 1000)
		if err != nil {
			x.t.Fatal(err)
		}
		if next == from {
			return
		}
		to.must(&engine.ImportFact{Lane: siteLane, Move: siteMove, Begin: from, End: next, Records: records})
	}
}

// moved is two cells, the second of which has the lane by now; the first has it on standby.
func moved(t testing.TB, fill func(*site)) (a, b *site) {
	a, b = newSite(t, fixtureLimits()), newSite(t, fixtureLimits())
	a.must(&engine.PolicyFact{Policy: sitePolicy()})
	fill(a)
	b.must(siteStage(2))
	a.must(&engine.TrackFact{Lane: siteLane, Move: siteMove})
	a.copyTo(b)
	a.must(siteMode(cell.ModeFenced, 3, 0))
	a.copyTo(b)
	b.must(siteMode(cell.ModeOpen, 4, 1000))
	a.must(siteMode(cell.ModeStandby, 4, 1000))
	b.ids = a.ids + 100
	return a, b
}

// laneIn makes a lane of a mode, at epoch 5 by attempt 1.
func laneIn(t testing.TB, m cell.Mode) *site {
	x := newSite(t, fixtureLimits())
	switch m {
	case cell.ModeStaged:
		x.must(siteStage(5))
		x.must(&engine.ImportFact{Lane: siteLane, Move: siteMove, End: engine.Cursor{Seeded: engine.SeededAll}})
		return x
	case cell.ModeTombstone:
		x.must(siteStage(4))
		x.must(siteMode(m, 5, 0))
		return x
	case cell.ModeFenced:
		x.must(&engine.PolicyFact{Policy: sitePolicy()})
		x.must(siteMode(m, 5, 0))
		return x
	case cell.ModeOpen, cell.ModeStandby:
	}
	x.must(&engine.PolicyFact{Policy: sitePolicy()})
	x.must(siteMode(cell.ModeFenced, 4, 0))
	x.must(siteMode(m, 5, 0))
	return x
}

// TestModeTable asks a lane of every mode to become every other, at every epoch that makes a difference and by this move and another, and holds
// the answers against testdata/modes.txt.
func TestModeTable(t *testing.T) {
	var b strings.Builder
	other := cell.Move{Migration: "n", Attempt: 1}
	later := cell.Move{Migration: "m", Attempt: 2}
	modes := []cell.Mode{cell.ModeOpen, cell.ModeFenced, cell.ModeStaged, cell.ModeStandby, cell.ModeTombstone}
	for _, from := range modes {
		for _, to := range modes {
			fmt.Fprintf(&b, "%v -> %v\n", from, to)
			for _, c := range []struct {
				name  string
				epoch cell.Epoch
				move  cell.Move
			}{
				{"lower", 4, siteMove},
				{"own", 5, siteMove},
				{"own, another's", 5, other},
				{"higher", 6, siteMove},
				{"higher, a later attempt's", 6, later},
				{"higher, another's", 6, other},
			} {
				x := laneIn(t, from)
				r := x.do(&engine.ModeFact{Lane: siteLane, Mode: to, Epoch: c.epoch, Move: c.move})
				l := x.s.Lane(siteLane)
				answer := "refused: " + errorText(r.Err)
				switch {
				case r.Duplicate:
					answer = "done before"
				case r.Err == nil:
					answer = "done"
				}
				if want := r.Err == nil; want != (l.Mode == to && l.Epoch == c.epoch && l.Move == c.move) || r.Err == nil && r.Index != x.index && !r.Duplicate {
					t.Errorf("%v to %v at %d: %+v, and it is %v at %d", from, to, c.epoch, r, l.Mode, l.Epoch)
				}
				fmt.Fprintf(&b, "\t%-26s %s\n", c.name, answer)
			}
		}
	}
	const path = "testdata/modes.txt"
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the table differs from %s: run with -rewrite and read the difference\n%s", path, b.String())
	}
}

// TestStageTable stages a lane over every mode.
func TestStageTable(t *testing.T) {
	for name, c := range map[string]struct {
		site  func() *site
		epoch cell.Epoch
		want  error
		mode  bool // a *ModeError
	}{
		"a tenant that is not known":    {func() *site { return newSite(t, fixtureLimits()) }, 1, nil, false},
		"at no epoch":                   {func() *site { return newSite(t, fixtureLimits()) }, 0, engine.ErrMoveStale, false},
		"over one that left":            {func() *site { return laneIn(t, cell.ModeTombstone) }, 6, nil, false},
		"over one that left then":       {func() *site { return laneIn(t, cell.ModeTombstone) }, 5, nil, false},
		"over one that left later":      {func() *site { return laneIn(t, cell.ModeTombstone) }, 4, engine.ErrMoveStale, false},
		"over one staged before, empty": {func() *site { return laneIn(t, cell.ModeStaged) }, 5, nil, false},
		"over one that a later has": {func() *site {
			x := laneIn(t, cell.ModeTombstone)
			f := siteStage(5)
			f.Move.Attempt = 8
			x.must(f)
			return x
		}, 5, engine.ErrMoveStale, false},
		"over an open one, never used":   {func() *site { return laneIn(t, cell.ModeOpen) }, 6, nil, false},
		"over an open one, at its epoch": {func() *site { return laneIn(t, cell.ModeOpen) }, 5, engine.ErrMoveStale, false},
		"over an open one in use": {func() *site {
			x := laneIn(t, cell.ModeOpen)
			x.submit("")
			return x
		}, 6, nil, true},
		"over a fenced one":     {func() *site { return laneIn(t, cell.ModeFenced) }, 6, nil, true},
		"over one on standby":   {func() *site { return laneIn(t, cell.ModeStandby) }, 6, nil, true},
		"over what was left":    {func() *site { return leftovers(t) }, 9, engine.ErrLaneFilled, false},
		"over what is left yet": {func() *site { x := leftovers(t); x.must(siteWipe(1)); return x }, 9, engine.ErrLaneFilled, false},
		"over what was wiped":   {func() *site { x := leftovers(t); x.must(siteWipe(9)); return x }, 9, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := c.site()
			f := siteStage(c.epoch)
			f.Move.Attempt = 7
			r := x.do(f)
			if c.mode {
				if _, ok := errors.AsType[*engine.ModeError](r.Err); !ok {
					t.Errorf("got %v", r.Err)
				}
				return
			}
			if !errors.Is(r.Err, c.want) {
				t.Fatalf("got %v, want %v", r.Err, c.want)
			}
			if l := x.s.Lane(siteLane); c.want == nil && (l.Mode != cell.ModeStaged || l.Epoch != c.epoch || l.Cursor != engine.Cursor{} || l.Charged != 0) {
				t.Errorf("staged: %+v", l)
			}
		})
	}
}

func siteWipe(n int) *engine.WipeFact {
	return &engine.WipeFact{Lane: siteLane, Move: siteMove, Max: n}
}

// leftovers is a lane that left with jobs in it.
func leftovers(t testing.TB) *site {
	a, _ := moved(t, func(x *site) {
		x.submit("k")
		x.run(x.submit("l"))
	})
	a.must(siteMode(cell.ModeTombstone, 5, 0))
	return a
}

// TestOpensWhole refuses to open a lane of which a part was copied.
func TestOpensWhole(t *testing.T) {
	x := newSite(t, fixtureLimits())
	x.must(siteStage(2))
	if r := x.do(siteStage(2)); !r.Duplicate || r.Index != 1 {
		t.Errorf("staged again: %+v", r)
	}
	x.must(&engine.ImportFact{Lane: siteLane, Move: siteMove, End: engine.Cursor{Seeded: 7}})
	var mode *engine.ModeError
	if r := x.do(siteMode(cell.ModeOpen, 3, 0)); !errors.As(r.Err, &mode) {
		t.Errorf("got %v", r.Err)
	}
}

// TestPolicyOpensAgain opens the lanes of a tenant that is assigned to the cell again without a move, and no lane of one whose lanes are moving.
func TestPolicyOpensAgain(t *testing.T) {
	x := newSite(t, fixtureLimits())
	x.must(siteStage(5))
	p := sitePolicy()
	p.Epoch = 50
	x.must(&engine.PolicyFact{Policy: p})
	other := x.s.Lane(cell.Lane{Tenant: "acme", Class: cell.ClassInteractive})
	if other.Mode != cell.ModeTombstone {
		t.Fatalf("the other lane is %v", other.Mode)
	}
	x.must(siteMode(cell.ModeTombstone, 60, 0))
	p.Epoch = 55
	x.must(&engine.PolicyFact{Policy: p})
	if other.Mode != cell.ModeTombstone {
		t.Fatalf("a policy of before it left made it %v", other.Mode)
	}
	p.Epoch = 61
	a := x.entry(&engine.Entry{Facts: []engine.Fact{&engine.PolicyFact{Policy: p}}})
	if other.Mode != cell.ModeOpen || x.s.Lane(siteLane).Mode != cell.ModeOpen || len(a.Lanes) != 2 {
		t.Fatalf("assigned again, they are %v and %v", other.Mode, x.s.Lane(siteLane).Mode)
	}
	l := x.s.Lane(siteLane)
	if err := l.CheckLane(59); !errors.Is(err, engine.ErrLaneMoved) {
		t.Errorf("an epoch of before it left: %v", err)
	}
	for _, epoch := range []cell.Epoch{0, 60, 61, 99} {
		if err := l.CheckLane(epoch); err != nil {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
}

// TestLaneErrors asks lanes of every mode what they say to callers of every epoch.
func TestLaneErrors(t *testing.T) {
	for m, want := range map[cell.Mode][4]error{ // of epochs 0, 4, 5 and 6
		cell.ModeOpen:      {nil, engine.ErrLaneMoved, nil, nil},
		cell.ModeFenced:    {engine.ErrLaneMoving, engine.ErrLaneMoving, engine.ErrLaneMoving, engine.ErrLaneMoving},
		cell.ModeStaged:    {engine.ErrLaneMoved, engine.ErrLaneMoved, engine.ErrLaneMoved, engine.ErrLaneBehind},
		cell.ModeStandby:   {engine.ErrLaneMoved, engine.ErrLaneMoved, engine.ErrLaneMoved, engine.ErrLaneBehind},
		cell.ModeTombstone: {engine.ErrLaneMoved, engine.ErrLaneMoved, engine.ErrLaneMoved, engine.ErrLaneBehind},
	} {
		x := laneIn(t, m)
		for i, epoch := range []cell.Epoch{0, 4, 5, 6} {
			f := &engine.SubmitFact{ID: cell.JobID{byte(i + 1)}, Tenant: "acme", Class: cell.ClassBatch, Epoch: epoch}
			r, _ := x.s.Precheck(f, engine.Extra{})
			got := x.do(f)
			if !errors.Is(got.Err, want[i]) || errorText(got.Err) != errorText(r.Err) {
				t.Errorf("%v, epoch %d: %v, said before %v", m, epoch, got.Err, r.Err)
			}
			var lane *engine.LaneError
			if want[i] != nil && (!errors.As(got.Err, &lane) || lane.Epoch != 5 || lane.Mode != m || lane.Lane != siteLane) {
				t.Errorf("%v, epoch %d: %+v", m, epoch, lane)
			}
		}
	}
}

// TestNothingOfAFencedLane fires no timer, and takes no account, of a lane that is not open.
func TestNothingOfAFencedLane(t *testing.T) {
	x := newSite(t, fixtureLimits())
	x.must(&engine.PolicyFact{Policy: sitePolicy()})
	x.run(x.submit("k"))
	x.submit("")
	x.must(siteMode(cell.ModeFenced, 2, 0))
	before := x.s.NextTimer()
	x.now += 10 * cell.Instant(time.Hour)
	a := x.entry(&engine.Entry{Accounts: []engine.AccountFact{{Lane: siteLane, Account: cell.LaneAccount{Rounds: 9}}}})
	l := x.s.Lane(siteLane)
	if before != 0 || len(a.Ended)+len(a.Woken) > 0 || l.Count(engine.Succeeded) != 1 || l.Keys() != 1 || l.Account != (cell.LaneAccount{}) {
		t.Errorf("timer %d, %+v, %d keys, account %+v", before, a, l.Keys(), l.Account)
	}
	x.must(siteMode(cell.ModeOpen, 3, 0))
	if l.Count(engine.Succeeded) != 0 || l.Keys() != 0 {
		t.Errorf("open again, it has %d jobs that ended and %d keys past their time", l.Count(engine.Succeeded), l.Keys())
	}
}

// TestInheritance follows a tenant's credit, starts and estimates.
func TestInheritance(t *testing.T) {
	a, b := moved(t, func(x *site) {
		x.run(x.submit(""))
		x.now += second
		x.run(x.submit(""))
		x.entry(&engine.Entry{
			Accounts:       []engine.AccountFact{{Lane: siteLane, Account: cell.LaneAccount{Rounds: 3, Deficit: -7}}},
			TenantAccounts: []engine.TenantAccountFact{{Tenant: "acme", Account: cell.TenantAccount{LimitTag: 5, CreditTag: 6, Credit: 600, CreditAt: 7}}},
		})
	})
	from, to := a.s.Tenant("acme"), b.s.Tenant("acme")
	if to.Account.Credit != 600 || from.Account.Credit != 0 || to.Account.LimitTag != 5 || to.Account.CreditTag != 6 {
		t.Errorf("all of its credit went: %+v is left, %+v came", from.Account, to.Account)
	}
	if got := to.Starts(); !slices.Equal(got, []cell.Instant{start, start + second}) {
		t.Errorf("starts %v", got)
	}
	if e := to.Estimate("op"); e != from.Estimate("op") || e.Samples != 2 {
		t.Errorf("estimate %+v, was %+v", e, from.Estimate("op"))
	}
	if l := b.s.Lane(siteLane); l.Charged != a.s.Lane(siteLane).Charged || l.Account.Rounds != 3 || l.Account.Deficit != -7 {
		t.Errorf("the lane's account is %+v", l.Account)
	}
	// Back again with a half, while nothing else of the tenant is at the first.
	b.must(siteMode(cell.ModeFenced, 5, 0))
	b.copyTo(a)
	a.must(siteMode(cell.ModeOpen, 6, 500))
	b.must(siteMode(cell.ModeTombstone, 6, 500))
	if from.Account.Credit != 300 || to.Account.Credit != 300 { // its interactive lane never left
		t.Errorf("a half of 600 went back: %d and %d", from.Account.Credit, to.Account.Credit)
	}
}

// TestSpentWhileFenced takes what the source's other lane spends in between off what the source keeps.
func TestSpentWhileFenced(t *testing.T) {
	a, b := newSite(t, fixtureLimits()), newSite(t, fixtureLimits())
	a.must(&engine.PolicyFact{Policy: sitePolicy()})
	b.must(siteStage(2))
	a.must(&engine.TrackFact{Lane: siteLane, Move: siteMove})
	a.must(siteMode(cell.ModeFenced, 3, 0))
	a.copyTo(b)
	a.entry(&engine.Entry{TenantAccounts: []engine.TenantAccountFact{{Tenant: "acme", Account: cell.TenantAccount{Credit: 700, CreditAt: start}}}})
	b.must(siteMode(cell.ModeOpen, 4, 400))
	a.must(siteMode(cell.ModeStandby, 4, 400))
	if got, left := b.s.Tenant("acme").Account.Credit, a.s.Tenant("acme").Account.Credit; got != 400 || left != 300 {
		t.Errorf("of 1000, 300 was spent: %d went and %d is left", got, left)
	}
}

// TestTrackedDeletions lets go of the oldest records that are gone.
func TestTrackedDeletions(t *testing.T) {
	x := newSite(t, fixtureLimits())
	x.s.LetGoBeyond(10)
	x.must(&engine.PolicyFact{Policy: sitePolicy()})
	x.must(&engine.TrackFact{Lane: siteLane, Move: siteMove})
	_, _, begun, err := x.s.Export(siteLane, engine.Cursor{}, 1000, 1000)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		f := &engine.SubmitFact{ID: cell.JobID{1, byte(n)}, Tenant: "acme", Class: cell.ClassBatch}
		f.Spec.Retention = time.Nanosecond
		x.must(f)
		x.must(&engine.CancelFact{ID: f.ID, Tenant: "acme"})
		x.now += second
		x.entry(&engine.Entry{})
		restored, rerr := engine.Restore(fixtureLimits(), strings.NewReader(string(snapshotOf(t, x.s))))
		if rerr != nil || restored.Hash() != x.s.Hash() {
			t.Fatalf("restored: %v", rerr)
		}
		_, _, _, err = x.s.Export(siteLane, begun, 1<<16, 1000)
	}
	if n != 11 || !errors.Is(err, engine.ErrCursorLost) {
		t.Errorf("after %d jobs: %v", n, err)
	}
	if _, _, _, err := x.s.Export(siteLane, engine.Cursor{}, 1000, 1000); err != nil {
		t.Errorf("from the beginning: %v", err)
	}
}

// A copy whose last change ends just where the room does has the account all the same: nothing would bring it later.
func TestCopyEndsWithTheAccount(t *testing.T) {
	a, b := newSite(t, fixtureLimits()), newSite(t, fixtureLimits())
	a.must(&engine.PolicyFact{Policy: sitePolicy()})
	b.must(siteStage(2))
	a.must(&engine.TrackFact{Lane: siteLane, Move: siteMove})
	a.copyTo(b)
	for steps := 1; steps < 8; steps++ {
		for range 2 {
			a.run(a.submit(fmt.Sprint(a.ids)))
		}
		for to := b.s.Lane(siteLane); to.Cursor != (engine.Cursor{Seeded: engine.SeededAll, Change: a.s.Lane(siteLane).Change}); {
			begin := to.Cursor
			records, _, next, err := a.s.Export(siteLane, begin, 1<<16, steps)
			if err != nil {
				t.Fatal(err)
			}
			b.must(&engine.ImportFact{Lane: siteLane, Move: siteMove, Begin: begin, End: next, Records: records})
		}
		if got, want := b.s.Lane(siteLane).Charged, a.s.Lane(siteLane).Charged; got != want {
			t.Errorf("%d records at a time: charged %v, not %v", steps, got, want)
		}
	}
}

// TestImportRefused imports what must not be, none of which may change anything.
func TestImportRefused(t *testing.T) {
	a := newSite(t, fixtureLimits())
	a.must(&engine.PolicyFact{Policy: sitePolicy()})
	a.run(a.submit("k"))
	id := a.submit("l")
	a.must(&engine.TrackFact{Lane: siteLane, Move: siteMove})
	records, _, next, err := a.s.Export(siteLane, engine.Cursor{}, 1<<20, 1000)
	if err != nil {
		t.Fatal(err)
	}
	good := engine.ImportFact{Lane: siteLane, Move: siteMove, End: next, Records: records}
	with := func(change func(*engine.ImportFact)) *engine.ImportFact {
		f := good
		change(&f)
		return &f
	}
	b := newSite(t, fixtureLimits())
	b.refused(&good, engine.ErrTenantUnknown)
	b.must(siteStage(2))
	b.refused(with(func(f *engine.ImportFact) { f.Move.Attempt++ }), engine.ErrMoveStale)
	if r := b.refused(with(func(f *engine.ImportFact) { f.Begin.Change++; f.End.Change++ }), engine.ErrCursor); r.Cursor != (engine.Cursor{}) {
		t.Errorf("the cursor is %+v", r.Cursor)
	}
	for n := range records {
		if n > 0 && n != len(records) {
			if r := b.do(with(func(f *engine.ImportFact) { f.Records = records[:n] })); r.Err == nil { // cut between records, it is a whole chunk
				b = newSite(t, fixtureLimits())
				b.must(siteStage(2))
			} else if !errors.Is(r.Err, engine.ErrFormat) || b.s.Lane(siteLane).Cursor != (engine.Cursor{}) {
				t.Fatalf("%d bytes of %d: %v", n, len(records), r.Err)
			}
		}
	}
	b.refused(with(func(f *engine.ImportFact) { f.Records = append(slices.Clone(records), 99, 0, 0, 0, 0) }), engine.ErrFormat)
	b.must(&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "globex", Weight: 1, Epoch: 1}})
	taken := &engine.SubmitFact{ID: id, Tenant: "globex", Class: cell.ClassBatch}
	b.must(taken)
	b.refused(&good, engine.ErrJobIDTaken)
	for name, change := range map[string]func(*engine.Limits){
		"backlog_jobs_max": func(l *engine.Limits) { l.LiveJobsMax = 1 }, "backlog_bytes_max": func(l *engine.Limits) { l.LiveBytesMax = 600 },
		"key_records_max": func(l *engine.Limits) { l.KeyRecordsMax = 1 }, "finished_cell_bytes_max": func(l *engine.Limits) { l.FinishedCellBytesMax = 5 },
	} {
		l := fixtureLimits()
		change(&l)
		c := newSite(t, l)
		c.must(siteStage(2))
		c.must(&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "globex", Weight: 1, Epoch: 1}})
		c.must(&engine.SubmitFact{ID: cell.JobID{9}, Tenant: "globex", Class: cell.ClassBatch})
		var limit *cell.LimitError
		if r := c.do(&good); !errors.As(r.Err, &limit) || limit.Limit != name || limit.Scope != cell.ScopeCell || c.s.Lane(siteLane).Cursor != (engine.Cursor{}) {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
	c := newSite(t, fixtureLimits())
	c.must(siteStage(2))
	c.must(&good)
	c.refused(&good, engine.ErrCursor)
	c.must(siteWipe(1))
	c.refused(&engine.ImportFact{Lane: siteLane, Move: siteMove, Begin: next, End: next}, engine.ErrLaneFilled)
	if r := c.must(siteWipe(1000)); r.Left != 0 || c.s.Lane(siteLane).Cursor != (engine.Cursor{}) {
		t.Errorf("%d records are left", r.Left)
	}
}

// TestDigestTells flips what a copy has, one thing at a time: the digests differ each time, and the bucket names the record.
func TestDigestTells(t *testing.T) {
	a, b := moved(t, func(x *site) {
		x.submit("k")
		x.run(x.submit("l"))
	})
	whole := func(x *site) engine.LaneDigest {
		for !x.s.AdvanceDigest(siteLane, 1) {
		}
		d, ok := x.s.Digest(siteLane)
		if !ok {
			t.Fatal("not whole")
		}
		return d
	}
	was := whole(a)
	if whole(b) != was {
		t.Fatal("the copies differ")
	}
	id := b.submit("") // what the other does not have
	now := whole(b)
	if now.Sum == was.Sum {
		t.Fatal("a job more, and the same digest")
	}
	differ := 0
	for i := range now.Buckets {
		if now.Buckets[i] == was.Buckets[i] {
			continue
		}
		differ++
		records, _ := b.s.BucketRecords(siteLane, i, 0, 1000)
		if !slices.ContainsFunc(records, func(r engine.RecordDigest) bool { return !r.Key && r.ID == id.String() }) {
			t.Errorf("bucket %d differs, and has %+v", i, records)
		}
	}
	if differ != 1 {
		t.Errorf("%d buckets differ", differ)
	}
}

// TestModeCost fences and opens lanes of a thousand and of a hundred thousand jobs, with timers, keys and ended ones: it must not take longer.
func TestModeCost(t *testing.T) {
	if testing.Short() || underRace {
		t.Skip("it takes seconds")
	}
	cost := func(jobs int) int64 {
		s := filledLane(t, engine.DefaultLimits(), jobs)
		index, epoch := s.Index(), cell.Epoch(10)
		return testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				for _, m := range []cell.Mode{cell.ModeFenced, cell.ModeOpen} {
					index++
					epoch++
					if r := s.Apply(index, &engine.Entry{Time: start, Facts: []engine.Fact{siteMode(m, epoch, 0)}}).Results[0]; r.Err != nil {
						b.Fatal(r.Err)
					}
				}
			}
		}).NsPerOp()
	}
	few, many := cost(1000), cost(100_000)
	if many > 20*few {
		t.Errorf("a lane of 1,000 jobs takes %d ns to be fenced and opened, one of 100,000 %d ns", few, many)
	}
}

// filledLane is a lane with so many jobs.
func filledLane(t testing.TB, limits engine.Limits, jobs int) *engine.State {
	s := newState(t, limits)
	p := sitePolicy()
	p.Starts = cell.StartRate{}
	facts := []engine.Fact{&engine.PolicyFact{Policy: p}}
	for i := range jobs {
		f := &engine.SubmitFact{ID: cell.JobID{0: 1, 12: byte(i >> 24), 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}, Tenant: "acme", Class: cell.ClassBatch}
		f.Spec = engine.Spec{Operation: "op", Retention: time.Hour, Payload: engine.Payload{Kind: engine.PayloadJSON, Data: []byte(`{"n":1}`)}}
		switch i % 4 {
		case 0:
			f.Spec.Key = fmt.Sprint(i)
		case 1:
			f.Spec.NotBefore = start + cell.Instant(i)*second
		case 2:
			f.Spec.Deadline = start + cell.Instant(1+i)*second
		}
		facts = append(facts, f)
		if i%8 == 0 {
			facts = append(facts, &engine.CancelFact{ID: f.ID, Tenant: "acme"})
		}
	}
	for i, r := range s.Apply(1, &engine.Entry{Time: start, Facts: facts}).Results {
		if r.Err != nil {
			t.Fatalf("fact %d: %v", i, r.Err)
		}
	}
	return s
}

// BenchmarkMove copies a lane of 200,000 jobs.
func BenchmarkMove(b *testing.B) {
	limits := engine.DefaultLimits()
	a := filledLane(b, limits, 200_000)
	a.Apply(2, &engine.Entry{Time: start, Facts: []engine.Fact{&engine.TrackFact{Lane: siteLane, Move: siteMove}}})
	for b.Loop() {
		to := newState(b, limits)
		to.Apply(1, &engine.Entry{Time: start, Facts: []engine.Fact{siteStage(2)}})
		var bytes int
		for index := uint64(2); ; index++ {
			from := to.Lane(siteLane).Cursor
			records, _, next, err := a.Export(siteLane, from, 256<<10, 2048)
			if err != nil {
				b.Fatal(err)
			}
			if next == from {
				break
			}
			bytes += len(records)
			f := &engine.ImportFact{Lane: siteLane, Move: siteMove, Begin: from, End: next, Records: records}
			if r := to.Apply(index, &engine.Entry{Time: start, Facts: []engine.Fact{f}}).Results[0]; r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		b.ReportMetric(float64(bytes)/(1<<20), "MiB")
	}
}

// goldenMoved is a state with lanes in every mode, tracked and filled, and everything that is kept of them.
func goldenMoved(t testing.TB) *engine.State {
	a, b := moved(t, func(x *site) {
		x.submit("a key that lives")
		x.run(x.submit("a key in its window"))
		f := &engine.SubmitFact{ID: cell.JobID{7}, Tenant: "acme", Class: cell.ClassBatch}
		f.Spec = engine.Spec{Operation: "op", Key: "a key alone", Retention: time.Second}
		x.must(f)
		x.run(f.ID)
		x.now += 2 * second
		x.entry(&engine.Entry{})
	})
	b.submit("there")
	x := a
	for i, m := range []cell.Mode{cell.ModeFenced, cell.ModeStaged, cell.ModeStandby, cell.ModeTombstone} {
		lane := cell.Lane{Tenant: cell.TenantID(fmt.Sprintf("t%d", i)), Class: cell.ClassInteractive}
		p := sitePolicy()
		p.Tenant = lane.Tenant
		if m == cell.ModeStaged || m == cell.ModeTombstone {
			x.must(&engine.StageFact{Lane: lane, Policy: p, Move: siteMove, Epoch: 3})
		} else {
			x.must(&engine.PolicyFact{Policy: p})
			x.must(&engine.TrackFact{Lane: lane, Move: siteMove})
			for n := range 3 {
				f := &engine.SubmitFact{ID: cell.JobID{8, byte(i), byte(n)}, Tenant: lane.Tenant, Class: lane.Class}
				f.Spec = engine.Spec{Operation: "op", Key: fmt.Sprint(n), Retention: time.Duration(n) * time.Second}
				x.must(f)
			}
			x.must(&engine.CancelFact{ID: cell.JobID{8, byte(i), 0}, Tenant: lane.Tenant})
			x.must(&engine.CancelFact{ID: cell.JobID{8, byte(i), 1}, Tenant: lane.Tenant})
			x.now += second
			x.entry(&engine.Entry{})
			x.must(&engine.ModeFact{Lane: lane, Mode: cell.ModeFenced, Epoch: 4, Move: siteMove})
		}
		if m == cell.ModeStandby || m == cell.ModeTombstone {
			x.must(&engine.ModeFact{Lane: lane, Mode: m, Epoch: 5, Move: siteMove, Share: 300})
		}
	}
	b.must(&engine.CancelFact{ID: cell.JobID{0: 1, 15: 1}, Tenant: "acme"})
	b.copyTo(a)
	return x.s
}

// TestMovedGolden holds the snapshot's format for lanes that move.
func TestMovedGolden(t *testing.T) {
	s := goldenMoved(t)
	modes := map[cell.Mode]bool{}
	for _, l := range s.Lanes() {
		modes[l.Mode] = true
	}
	if len(modes) != 5 {
		t.Errorf("lanes in %v only", slices.Sorted(maps.Keys(modes)))
	}
	now := snapshotOf(t, s)
	old := golden(t, "snapshot-moved", now)
	restored, err := engine.Restore(engine.DefaultLimits(), strings.NewReader(string(old)))
	if err != nil {
		t.Fatal(err)
	}
	if err := restored.Check(); err != nil || restored.Hash() != s.Hash() || string(now) != string(old) {
		t.Errorf("the old bytes restore to another state: %v", err)
	}
	records := splitSnapshot(old)
	for kind, n := range map[byte]int{9: 5, 10: 3} {
		if got := len(slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.kind != kind })); got < n {
			t.Errorf("%d records of kind %d", got, kind)
		}
	}
}

// TestProve is answered with the entry's index, and changes nothing.
func TestProve(t *testing.T) {
	x := newSite(t, fixtureLimits())
	if r := x.must(&engine.ProveFact{Tenant: "acme", Move: siteMove, Token: 5}); r.Index != 1 {
		t.Errorf("got %+v", r)
	}
}

// TestTotals counts what happened in a cell, not what came to it.
func TestTotals(t *testing.T) {
	_, b := moved(t, func(x *site) {
		for range 5 {
			x.run(x.submit(""))
		}
	})
	accepted, ended := b.s.Totals()
	if accepted != 5 || ended != 0 || b.s.Passed() != 5 {
		t.Errorf("the last number is %d, %d of them passed by, and %d ended", accepted, b.s.Passed(), ended)
	}
	b.run(b.submit(""))
	if accepted, ended := b.s.Totals(); accepted != 6 || ended != 1 || b.s.Passed() != 5 {
		t.Errorf("the last number is %d, %d of them passed by, and %d ended", accepted, b.s.Passed(), ended)
	}
}
