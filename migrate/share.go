package migrate

import "github.com/fairlead/fairlead/cell"

// Whole is a share of everything, in thousandths.
const Whole = 1000

// Split divides what a tenant is promised between two cells: the target has thousandths of each rate, of the credit, the running and the starting jobs, the
// source what is left. The sums are never above p's, and each part is a policy that a cell takes. A bound that is there for the tenant is there in both cells:
// where a part of it would be 0, which is no bound, that is the least that there is; only for a bound of 1 is the sum above it. What bounds each lane by itself,
// and the weight, is not divided.
func Split(p cell.TenantPolicy, thousandths int) (source, target cell.TenantPolicy) {
	source, target = p, p
	for i := range p.Reservation {
		source.Reservation[i], target.Reservation[i] = divide(p.Reservation[i], thousandths)
	}
	source.Limit, target.Limit = divideBound(p.Limit, thousandths)
	source.Credit.Max, target.Credit.Max = divide(p.Credit.Max, thousandths)
	source.Credit.Refill, target.Credit.Refill = divide(p.Credit.Refill, thousandths)
	source.Credit.Extra, target.Credit.Extra = divide(p.Credit.Extra, thousandths)
	source.RunningMax, target.RunningMax = divideBound(p.RunningMax, thousandths)
	source.Starts.Jobs, target.Starts.Jobs = divideBound(p.Starts.Jobs, thousandths)
	fit(&source)
	fit(&target)
	return source, target
}

// fit lowers what does not fit in a part of a policy, because parts are rounded one by one.
func fit(p *cell.TenantPolicy) {
	if p.Credit.Max == 0 || p.Credit.Extra == 0 {
		p.Credit = cell.Credit{}
	}
	if p.Limit == 0 {
		return
	}
	left := p.Limit
	for i := range p.Reservation {
		p.Reservation[i] = min(p.Reservation[i], left)
		left -= p.Reservation[i]
	}
}

func divide[T ~int64](whole T, thousandths int) (source, target T) {
	k := T(min(max(thousandths, 0), Whole))
	target = whole/Whole*k + whole%Whole*k/Whole
	return whole - target, target
}

// divideBound divides what bounds when it is above 0.
func divideBound[T ~int64](whole T, thousandths int) (source, target T) {
	source, target = divide(whole, thousandths)
	switch {
	case whole <= 0:
	case target == 0:
		source, target = max(whole-1, 1), 1
	case source == 0:
		source, target = 1, max(whole-1, 1)
	}
	return source, target
}

// Shares returns how much of what a tenant is promised the target goes by now, in thousandths, and whether the classes are apart, or may be before anybody hears of
// it: only then is anything divided. Else the cell that serves has all of it.
func Shares(r *Record) (target int, apart bool) {
	there, between := 0, false
	for i := range r.Lanes {
		l := &r.Lanes[i]
		between = between || !l.resting()
		if l.Owner == r.Target {
			there++
		}
	}
	switch {
	case between || there == 1:
		return Whole / 2, true
	case there == 0:
		return 0, false
	default:
		return Whole, false
	}
}

// Policies returns what each of the two cells is to be told of the tenant's promise, and whether it is to be told at all. The target is told with the lane that
// is staged and after that; a cell that is being emptied is not told any more: a policy would open its lanes again.
func (r *Record) Policies(p cell.TenantPolicy) (source, target cell.TenantPolicy, toSource, toTarget bool) {
	source, target = p, p
	if share, apart := Shares(r); apart {
		source, target = Split(p, share)
		r.reserve(p, &source, &target)
	}
	switch r.State {
	case Declared, Admitted, Provisioned, Aborting, Aborted, RolledBack:
		return source, target, true, false
	case Seeding, CatchingUp, Shadowing, Ready, Ramping, CutOver:
		return source, target, true, true
	case Draining, Released:
		return source, target, false, true
	case Reversing:
		return source, target, true, r.Lanes[0].Owner == r.Target || r.Lanes[1].Owner == r.Target
	default:
		return source, target, true, false
	}
}

// reserve gives each class's reservation to the cell that has the class: it is of one class, and cannot be used where that is not. Of the limit each cell has what
// it reserves, and its share of the rest.
func (r *Record) reserve(p cell.TenantPolicy, source, target *cell.TenantPolicy) {
	source.Reservation, target.Reservation = p.Reservation, p.Reservation
	for i := range r.Lanes {
		if r.Lanes[i].Owner == r.Target {
			source.Reservation[i] = 0
		} else {
			target.Reservation[i] = 0
		}
	}
	if p.Limit == 0 {
		return
	}
	at, all := target.Reservation[0]+target.Reservation[1], p.Reservation[0]+p.Reservation[1]
	_, rest := divide(p.Limit-all, Whole/2)
	target.Limit = min(max(at+rest, 1), max(p.Limit-1, 1))
	source.Limit = max(p.Limit-target.Limit, 1)
	fit(source)
	fit(target)
}
