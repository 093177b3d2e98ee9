package fairness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/sched"
)

// mixed draws a world with everything in it: both classes, several offer sets, organizations, every kind of promise and cap, jobs with keys
// and without, that come in floods, one by one, or not for a while, and say what they cost, or something else.
func mixed(t *rapid.T, cfg sched.Config) *world {
	for i := range cfg.Bulkheads {
		b := &cfg.Bulkheads[i]
		b.NominalParts = rapid.Int64Range(1, 4).Draw(t, "parts")
		b.LendablePercent = rapid.SampledFrom([]int64{100, 100, 50, 0}).Draw(t, "lend")
		b.BorrowMaxPercent = rapid.SampledFrom([]int64{100, 100, 25}).Draw(t, "borrow")
	}
	w := newWorld(t, cfg, rapid.Uint64().Draw(t, "seed"))
	w.teach = rapid.Bool().Draw(t, "teach")
	w.pool(rapid.IntRange(1, 6).Draw(t, "slots"), "op")
	if rapid.Bool().Draw(t, "another pool") {
		w.pool(rapid.IntRange(1, 4).Draw(t, "slots"), "op", "other")
	}
	load := drawWorkload(t)
	for _, o := range load.orgs {
		w.organization(o)
	}
	for _, c := range load.tenants {
		if rapid.IntRange(0, 4).Draw(t, "running") == 0 {
			c.policy.RunningMax = rapid.Int64Range(1, 4).Draw(t, "running max")
		}
		if rapid.IntRange(0, 4).Draw(t, "starts") == 0 {
			c.policy.Starts = cell.StartRate{
				Jobs: rapid.Int64Range(1, 20).Draw(t, "jobs"), Per: time.Duration(rapid.IntRange(1, 100).Draw(t, "per")) * time.Millisecond,
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "credit") == 0 {
			c.policy.Credit = cell.Credit{Max: 1_000_000, Refill: slot / 50, Extra: slot / 5}
		}
		w.tenant(c.policy)
		w.flood(t, c)
	}
	return w
}

// flood has a tenant submit now and then.
func (w *world) flood(t *rapid.T, c *claimant) {
	keyed := rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "keys")
	says := rapid.SampledFrom([]int64{100, 100, 10, 1000, 0}).Draw(t, "percent")
	both := rapid.Bool().Draw(t, "both classes")
	pause := time.Duration(rapid.IntRange(1, 100).Draw(t, "pause")) * time.Millisecond
	size := rapid.IntRange(1, 40).Draw(t, "size")
	var burst func()
	burst = func() {
		for range 1 + w.rng.IntN(size) {
			class := cell.ClassBatch
			if both && w.rng.IntN(2) == 0 {
				class = cell.ClassInteractive
			}
			j := c.job(w, class)
			j.Cost = j.Cost * cell.Cost(says) / 100
			j.Priority = int32(w.rng.IntN(3))
			if w.rng.IntN(3) == 0 {
				j.Operation = "other"
			}
			for k := range keyed {
				if w.rng.IntN(2) == 0 {
					j.Keys = append(j.Keys, cell.ConcurrencyKey{Key: fmt.Sprint("key-", k), Max: int64(1 + k)})
				}
			}
			w.add(j)
		}
		w.at(w.now.Add(time.Duration(w.rng.Int64N(int64(pause)))), rankArrive, burst)
	}
	w.at(w.now, rankArrive, burst)
}

// TestNoSlotIdles looks at every moment at which no more was granted: whatever waits beside a free slot that offers its operation is held
// up by a cap that the world sees in its own books; and what is held is what runs.
func TestNoSlotIdles(t *testing.T) {
	cases(t, 15, func(t *rapid.T) {
		w := mixed(t, quickConfig())
		looks := 0
		w.check = func() {
			if err := w.held(); err != nil {
				t.Fatalf("at %v: %v", w.now.Sub(epoch), err)
			}
			if looks++; looks%5 == 0 || len(w.waits) < 40 {
				w.idle(t)
			}
		}
		w.runFor(300 * time.Millisecond)
	})
}

// idle fails the test when a job waits though a slot is free for it.
func (w *world) idle(t *rapid.T) {
	free := slices.DeleteFunc(slices.Clone(w.pools), func(p *pool) bool { return p.busy >= p.slots })
	if len(free) == 0 {
		return
	}
	for _, j := range w.waits { // order-free: each for itself
		if !slices.ContainsFunc(free, func(p *pool) bool { return w.serves(p, j) }) {
			continue
		}
		if w.hardCap(j) == "" {
			why, _ := w.s.Explain(w.now, j.ID)
			t.Fatalf("at %v: %+v waits beside a free slot, it is told for %v", w.now.Sub(epoch), j.Item, why)
		}
	}
}

// hardCap names a cap that is in the way of a job, by the world's own books; "" for none.
func (w *world) hardCap(j *job) string {
	a := w.books[j.Lane.Tenant]
	switch p := a.policy; {
	case !w.mayTake(j.Lane.Class.Index()):
		return "class"
	case p.RunningMax > 0 && a.held >= p.RunningMax:
		return "running"
	case p.Starts.Jobs > 0 && int64(len(a.starts)) >= p.Starts.Jobs && w.now.Sub(a.starts[int64(len(a.starts))-p.Starts.Jobs]) < p.Starts.Per:
		return "starts"
	}
	for _, k := range j.Keys {
		if a.keys[k.Key] >= k.Max {
			return "key"
		}
	}
	for _, l := range []*limit{a.limit, a.org} {
		if _, perhaps := l.blocks(w.now); perhaps {
			return "limit"
		}
	}
	return ""
}

// mayTake reports whether a class may have another slot: its own, or one that the other lends, within what it may borrow.
func (w *world) mayTake(i int) bool {
	used, own, other, b := w.uses(i), w.nominal(i), w.nominal(1-i), w.cfg.Bulkheads
	if int64(len(w.runs)) >= w.slots() {
		return false
	}
	kept := other - other*b[1-i].LendablePercent/100
	return used < own || used < w.slots()-kept && used < own+w.slots()*b[i].BorrowMaxPercent/100
}

// uses is how many slots jobs of a class have.
func (w *world) uses(i int) int64 {
	n := int64(0)
	for _, r := range w.runs { // order-free: a count
		if r.job.Lane.Class.Index() == i {
			n++
		}
	}
	return n
}
