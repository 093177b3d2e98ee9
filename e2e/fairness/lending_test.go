package fairness

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// lender is what the world itself knows of one class's readiness: it is quiet while it has no job that waits, counted from the later of the
// beginning and the last job that did.
type lender struct{ last cell.Instant }

// TestRoomIsHeldBackAndLent has two classes come and go under random bulkheads that lend after a while, a part, or at once. At every grant
// beyond a class's own the other lends by the rule; and at every moment a slot idles beside work only where the rule keeps it, until the
// very time at which it ends.
func TestRoomIsHeldBackAndLent(t *testing.T) {
	cases(t, 40, func(t *rapid.T) {
		cfg := quickConfig()
		for i := range cfg.Bulkheads {
			b := &cfg.Bulkheads[i]
			b.NominalParts = rapid.Int64Range(1, 5).Draw(t, "parts")
			b.LendAfter = time.Duration(rapid.SampledFrom([]int{0, 1, 10, 40}).Draw(t, "lend after")) * time.Millisecond
			b.LendablePercent = rapid.SampledFrom([]int64{100, 100, 50, 0}).Draw(t, "lendable")
			b.BorrowMaxPercent = rapid.SampledFrom([]int64{100, 100, 30, 0}).Draw(t, "borrow")
		}
		x := &lendingWorld{world: newWorld(t, cfg, rapid.Uint64().Draw(t, "seed")), t: t}
		x.pool(rapid.IntRange(1, 10).Draw(t, "slots"), "op")
		x.lenders = [2]lender{{epoch}, {epoch}}
		for _, class := range cell.Classes() {
			id := cell.TenantID("of-" + class.String())
			x.tenant(cell.TenantPolicy{Tenant: id, Weight: 1000})
			x.come(cell.Lane{Tenant: id, Class: class}, rapid.IntRange(1, 80).Draw(t, "pause"), rapid.IntRange(1, 30).Draw(t, "run"))
		}
		x.granted = x.look
		x.check = x.rest
		x.runFor(time.Second)
	})
}

type lendingWorld struct {
	*world

	t       *rapid.T
	lenders [2]lender
}

// come submits a few jobs now and then.
func (x *lendingWorld) come(lane cell.Lane, pause, most int) {
	for range x.rng.IntN(8) {
		j := &job{run: time.Duration(1+x.rng.IntN(most)) * time.Millisecond}
		j.Lane, j.Cost = lane, honest(j.run)
		x.add(j)
		x.lenders[lane.Class.Index()].last = x.now
	}
	x.at(x.now.Add(time.Duration(1+x.rng.IntN(pause))*time.Millisecond), rankArrive, func() { x.come(lane, pause, most) })
}

func (x *lendingWorld) waiting(i int) bool {
	for _, j := range x.waits { // order-free: any will do
		if j.Lane.Class.Index() == i {
			return true
		}
	}
	return false
}

// lendsFrom returns when a class lends what it may, as things stand; false when it does not at any time while it has work.
func (x *lendingWorld) lendsFrom(i int) (cell.Instant, bool) {
	after := x.cfg.Bulkheads[i].LendAfter
	switch {
	case after == 0:
		return epoch, true
	case x.waiting(i):
		return 0, false
	default:
		return x.lenders[i].last.Add(after), true
	}
}

// most returns how many slots a class may have while the other lends or not.
func (x *lendingWorld) most(i int, lent bool) int64 {
	own, other := x.nominal(i), x.nominal(1-i)
	kept := other
	if lent {
		kept = other - other*x.cfg.Bulkheads[1-i].LendablePercent/100
	}
	return max(own, min(x.slots()-kept, own+x.slots()*x.cfg.Bulkheads[i].BorrowMaxPercent/100))
}

// look is at every grant.
func (x *lendingWorld) look(r *run) {
	i := r.job.Lane.Class.Index()
	at, ok := x.lendsFrom(1 - i)
	if n, most := x.uses(i), x.most(i, ok && at <= x.now); n > most {
		x.t.Fatalf("at %v: %v has %d, of at most %d", x.now.Sub(epoch), r.job.Lane.Class, n, most)
	}
	x.lenders[i].last = x.now // it had work until now
}

// rest is at every moment at which no more is granted.
func (x *lendingWorld) rest() {
	if err := x.held(); err != nil {
		x.t.Fatalf("at %v: %v", x.now.Sub(epoch), err)
	}
	for i, c := range cell.Classes() {
		if !x.waiting(i) {
			continue
		}
		x.lenders[i].last = x.now
		if int64(len(x.runs)) == x.slots() {
			continue
		}
		n, at := x.uses(i), cell.Instant(0)
		from, ok := x.lendsFrom(1 - i)
		if n < x.most(i, ok && from <= x.now) {
			x.t.Fatalf("at %v: a slot idles beside work of %v, which has %d of %d", x.now.Sub(epoch), c, n, x.most(i, ok && from <= x.now))
		}
		if ok && from > x.now && n < x.most(i, true) {
			at = from
		}
		if wake := x.s.Wake(x.now); at != 0 && (wake == 0 || wake > at) {
			x.t.Fatalf("at %v: %v may have a slot at %v, and the scheduler wants to be woken at %v", x.now.Sub(epoch), c, at.Sub(epoch),
				wake.Sub(epoch))
		}
	}
}
