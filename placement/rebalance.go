package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// HeldMax bounds what a plan says about what it leaves: beyond it there is nothing new to read.
const HeldMax = 50

const gib = 1 << 30

// hold says why something that would gain something is not in the plan.
func (p *Plan) hold(format string, args ...any) {
	switch len(p.Held) {
	case HeldMax:
	case HeldMax - 1:
		p.Held = append(p.Held, "and more")
	default:
		p.Held = append(p.Held, fmt.Sprintf(format, args...))
	}
}

// budget is what moves that begin now may still cost.
type budget struct {
	moves int
	bytes int64
}

// budgetOf takes what began in the period, and all that is still under way, from what a period may cost.
func budgetOf(cfg Config, now cell.Instant, pending []Move) budget {
	b := budget{moves: cfg.MovesMax, bytes: cfg.MoveBytesMax}
	for _, m := range pending {
		if m.Ended == 0 || now.Sub(m.Since) < cfg.MovePeriod {
			b.moves--
			b.bytes = less(b.bytes, max(0, m.Bytes))
		}
	}
	return b
}

func (b budget) covers(bytes int64) bool { return b.moves > 0 && (bytes <= 0 || bytes <= b.bytes) }

func (b *budget) spend(bytes int64) {
	b.moves--
	b.bytes -= bytes
}

// Rebalance plans the moves that gain enough for what they cost, within the budget: first tenants whose cell no longer is one that their rules
// allow; then whales to dedicated cells that are theirs, and tenants that no longer need one back to the pool; then tenants of the fullest cells,
// those first that relieve them of most for each byte. What would gain something and is not in the plan is in Held, with the reason. The snapshot
// stays as it is.
func (s *Snapshot) Rebalance() Plan {
	plan := Plan{Whales: s.Whales(), ImbalanceBefore: s.Imbalance()}
	var done trail
	left := s.budget
	done = s.mend(&plan, &left, done)
	done = s.rehouse(&plan, &left, done)
	done = s.level(&plan, &left, done)
	plan.ImbalanceAfter = s.Imbalance()
	done.undo()
	return plan
}

// mend moves tenants out of cells that their rules do not allow. The cool-down does not hold them: the rules changed after they came.
func (s *Snapshot) mend(plan *Plan, left *budget, done trail) trail {
	for i := range s.tenants {
		t := &s.tenants[i]
		if t.home == none || t.going != none {
			continue
		}
		f := s.broken(int32(i))
		if f == feasible {
			continue
		}
		why := fmt.Sprintf("%s is no cell for it: %s", s.cells[t.home].ID, s.rejected(t, t.home, f))
		if !left.covers(t.Bytes) {
			plan.hold("%s: %s; %s", t.ID, why, s.overspent(left, t))
			continue
		}
		d, undo := s.move(int32(i), ReasonRebalance, asked{except: t.home, reserve: true, keep: s.keep(), stay: none})
		if d.Target == "" {
			plan.hold("%s: %s; no other can take it", t.ID, why)
			continue
		}
		d.Text = why
		left.spend(t.Bytes)
		plan.Decisions, done = append(plan.Decisions, d), append(done, undo)
	}
	return done
}

// broken returns which rule a tenant's home breaks, amounts and the blast radius aside: those are levelled, or nothing can be done. Of tenants that
// are to be kept apart the one that comes first in the order of ids stays.
func (s *Snapshot) broken(i int32) filter {
	t := &s.tenants[i]
	c := &s.cells[t.home]
	switch {
	case c.Kind == KindDedicated && !named(t, c):
		return kind
	case t.Rules.Cell != "" && t.Rules.Cell != c.ID:
		return fixed
	case lacking(t.Rules, c.Cell) >= 0:
		return labels
	case s.crowds(i):
		return apart
	default:
		return feasible
	}
}

// crowds reports whether a tenant is where another of its group is that comes before it.
func (s *Snapshot) crowds(i int32) bool {
	t := &s.tenants[i]
	return t.apart != 0 && slices.ContainsFunc(s.cells[t.home].tenants, func(o int32) bool {
		return o < i && s.tenants[o].apart == t.apart && s.tenants[o].seat() == t.home
	})
}

// overspent says why the budget does not cover a tenant's move.
func (s *Snapshot) overspent(left *budget, t *tenantState) string {
	if left.moves <= 0 {
		return fmt.Sprintf("the budget of %d moves in %s is spent", s.cfg.MovesMax, formatDuration(s.cfg.MovePeriod))
	}
	return fmt.Sprintf("its %d bytes are more than the %d that are left of the budget of %d in %s",
		t.Bytes, max(0, left.bytes), s.cfg.MoveBytesMax, formatDuration(s.cfg.MovePeriod))
}

// cools returns until when a tenant stays where it came to; 0 when it may move.
func (s *Snapshot) cools(t *tenantState) cell.Instant {
	if until := t.Since.Add(s.cfg.CoolDown); t.Since != 0 && until > s.now {
		return until
	}
	return 0
}

// rehouse moves whales to dedicated cells, and tenants that no longer need one to the pool.
func (s *Snapshot) rehouse(plan *Plan, left *budget, done trail) trail {
	for _, w := range plan.Whales {
		why, only := ReasonWhale, KindDedicated
		switch w.Verdict {
		case VerdictWatch:
			continue
		case VerdictReturn:
			why, only = ReasonReturn, KindPooled
		case VerdictPropose:
		}
		i := s.tenant(w.Tenant)
		t := &s.tenants[i]
		if t.home == none || only == KindDedicated && !s.hasOwn(t) {
			continue // what is to be done about it is that somebody makes a cell for it
		}
		if until := s.cools(t); until != 0 {
			plan.hold("%s (%s): it came less than %s ago and stays until %s", t.ID, why, formatDuration(s.cfg.CoolDown), clock(until))
			continue
		}
		if !left.covers(t.Bytes) {
			plan.hold("%s (%s): %s", t.ID, why, s.overspent(left, t))
			continue
		}
		d, undo := s.move(int32(i), why, asked{except: t.home, only: only, reserve: true, keep: s.keep(), stay: none})
		if d.Target == "" {
			plan.hold("%s (%s): no %s cell can take it", t.ID, why, only)
			continue
		}
		d.Text = w.Text
		left.spend(t.Bytes)
		plan.Decisions, done = append(plan.Decisions, d), append(done, undo)
	}
	return done
}

// hasOwn reports whether an open dedicated cell is the tenant's.
func (s *Snapshot) hasOwn(t *tenantState) bool {
	return slices.ContainsFunc(s.cells, func(c cellState) bool {
		return c.Kind == KindDedicated && c.Phase == PhaseOpen && named(t, &c)
	})
}

// withheld counts why tenants of a cell that has too much do not move.
type withheld struct {
	moving, cooling, nowhere, gain, weight, budget, fixed int

	until cell.Instant // when the first of those that cool down may move
	best  float64      // the largest gain that is too small
	spent string
}

// level moves tenants out of the cells that have more than their share.
func (s *Snapshot) level(plan *Plan, left *budget, done trail) trail {
	stuck := make([]bool, len(s.cells))
	for {
		x := s.hottest(stuck)
		if x == none {
			return done
		}
		d, i, held := s.relieve(x, left)
		if d.Target == "" {
			stuck[x] = true
			s.explainHeld(plan, x, held)
			continue
		}
		left.spend(d.Bytes)
		again, undo := s.move(i, ReasonRebalance, asked{except: x, only: KindPooled, reserve: true, keep: s.keep(), stay: none})
		again.GainPerByte, again.Text = d.GainPerByte, d.Text
		plan.Decisions, done = append(plan.Decisions, again), append(done, undo)
	}
}

// hottest returns the pooled cell with the largest share that has too much, except those that are stuck; none when there is none.
func (s *Snapshot) hottest(stuck []bool) int {
	mean := s.mean()
	x := none
	for i := range s.cells {
		c := &s.cells[i]
		if c.Kind != KindPooled || stuck[i] || c.share <= mean*s.cfg.RebalanceOver || c.share < s.cfg.GainMin {
			continue
		}
		if x == none || c.share > s.cells[x].share {
			x = i
		}
	}
	return x
}

// mean returns the average share of the open pooled cells.
func (s *Snapshot) mean() float64 {
	n, total := 0, 0.0
	for i := range s.cells {
		if c := &s.cells[i]; c.Kind == KindPooled && c.Phase == PhaseOpen && i != s.closed {
			n, total = n+1, total+c.share
		}
	}
	return total / float64(max(1, n))
}

// relieve finds the tenant of a cell whose move gains most for each byte. Its decision has no target when there is none; then withheld says why.
func (s *Snapshot) relieve(x int, left *budget) (best Decision, of int32, held withheld) {
	bestGain := 0.0
	for _, i := range slices.Clone(s.cells[x].tenants) {
		t := &s.tenants[i]
		if t.home != x || t.going != none {
			held.moving++
			continue
		}
		if s.cells[x].dominant(t.top) < s.cfg.GainMin {
			held.gain++
			continue
		}
		if !s.mayMove(t, left, &held) {
			continue
		}
		target, gain := s.tryMove(i, x)
		perByte := gain / float64(max(t.Bytes, s.cfg.BytesMin))
		switch {
		case target == "":
			held.nowhere++
		case gain < s.cfg.GainMin:
			held.gain++
			held.best = max(held.best, gain)
		case perByte*gib < s.cfg.GainPerGiBMin:
			held.weight++
		case best.Target == "" || cmp.Or(cmp.Compare(perByte, best.GainPerByte), cmp.Compare(gain, bestGain)) > 0:
			bestGain, of = gain, i
			best = Decision{Tenant: t.ID, Target: target, Bytes: t.Bytes, GainPerByte: perByte, Text: fmt.Sprintf(
				"relieves %s of %.4f of its capacity, %.4f for each GiB", s.cells[x].ID, gain, perByte*gib)}
		}
	}
	return best, of, held
}

// mayMove reports whether nothing but what a move gains is to be looked at.
func (s *Snapshot) mayMove(t *tenantState, left *budget, held *withheld) bool {
	until := s.cools(t)
	switch {
	case t.Rules.Cell != "":
		held.fixed++
	case until != 0:
		held.cooling++
		if held.until == 0 || until < held.until {
			held.until = until
		}
	case !left.covers(t.Bytes):
		held.budget++
		held.spent = s.overspent(left, t)
	default:
		return true
	}
	return false
}

// tryMove returns where a tenant would go, and how much less the fuller of the two cells would have than the source has now.
func (s *Snapshot) tryMove(i int32, x int) (target cell.ID, gain float64) {
	before := s.cells[x].share
	was := s.tenants[i]
	s.seatAt(i, none, none, none)
	defer func() { s.seatAt(i, was.home, was.going, was.backup) }()
	ans := s.pick(&s.tenants[i], asked{except: x, only: KindPooled, reserve: true, keep: s.keep(), stay: none})
	if len(ans.best) == 0 {
		return "", 0
	}
	c := &s.cells[ans.best[0].cell]
	return c.ID, before - max(s.cells[x].share, c.after(&s.tenants[i]))
}

// explainHeld says why nothing more leaves a cell that has too much.
func (s *Snapshot) explainHeld(plan *Plan, x int, h withheld) {
	var why []string
	say := func(n int, format string, args ...any) {
		if n > 0 {
			why = append(why, fmt.Sprintf("%d ", n)+fmt.Sprintf(format, args...))
		}
	}
	say(h.moving, "on the move")
	say(h.fixed, "bound to it by their rules")
	say(h.cooling, "came less than %s ago, the first may move at %s", formatDuration(s.cfg.CoolDown), clock(h.until))
	say(h.budget, "beyond the budget: %s", h.spent)
	say(h.nowhere, "that no other cell can take")
	say(h.weight, "that gain less than %v for each GiB", s.cfg.GainPerGiBMin)
	say(h.gain, "that gain less than %v, %.4f at most", s.cfg.GainMin, h.best)
	c := &s.cells[x]
	plan.hold("%s has %.4f of its capacity, %.2f times the average; of its tenants %s",
		c.ID, c.share, c.share/max(s.mean(), 1e-9), strings.Join(why, "; "))
}

// clock writes an instant as people read it.
func clock(at cell.Instant) string { return at.Time().Format(time.RFC3339) }
