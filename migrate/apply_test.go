package migrate

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

var rewrite = flag.Bool("rewrite", false, "write what the golden files in testdata are to hold")

// golden compares with a file in testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; run with -rewrite and read the difference:\n%s", path, got)
	}
}

func declared(t testing.TB) Record {
	t.Helper()
	r, err := New(Declaration{
		ID: "m1", Tenant: "acme", Source: "pool", Target: "whale", Reason: "operator", Actor: "key_1", Options: DefaultOptions(),
		Epochs: [2]cell.Epoch{3, 3}, Now: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eventOf returns an event with everything that a kind can want.
func eventOf(r *Record, k Kind, c cell.Class) Event {
	e := Event{Kind: k, Attempt: r.Attempt, Time: 2000, Actor: "control", Why: "because"}
	if k.HasClass() {
		e.Class = c
	}
	switch k { //nolint:exhaustive // the others want nothing
	case EventCommit, EventReverseCommit:
		e.Position, e.Change, e.Digest = 40, 7, [32]byte{1}
	case EventFence, EventReverseFence, EventGates, EventPass:
		e.Gates = []Gate{{Name: GateLag, Verdict: Pass, Evidence: "none"}}
	case EventProgress:
		e.Progress = &Progress{JobsCopied: 1, At: 2000}
	case EventThrottle:
		e.BytesPerSecond = BytesPerSecondMin
	}
	return e
}

// at returns a record in a state, with phases for batch, which comes first, and interactive.
func at(t testing.TB, s State, batch, interactive Phase) Record {
	t.Helper()
	r := declared(t)
	r.State = s
	for c, p := range map[cell.Class]Phase{cell.ClassBatch: batch, cell.ClassInteractive: interactive} {
		l := &r.Lanes[c.Index()]
		l.Phase, l.Owner = p, r.ownerIn(p)
		if s >= Provisioned {
			l.Staged = 4
		}
	}
	if r.Done() {
		r.Ended = 1500
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTable is every event in every state and pair of phases: a golden file of what is let through and what becomes of it.
func TestTable(t *testing.T) {
	var b strings.Builder
	for s := Declared; s <= RolledBack; s++ {
		for _, p := range phasesOf(s) {
			for _, q := range phasesOf(s) {
				r := at(t, s, p, q)
				fmt.Fprintf(&b, "%s, batch %s, interactive %s\n", s, p, q)
				for k := EventPass; k <= EventEnd; k++ {
					next, err := r.Apply(eventOf(&r, k, cell.ClassBatch))
					var refused *TransitionError
					switch {
					case err == nil:
						l := next.Lanes[cell.ClassBatch.Index()]
						fmt.Fprintf(&b, "    %s: %s, batch %s at %s epoch %d\n", k, next.State, l.Phase, l.Owner, l.Epoch)
						if err := next.Check(); err != nil && !skips(&r, k) {
							t.Error(err)
						}
					case !errors.As(err, &refused):
						t.Errorf("%s in %s: %v", k, s, err)
					case !strings.Contains(refused.Why, "does not come") && !strings.Contains(refused.Why, "ended"):
						fmt.Fprintf(&b, "    %s is refused: %s\n", k, refused.Why)
					}
				}
			}
		}
	}
	golden(t, "table.txt", b.String())
}

// skips reports whether the record is one of those pairs of phases that no events lead to, whose successor may be as odd.
func skips(r *Record, _ Kind) bool {
	return !r.Lanes[0].resting() && !r.Lanes[1].resting()
}

func TestGraph(t *testing.T) { golden(t, "machine.md", "# The machine of a migration\n\n"+Graph()) }

// TestApplyProperties: whatever events come, in whatever order.
func TestApplyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := New(Declaration{ID: "m", Tenant: "t", Source: "a", Target: "b", Options: DefaultOptions(), Epochs: [2]cell.Epoch{1, 2}, Now: 1})
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 150).Draw(t, "events") {
			k := Kind(rapid.IntRange(0, int(EventEnd)+1).Draw(t, "kind"))
			if rapid.IntRange(0, 3).Draw(t, "forward") > 0 { // else hardly any would be let through
				k = rapid.SampledFrom([]Kind{
					EventPass, EventFence, EventCommit, EventActivate, EventObserved, EventReverseFence, EventReverseCommit, EventReverseActivate, EventResume,
				}).Draw(t, "way")
			}
			e := eventOf(&r, k, rapid.SampledFrom([]cell.Class{0, 1, 2, 1, 2, 3}).Draw(t, "class"))
			e.Attempt += uint32(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1}).Draw(t, "attempt"))
			step(t, &r, e)
		}
	})
}

func step(t *rapid.T, r *Record, e Event) {
	before := *r
	notes, gates := fmt.Sprint(r.Notes), fmt.Sprint(r.Gates)
	next, err := r.Apply(e)
	if fmt.Sprint(before.Notes) != notes || fmt.Sprint(before.Gates) != gates {
		t.Fatal("Apply changed the record that it was given")
	}
	if err != nil {
		if !reflect.DeepEqual(next, before) {
			t.Fatalf("%v, and the record changed", err)
		}
		return
	}
	if err := next.Check(); err != nil {
		t.Fatalf("after %s: %v", e.Kind, err)
	}
	if next.Generation != before.Generation+1 || len(next.Notes) > NotesMax {
		t.Fatalf("generation %d after %d, %d notes", next.Generation, before.Generation, len(next.Notes))
	}
	for i := range next.Lanes {
		a, b := &before.Lanes[i], &next.Lanes[i]
		switch {
		case b.Epoch < a.Epoch, b.Owner != a.Owner && b.Epoch == a.Epoch, b.Staged < a.Staged:
			t.Fatalf("%s: the epoch went from %d to %d, staged from %d to %d", e.Kind, a.Epoch, b.Epoch, a.Staged, b.Staged)
		case b.Owner != a.Owner && a.Phase != Fencing && a.Phase != ReverseFencing:
			t.Fatalf("%s: a class in the phase %s has another owner", e.Kind, a.Phase)
		case a.Phase == Fencing && b.Phase == AtSource && b.Epoch == a.Epoch:
			t.Fatalf("%s: a switch was given up at the epoch of its fence", e.Kind)
		}
	}
	*r = next
}

func TestApplyRefuses(t *testing.T) {
	fencing := at(t, Ramping, Fencing, AtSource)
	for name, c := range map[string]struct {
		r    Record
		edit func(*Record, *Event)
		kind Kind
		want string
	}{
		"another attempt": {fencing, func(_ *Record, e *Event) { e.Attempt++ }, EventCommit, ErrAttempt.Error()},
		"no position":     {fencing, func(_ *Record, e *Event) { e.Position = 0 }, EventCommit, "no position"},
		"no digest":       {fencing, func(_ *Record, e *Event) { e.Digest = [32]byte{} }, EventCommit, "no digest"},
		"a failed gate": {fencing, func(_ *Record, e *Event) {
			e.Gates = []Gate{{Name: GateTarget, Verdict: Fail, Evidence: "it is down"}}
		}, EventCommit, "it is down"},
		"held":           {fencing, func(r *Record, _ *Event) { r.Held = "operator" }, EventCommit, "held: operator"},
		"no class":       {fencing, func(_ *Record, e *Event) { e.Class = 0 }, EventCommit, "is not a class"},
		"no gates":       {at(t, Ramping, AtSource, AtSource), func(_ *Record, e *Event) { e.Gates = nil }, EventFence, "not proved"},
		"by hand":        {at(t, Ramping, AtSource, AtSource), func(r *Record, _ *Event) { r.Options.Manual = true }, EventFence, "waits for an operator"},
		"out of order":   {at(t, Ramping, AtSource, AtSource), func(_ *Record, e *Event) { e.Class = cell.ClassInteractive }, EventFence, "batch comes first"},
		"past the point": {at(t, Ramping, Moved, AtSource), func(*Record, *Event) {}, EventAbort, "use reverse"},
		"before it":      {at(t, Ramping, AtSource, AtSource), func(*Record, *Event) {}, EventReverse, "use abort"},
		"too many":       {at(t, Seeding, AtSource, AtSource), func(r *Record, _ *Event) { r.Retries = AttemptsMax }, EventRestart, "resume it first"},
	} {
		t.Run(name, func(t *testing.T) {
			e := eventOf(&c.r, c.kind, cell.ClassBatch)
			c.edit(&c.r, &e)
			_, err := c.r.Apply(e)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, not %q", err, c.want)
			}
		})
	}
}

// TestApplyTurns: what takes a migration elsewhere takes back what is undecided, in the same step.
func TestApplyTurns(t *testing.T) {
	for _, k := range []Kind{EventAbort, EventRestart} {
		r := at(t, Ramping, Fencing, AtSource)
		next, err := r.Apply(eventOf(&r, k, 0))
		l, was := next.Lanes[cell.ClassBatch.Index()], r.Lanes[cell.ClassBatch.Index()]
		if err != nil || l.Phase != AtSource || l.Epoch != was.Epoch+1 {
			t.Errorf("%s: %v, batch %s at %d after %d", k, err, l.Phase, l.Epoch, was.Epoch)
		}
	}
	r := at(t, Admitted, AtSource, AtSource)
	e := eventOf(&r, EventPass, 0)
	e.Floor = [2]cell.Epoch{9, 0}
	next, err := r.Apply(e)
	if err != nil || next.Lanes[0].Staged != 10 || next.Lanes[1].Staged != 4 {
		t.Errorf("%v: staged at %d and %d, not above what the cells have seen", err, next.Lanes[0].Staged, next.Lanes[1].Staged)
	}
	next.State = Ramping
	fenced, err := next.Apply(eventOf(&next, EventFence, cell.ClassBatch))
	if err != nil || fenced.Lanes[1].Epoch != 4 {
		t.Errorf("%v: fenced at %d", err, fenced.Lanes[1].Epoch)
	}
}

func TestNew(t *testing.T) {
	good := Declaration{ID: "m", Tenant: "t", Source: "a", Target: "b", Options: DefaultOptions(), Now: 1}
	for name, c := range map[string]struct {
		edit  func(*Declaration)
		field string
	}{
		"itself":     {func(d *Declaration) { d.Target = "a" }, "target"},
		"no id":      {func(d *Declaration) { d.ID = "" }, "id"},
		"one class":  {func(d *Declaration) { d.Order = [2]cell.Class{1, 1} }, "order"},
		"long pause": {func(d *Declaration) { d.Options.PauseMax = time.Minute }, "options.pause_max"},
		"slow":       {func(d *Declaration) { d.Options.BytesPerSecond = 1 }, "options.bytes_per_second"},
	} {
		t.Run(name, func(t *testing.T) {
			d := good
			c.edit(&d)
			_, err := New(d)
			var fe *cell.FieldError
			if !errors.As(err, &fe) || fe.Field != c.field {
				t.Errorf("%v, not about %s", err, c.field)
			}
		})
	}
	if o := (Options{}).WithDefaults(); o != DefaultOptions() {
		t.Errorf("%+v", o)
	}
	r, err := New(good)
	if err != nil || r.Order != DefaultOrder() || r.Check() != nil {
		t.Errorf("%v, %v, %+v", err, r.Check(), r)
	}
}

func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy(t)
		if p.Check() != nil {
			t.Skip("no policy")
		}
		a, b := Split(p, rapid.IntRange(0, Whole).Draw(t, "thousandths"))
		sums(t, p, a, b)
		r := Record{Source: "a", Target: "b", State: Ramping, Lanes: [2]Lane{{Phase: AtSource, Owner: "a"}, {Phase: Observing, Owner: "b"}}}
		a, b, toSource, toTarget := r.Policies(p)
		sums(t, p, a, b)
		if !toSource || !toTarget || a.Reservation[1] != 0 || b.Reservation[0] != 0 {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

func policy(t *rapid.T) cell.TenantPolicy {
	rate := func(name string) cell.Rate {
		return cell.Rate(rapid.SampledFrom([]int64{0, 1, 2, 3, 1e6, 7e6 + 1}).Draw(t, name))
	}
	p := cell.TenantPolicy{
		Tenant: "t", Weight: 1000, Reservation: [2]cell.Rate{rate("r0"), rate("r1")}, Limit: rate("limit"), RunningMax: int64(rate("running")) % 1000,
		Epoch: 1,
	}
	if rapid.Bool().Draw(t, "credit") {
		p.Credit = cell.Credit{Max: cell.Cost(rate("max")), Refill: rate("refill"), Extra: rate("extra")}
	}
	if rapid.Bool().Draw(t, "starts") {
		p.Starts = cell.StartRate{Jobs: rapid.Int64Range(1, 5).Draw(t, "jobs"), Per: time.Minute}
	}
	return p
}

// sums demands that two parts are policies, and no more than the whole; a bound of 1 cannot be divided.
func sums(t *rapid.T, p, a, b cell.TenantPolicy) {
	if err := errors.Join(a.Check(), b.Check()); err != nil {
		t.Fatalf("%+v becomes %+v and %+v: %v", p, a, b, err)
	}
	bound := func(whole, x, y int64) bool {
		if whole == 0 {
			return x == 0 && y == 0
		}
		return x > 0 && y > 0 && x+y <= max(whole, 2)
	}
	ok := bound(int64(p.Limit), int64(a.Limit), int64(b.Limit)) && bound(p.RunningMax, a.RunningMax, b.RunningMax) &&
		bound(p.Starts.Jobs, a.Starts.Jobs, b.Starts.Jobs) && a.Credit.Max+b.Credit.Max <= p.Credit.Max &&
		a.Credit.Extra+b.Credit.Extra <= p.Credit.Extra && a.Credit.Refill+b.Credit.Refill <= p.Credit.Refill
	for i := range p.Reservation {
		ok = ok && a.Reservation[i]+b.Reservation[i] <= p.Reservation[i]
	}
	if !ok {
		t.Fatalf("%+v becomes %+v and %+v", p, a, b)
	}
}
