package fairness

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestAClassGetsItsOwnBack has one class borrow, and the other come with work at random times. Whoever has work has its nominal slots
// within the reclaim bound: the longest job that borrows, or PreemptAfter and what a job takes to stop, whichever is shorter for what may
// be taken back. What is taken back is as much as is due and no more, never of a class at its nominal, and waits again in its place.
func TestAClassGetsItsOwnBack(t *testing.T) {
	cases(t, 20, func(t *rapid.T) {
		cfg := quickConfig()
		preempts := rapid.Bool().Draw(t, "preempts")
		stop := time.Duration(rapid.IntRange(0, 10).Draw(t, "stop")) * time.Millisecond
		for i := range cfg.Bulkheads {
			b := &cfg.Bulkheads[i]
			b.NominalParts = rapid.Int64Range(1, 5).Draw(t, "parts")
			b.LendAfter = time.Duration(rapid.IntRange(0, 1).Draw(t, "lend after")*rapid.IntRange(1, 50).Draw(t, "ms")) * time.Millisecond
			if preempts {
				b.PreemptAfter = time.Duration(rapid.IntRange(1, 20).Draw(t, "preempt after")) * time.Millisecond
			}
		}
		w := newWorld(t, cfg, rapid.Uint64().Draw(t, "seed"))
		w.stop = stop
		slots := rapid.IntRange(2, 10).Draw(t, "slots")
		w.pool(slots, "op")
		longest := time.Duration(rapid.IntRange(5, 200).Draw(t, "longest")) * time.Millisecond
		b := &backAndForth{w: w, t: t, longest: longest, stop: stop}
		for _, class := range cell.Classes() {
			id := cell.TenantID("of-" + class.String())
			w.tenant(cell.TenantPolicy{Tenant: id, Weight: 1000})
			b.come(cell.Lane{Tenant: id, Class: class}, preempts)
		}
		w.check = b.look
		w.revoking = b.revoking
		w.runFor(2 * time.Second)
	})
}

// backAndForth is two classes that have work for a while and then have none.
type backAndForth struct {
	w             *world
	t             *rapid.T
	longest, stop time.Duration
	below         [2]cell.Instant // since when the class has had work and less than its own; 0 while it has not
}

func (b *backAndForth) come(lane cell.Lane, preemptible bool) {
	w := b.w
	for range 1 + w.rng.IntN(30) {
		j := &job{run: time.Duration(1+w.rng.Int64N(int64(b.longest)/1e6)) * time.Millisecond}
		j.Lane, j.Cost, j.Preemptible = lane, honest(j.run), preemptible
		w.add(j)
	}
	w.at(w.now.Add(time.Duration(w.rng.Int64N(3*int64(b.longest)))), rankArrive, func() { b.come(lane, preemptible) })
}

func (b *backAndForth) waiting(i int) int64 {
	n := int64(0)
	for _, j := range b.w.waits { // order-free: a count
		if j.Lane.Class.Index() == i {
			n++
		}
	}
	return n
}

// bound is how long a class may have less than its own beside work of its own.
func (b *backAndForth) bound(i int) time.Duration {
	if p := b.w.cfg.Bulkheads[i].PreemptAfter; p > 0 {
		return min(b.longest, p+b.stop)
	}
	return b.longest
}

func (b *backAndForth) look() {
	w := b.w
	if err := w.held(); err != nil {
		b.t.Fatalf("at %v: %v", w.now.Sub(epoch), err)
	}
	for i, c := range cell.Classes() {
		u := w.s.Use(c)
		if b.waiting(i) == 0 || u.Used >= u.Nominal {
			b.below[i] = 0
			continue
		}
		if b.below[i] == 0 {
			b.below[i] = w.now
		}
		if late := w.now.Sub(b.below[i]); late > b.bound(i) {
			b.t.Fatalf("at %v: %v has %d of its own %d for %v, beside %d jobs; at most %v", w.now.Sub(epoch), c, u.Used, u.Nominal, late,
				b.waiting(i), b.bound(i))
		}
	}
}

// revoking is what the scheduler wants taken back at once, beside what is stopping already.
func (b *backAndForth) revoking(named []*run, stopping int64) {
	w := b.w
	if len(named) == 0 {
		return
	}
	i := named[0].job.Lane.Class.Index()
	victim, owner := w.s.Use(cell.Classes()[i]), w.s.Use(cell.Classes()[1-i])
	n := int64(len(named)) + stopping
	for _, r := range named {
		if r.job.Lane.Class.Index() != i {
			b.t.Fatalf("both classes are to give back at once")
		}
	}
	switch {
	case victim.Used-n < victim.Nominal:
		b.t.Fatalf("%d of %d are taken back, of which %d are its own", n, victim.Used, victim.Nominal)
	case n > owner.Nominal-owner.Used:
		b.t.Fatalf("%d are taken back for a class that has %d of its own %d", n, owner.Used, owner.Nominal)
	case n > b.waiting(1-i):
		b.t.Fatalf("%d are taken back for %d jobs", n, b.waiting(1-i))
	}
}

// TestVictimsKeepTheirReservation has a class give back while one of its tenants runs what it reserves: others' jobs go first, and the
// tenant keeps what its reservation is worth in slots.
func TestVictimsKeepTheirReservation(t *testing.T) {
	cases(t, 20, func(t *rapid.T) {
		cfg := quickConfig()
		cfg.Bulkheads[0].NominalParts, cfg.Bulkheads[1].NominalParts = 1, 1
		cfg.Bulkheads[0].PreemptAfter = 5 * time.Millisecond
		w := newWorld(t, cfg, rapid.Uint64().Draw(t, "seed"))
		half := rapid.IntRange(2, 5).Draw(t, "half")
		w.pool(2*half, "op")
		own := rapid.IntRange(1, half).Draw(t, "reserved slots")
		w.tenant(cell.TenantPolicy{Tenant: "owner", Weight: 1000})
		w.tenant(cell.TenantPolicy{Tenant: "victim", Weight: 1000, Reservation: [2]cell.Rate{0, cell.Rate(own) * slot}})
		w.tenant(cell.TenantPolicy{Tenant: "other", Weight: rapid.SampledFrom([]cell.Weight{100, 1000, 5000}).Draw(t, "weight")})
		length := 30 * time.Millisecond
		for _, id := range []cell.TenantID{"victim", "other"} {
			c := &claimant{policy: cell.TenantPolicy{Tenant: id}, least: length, most: length, declares: honest}
			for range 4 * half {
				j := c.job(w, cell.ClassBatch)
				j.Preemptible = true
				c.follow(w, j)
				w.add(j)
			}
		}
		w.runFor(time.Duration(rapid.IntRange(100, 300).Draw(t, "before")) * time.Millisecond)
		w.revoking = func(named []*run, _ int64) {
			gone := map[*run]bool{}
			for _, r := range named {
				gone[r] = true
			}
			for _, r := range named {
				if r.tier != tree.TierReserved {
					continue
				}
				for _, o := range w.runs { // order-free: any will do
					if o.job.Lane.Class == cell.ClassBatch && o.tier != tree.TierReserved && o.job.Preemptible && !gone[o] && !o.stopping {
						t.Fatalf("%s loses what it runs of its reservation, and %s keeps what it borrows", r.job.Lane.Tenant, o.job.Lane.Tenant)
					}
				}
			}
		}
		for range half {
			j := &job{run: time.Second}
			j.Lane, j.Cost = cell.Lane{Tenant: "owner", Class: cell.ClassInteractive}, honest(j.run)
			w.add(j)
		}
		from := w.now.Add(100 * time.Millisecond)
		w.runFor(900 * time.Millisecond)
		got, want := w.served(from, w.now, of("victim")), due(cell.Rate(own)*slot, w.now.Sub(from))
		if got < want-3*length {
			t.Fatalf("beside an owner that took its slots back it had %v, of %v that it reserves", got, want)
		}
	})
}

// follow has another job like it come when a job ends.
func (c *claimant) follow(w *world, j *job) {
	j.done = func(*run) {
		next := c.job(w, j.Lane.Class)
		next.Preemptible = j.Preemptible
		c.follow(w, next)
		w.add(next)
	}
}
