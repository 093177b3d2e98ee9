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

// TestReasonsAreTrue asks of jobs that wait in random worlds why they do, and checks each answer, its numbers and its time by the world's
// own books; and that the scheduler wants to be woken no later than at the first of those times (I10).
func TestReasonsAreTrue(t *testing.T) {
	cases(t, 30, func(t *rapid.T) {
		w := mixed(t, quickConfig())
		looks := 0
		w.check = func() {
			if looks++; looks%20 != 0 && len(w.waits) > 20 {
				return
			}
			asked := 0
			for id, j := range w.waits { // order-free: each for itself
				if asked++; asked > 20 {
					break
				}
				why, ok := w.s.Explain(w.now, id)
				if !ok {
					t.Fatalf("at %v: %+v waits and is not known", w.now.Sub(epoch), j.Item)
				}
				if err := w.true(j, why); err != nil {
					t.Fatalf("at %v: %+v waits because of %v: %v: %+v", w.now.Sub(epoch), j.Item, why.Reason, err, why)
				}
			}
		}
		w.runFor(200 * time.Millisecond)
	})
}

// true checks one answer.
func (w *world) true(j *job, why sched.Why) error {
	a, wake := w.books[j.Lane.Tenant], w.s.Wake(w.now)
	fails := func(wrong bool, format string, args ...any) error {
		if wrong {
			return fmt.Errorf(format, args...)
		}
		return nil
	}
	timed := func(at cell.Instant) error {
		if off := why.Next.Sub(at).Abs(); off > 2*time.Microsecond {
			return fmt.Errorf("it ends at %v, and is told to end at %v", at.Sub(epoch), why.Next.Sub(epoch))
		}
		return fails(wake == 0 || wake > why.Next, "the scheduler wants to be woken at %v", wake.Sub(epoch))
	}
	switch why.Reason {
	case sched.ReasonNoOffer:
		elsewhere := slices.ContainsFunc(w.pools, func(p *pool) bool { return slices.Contains(p.ops, j.Operation) })
		return fails(w.offered(j) || why.Elsewhere != elsewhere || why.Groups != a.policy.Groups, "workers offer it, or its hand is another")
	case sched.ReasonConcurrencyKey:
		for _, k := range j.Keys {
			if k.Key == why.Key {
				return fails(a.keys[k.Key] < k.Max || why.Value != a.keys[k.Key] || why.Bound != k.Max, "%d of %d are held", a.keys[k.Key], k.Max)
			}
		}
		return fmt.Errorf("it has no such key")
	case sched.ReasonRunningCap:
		return fails(a.held < a.policy.RunningMax || why.Value != a.held || why.Bound != a.policy.RunningMax, "%d are held", a.held)
	case sched.ReasonStartRate:
		s := a.policy.Starts
		if s.Jobs == 0 || int64(len(a.starts)) < s.Jobs {
			return fmt.Errorf("%d have started", len(a.starts))
		}
		return timed(a.starts[int64(len(a.starts))-s.Jobs].Add(s.Per))
	case sched.ReasonLimit, sched.ReasonOrganizationLimit:
		l := a.limit
		if why.Reason == sched.ReasonOrganizationLimit {
			l = a.org
		}
		if _, perhaps := l.blocks(w.now); !perhaps {
			return fmt.Errorf("its limit does not block")
		}
		return timed(epoch + cell.Instant(l.tag))
	case sched.ReasonOwnQueue:
		for _, o := range w.waits { // order-free: any will do
			if o != j && o.Lane == j.Lane {
				return nil
			}
		}
		return fmt.Errorf("it is alone in its lane")
	case sched.ReasonClassSlots, sched.ReasonReservation, sched.ReasonTurn, sched.ReasonNext:
		return fails(w.mayTake(j.Lane.Class.Index()) && w.free(j), "a slot is free for it")
	case sched.ReasonStopping, sched.ReasonHeldBack, sched.ReasonSuspended: // nothing is revoked, room is lent at once, no lane moves
		return fmt.Errorf("it cannot be in its way here")
	default:
		return fmt.Errorf("there is no such reason")
	}
}

func (w *world) offered(j *job) bool { return w.anyPool(j, func(*pool) bool { return true }) }

// free reports whether a slot is free that offers the job's operation.
func (w *world) free(j *job) bool {
	return w.anyPool(j, func(p *pool) bool { return p.busy < p.slots })
}

func (w *world) anyPool(j *job, is func(*pool) bool) bool {
	return slices.ContainsFunc(w.pools, func(p *pool) bool { return w.serves(p, j) && is(p) })
}
