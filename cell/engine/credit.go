package engine

import (
	"math"
	"math/bits"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// inherited is what a lane's source said of its tenant. It is never changed once it is in the state.
type inherited struct {
	account   cell.TenantAccount
	starts    []cell.Instant
	estimates []operationEstimate
}

// share is what a lane's mode does to its tenant's credit. It is done after the entry's accounts were taken in, which are of before.
type share struct {
	lane        *Lane
	mode        cell.Mode // what the lane has become
	thousandths int32
	inherited   *inherited // of one that opens; nil when nothing was imported
}

// wholeShare is all of it.
const wholeShare = 1000

// applyShares moves what this entry moved. What a lane takes with it is a part of what there was at its fence, which is what its new home is told of:
// the tenant's other lane may spend in between.
func (s *State) applyShares() {
	for i, h := range s.shares {
		s.shares[i] = share{}
		l, t := h.lane, h.lane.Tenant
		part := max(0, min(h.thousandths, wholeShare))
		fenced := l.atFence
		l.atFence = cell.TenantAccount{}
		switch h.mode {
		case cell.ModeFenced:
			l.atFence = filled(t, s.time)
		case cell.ModeOpen:
			if h.inherited != nil {
				s.touchTenant(t)
				s.inherit(l, h.inherited, part)
			}
		case cell.ModeStandby, cell.ModeTombstone:
			if t.Policy.Credit.Max > 0 {
				s.touchTenant(t)
				t.Account = filled(t, s.time)
				t.Account.Credit = addCredit(t.Account.Credit, -portion(fenced.Credit, part))
			}
		case cell.ModeStaged:
		}
	}
	s.shares = s.shares[:0]
}

// inherit takes in what the source said of the tenant: instead of what is known of it here, or beside that while its other lane is here.
func (s *State) inherit(l *Lane, in *inherited, thousandths int32) {
	t := l.Tenant
	beside := l.other().holds()
	got := in.account
	got.Credit = portion(got.Credit, thousandths)
	if beside {
		a := filled(t, s.time)
		if got.CreditAt != 0 {
			a.Credit = addCredit(a.Credit, got.Credit)
			a.CreditAt = max(a.CreditAt, got.CreditAt)
		}
		a.LimitTag, a.CreditTag = max(a.LimitTag, got.LimitTag), max(a.CreditTag, got.CreditTag)
		got = a
	} else {
		t.starts = starts{}
	}
	t.Account = got
	if kept := startsKept(t); kept > 0 {
		t.starts = starts{at: union(t.starts.list(), in.starts)}
		t.starts.keep(kept)
	}
	for _, e := range in.estimates {
		if have := t.estimates.byOperation[e.operation]; have == nil {
			t.estimates.set(e.operation, e.estimate)
		} else if e.estimate.Samples > have.value.Samples {
			have.value = e.estimate
		}
	}
	for len(t.estimates.byOperation) > s.limits.estimates() {
		t.estimates.forget(t.estimates.oldest)
	}
}

// union returns what is in either of two rising lists, as often as it is in the one that has it more often: what a source told of twice counts
// once, and starts of one instant count each.
func union(a, b []cell.Instant) []cell.Instant {
	all := make([]cell.Instant, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			all, a = append(all, a[0]), a[1:]
		case b[0] < a[0]:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return append(append(all, a...), b...)
}

// filled returns the tenant's account with its credit as of now.
func filled(t *Tenant, now cell.Instant) cell.TenantAccount {
	a, credit := t.Account, t.Policy.Credit
	switch {
	case credit.Max == 0:
	case a.CreditAt == 0: // it was never spent
		a.Credit, a.CreditAt = credit.Max, now
	case a.CreditAt < now:
		more := scale(int64(now-a.CreditAt), int64(credit.Refill), int64(time.Second))
		a.Credit = min(addCredit(a.Credit, cell.Cost(more)), credit.Max)
		a.CreditAt = now
	}
	return a
}

// addCredit returns the sum of two credits, either of which may be a debt: it stops at the largest and the least there is.
func addCredit(a, b cell.Cost) cell.Cost {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}

// portion returns so many thousandths of a credit, which may be a debt.
func portion(c cell.Cost, thousandths int32) cell.Cost {
	if c < 0 {
		return -cell.Cost(scale(-int64(c), int64(thousandths), wholeShare))
	}
	return cell.Cost(scale(int64(c), int64(thousandths), wholeShare))
}

// scale returns a*b/c, and the largest number there is where that is above it. None of them is negative, and c is not 0.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// testament returns what is told of the tenant to where one of its lanes goes.
func (s *State) testament(l *Lane) inherited {
	t := l.Tenant
	in := inherited{account: filled(t, s.time), starts: t.starts.list()}
	if l.Mode == cell.ModeFenced {
		in.account = l.atFence
	}
	for op, e := range t.Estimates {
		in.estimates = append(in.estimates, operationEstimate{op, e})
	}
	return in
}
