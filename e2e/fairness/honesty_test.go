package fairness

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// TestSayingLessGainsNothing has A declare a fraction of what its jobs run, or many times as much, beside B, which is honest, both with
// work at any time. With what is learned, or with an operation of its own for each job so that nothing is, both have half.
func TestSayingLessGainsNothing(t *testing.T) {
	cases(t, 6, func(t *rapid.T) {
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		w.teach = rapid.Bool().Draw(t, "learns")
		slots := rapid.IntRange(1, 6).Draw(t, "slots")
		ops := []cell.Operation{"op"}
		for n := range 50 {
			ops = append(ops, cell.Operation(fmt.Sprintf("new-%02d", n)))
		}
		w.pool(slots, ops...)
		percent := rapid.SampledFrom([]int64{1, 10, 50, 300, 1000}).Draw(t, "percent")
		a := &claimant{policy: cell.TenantPolicy{Tenant: "a", Weight: 1000}, declares: func(run time.Duration) cell.Cost {
			return max(1, honest(run)*cell.Cost(percent)/100)
		}}
		b := &claimant{policy: cell.TenantPolicy{Tenant: "b", Weight: 1000}, declares: honest}
		for _, c := range []*claimant{a, b} {
			c.least = time.Duration(rapid.Int64Range(500, 8000).Draw(t, "least")) * time.Microsecond
			c.most = c.least * time.Duration(rapid.Int64Range(1, 3).Draw(t, "spread"))
			w.tenant(c.policy)
			for range 2 * slots {
				c.replace(w, cell.ClassBatch)
			}
		}
		w.runFor(time.Second)
		from := w.now
		w.runFor(4 * time.Second)
		got, all := w.served(from, w.now, of("a")), w.served(from, w.now, of("a", "b"))
		// Jobs at both ends of the time: one in each slot.
		slack := time.Duration(2*slots) * max(a.most, b.most)
		if off := (got - all/2).Abs(); off > max(all/200, slack) {
			t.Fatalf("a has %v of %v, which is %v beyond half; slack %v", got, all, off, slack)
		}
	})
}

// TestSayingLessInBurstsGainsLittle is the hole that a rotation has when the rival's queue is empty for an instant: A comes in floods and
// declares a tenth, B has four jobs and thinks for 20 microseconds between them, on four slots. With what is learned, and without it, A has
// no more than is stated here.
func TestSayingLessInBurstsGainsLittle(t *testing.T) {
	for name, c := range map[string]struct {
		teach bool
		most  float64 // slots of four
	}{"learned": {true, 2.1}, "not learned": {false, 2.2}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, quickConfig(), 5)
			w.teach = c.teach
			w.pool(4, "op")
			a := &claimant{
				policy: cell.TenantPolicy{Tenant: "a", Weight: 1000}, least: 4 * time.Millisecond, most: 4 * time.Millisecond,
				declares: func(run time.Duration) cell.Cost { return honest(run) / 10 },
			}
			b := &claimant{
				policy: cell.TenantPolicy{Tenant: "b", Weight: 1000}, least: 4 * time.Millisecond, most: 4 * time.Millisecond, declares: honest,
			}
			w.tenant(a.policy)
			w.tenant(b.policy)
			for range 8 {
				a.replace(w, cell.ClassBatch)
			}
			var think func()
			think = func() {
				j := b.job(w, cell.ClassBatch)
				j.done = func(*run) { w.at(w.now.Add(20*time.Microsecond), rankArrive, think) }
				w.add(j)
			}
			for range 4 {
				think()
			}
			w.runFor(time.Second)
			from := w.now
			w.runFor(10 * time.Second)
			if got := float64(w.served(from, w.now, of("a"))) / float64(w.now.Sub(from)); got > c.most {
				t.Fatalf("a has %.2f slots", got)
			}
		})
	}
}

// TestANewcomerStarvesNobody has two tenants that both declare a tenth and whose queues run empty now and then, so that each is alone at
// times and may pile up debt that it owes to nobody. When a third one comes with work without end, all go on: a lone flow keeps a debt of
// eight of its largest jobs, and while it pays that the two others may have as much and a turn, thirty jobs' time in all.
func TestANewcomerStarvesNobody(t *testing.T) {
	cases(t, 20, func(t *rapid.T) {
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		slots := rapid.IntRange(1, 4).Draw(t, "slots")
		w.pool(slots, "op")
		length := time.Duration(rapid.IntRange(1, 8).Draw(t, "length")) * time.Millisecond
		tenth := func(d time.Duration) cell.Cost { return max(1, honest(d)/10) }
		for _, id := range []cell.TenantID{"a", "b"} {
			c := &claimant{policy: cell.TenantPolicy{Tenant: id, Weight: 1000}, least: length, most: length, declares: tenth}
			w.tenant(c.policy)
			think := time.Duration(rapid.Int64Range(1, 100).Draw(t, "think")) * time.Microsecond
			var again func()
			again = func() {
				j := c.job(w, cell.ClassBatch)
				j.done = func(*run) { w.at(w.now.Add(think), rankArrive, again) }
				w.add(j)
			}
			for range rapid.IntRange(1, slots).Draw(t, "jobs at once") {
				again()
			}
		}
		w.runFor(time.Second)
		newcomer := &claimant{policy: cell.TenantPolicy{Tenant: "c", Weight: 1000}, least: length, most: length, declares: honest}
		w.tenant(newcomer.policy)
		for range 2 * slots {
			newcomer.replace(w, cell.ClassBatch)
		}
		bound := 30 * length
		w.granted = func(r *run) {
			if wait := w.now.Sub(r.ready); r.job.Lane.Tenant != "c" && wait > bound {
				t.Fatalf("%s waited %v beside a newcomer, more than %v", r.job.Lane.Tenant, wait, bound)
			}
		}
		w.runFor(time.Second)
		for id := range w.books { // order-free: each for itself
			if w.served(w.now.Add(-time.Second), w.now, of(id)) == 0 {
				t.Fatalf("%s had nothing for a second", id)
			}
		}
	})
}
