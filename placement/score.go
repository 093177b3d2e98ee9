package placement

import (
	"cmp"
	"math"
)

// choice is a feasible cell and its score.
type choice struct {
	cell   int
	score  float64
	after  float64 // the share that the cell would have
	tie    uint64
	backup int
}

// better orders choices: the higher score first. Equal scores are common, between cells without anything in them, and then a hash of both names
// decides, so that not everybody goes to the first cell; and then the name.
func better(a, b *choice) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.tie, b.tie), cmp.Compare(a.cell, b.cell))
}

// noise is what scores that are meant to be equal may differ by: they are sums of floating-point numbers in different cells.
const noise = 1e-9

// exact rounds a score so that those that are meant to be equal are.
func exact(score float64) float64 { return math.Round(score/noise) * noise }

// after returns the dominant share that the cell would have, in its largest hour, with the tenant.
func (c *cellState) after(t *tenantState) float64 {
	var top Load
	for h := range t.day {
		a, b := &c.settled[h], &t.day[h]
		top.Compute = max(top.Compute, a.Compute+b.Compute)
		top.Jobs = max(top.Jobs, a.Jobs+b.Jobs)
		top.Bytes = max(top.Bytes, a.Bytes+b.Bytes)
	}
	return c.dominant(top)
}

// atLeast is a lower bound of after: what the cell has, and what it would have in the hours in which the tenant has most.
func (c *cellState) atLeast(t *tenantState) float64 {
	return max(c.share, c.dominant(Load{
		Compute: c.settled[t.topHour[compute]].Compute + t.top.Compute,
		Jobs:    c.settled[t.topHour[jobs]].Jobs + t.top.Jobs,
		Bytes:   c.settled[t.topHour[bytes]].Bytes + t.top.Bytes,
	}))
}

// score weighs a cell for a tenant with which it would have the share after. It does not rise with after.
//
// Small tenants go where it is fullest, so that room for large ones stays whole; large ones where it is emptiest. Neither goes above the average
// of the cells that could have it, as it would be with the tenant, and the tolerance: balance outweighs the rest there. Hours is how little of
// the tenant's own peak comes on top of the cell's: 1 when it fits into the cell's quiet hours, 0 when both peak at once. A dedicated cell is no part
// of the balance.
func (s *Snapshot) score(t *tenantState, i int, after float64, of *pool) float64 {
	c := &s.cells[i]
	size := c.dominant(t.top)
	by := &s.cfg.Weights
	score := by.Fit*of.fit(c.share, size) + by.Hours*hours(c.share, after, size)
	if i == of.stay {
		score += by.Stability
	}
	if c.kind == KindDedicated {
		return score + by.Dedicated
	}
	return score + by.Balance*of.balance(after, size)
}

// weigh returns each part of a score from 0 to 1, balance 0 or less, before weighing.
func (s *Snapshot) weigh(t *tenantState, i int, after float64, of *pool) Weights {
	c := &s.cells[i]
	size := c.dominant(t.top)
	w := Weights{Fit: of.fit(c.share, size), Hours: hours(c.share, after, size)}
	if i == of.stay {
		w.Stability = 1
	}
	if c.kind == KindDedicated {
		w.Dedicated = 1
	} else {
		w.Balance = of.balance(after, size)
	}
	return w
}

func (p *pool) fit(share, size float64) float64 {
	large, full := clamp((size-p.small)*p.steep), clamp(share)
	return full + large*(1-2*full) // (1-large) full + large (1-full)
}

func (p *pool) balance(after, size float64) float64 {
	if over := after - (p.total+size)*p.line; over > 0 {
		return -over
	}
	return 0
}

func hours(share, after, size float64) float64 {
	if over := after - share; over > 0 { // then size is above 0 too
		return clamp(1 - over/size)
	}
	return 1
}

func clamp(f float64) float64 {
	if f < 0 {
		return 0
	}
	if f > 1 {
		return 1
	}
	return f
}

// pool is what the scores of a tenant's cells have in common.
type pool struct {
	total float64 // of the shares of the open cells that the tenant's rules allow
	line  float64 // what part of the total a cell may have, the tolerance included
	small float64 // up to which size a tenant is small
	steep float64 // how fast a size goes from small to large
	stay  int     // the cell that the tenant is in already; none for none
}

func (s *Snapshot) poolOf(t *tenantState, stay int) *pool {
	p := &pool{stay: stay, small: s.cfg.Small, steep: 1 / (s.cfg.Large - s.cfg.Small)}
	cells := 0
	for _, i := range s.classes[t.class].open {
		if int(i) != s.closed {
			p.total += s.shares[i]
			cells++
		}
	}
	p.line = (1 + s.cfg.Tolerance) / float64(max(1, cells))
	return p
}
