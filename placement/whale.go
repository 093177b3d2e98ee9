package placement

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Signal says what makes a tenant a whale.
type Signal string

// The signals of whales.
const (
	SignalShare       Signal = "share"       // it is a large part of its cell's load
	SignalLimits      Signal = "limits"      // it reaches its limits every day
	SignalReservation Signal = "reservation" // no pooled cell can hold its reservation
)

// Verdict says what to do about a whale.
type Verdict string

// The verdicts.
const (
	VerdictWatch   Verdict = "watch"   // not for long enough yet
	VerdictPropose Verdict = "propose" // give it a dedicated cell
	VerdictReturn  Verdict = "return"  // it has one and could go back to the pool
)

// Whale is a tenant that is too large for a pool, or that was.
type Whale struct {
	Tenant  cell.TenantID
	Cell    cell.ID // its home; empty for none
	Share   float64 // its share of the cell's load, in the hour in which that is largest; of a pooled cell's capacity for one that may return
	Signal  Signal
	Since   cell.Instant // since when the signal is seen; 0 when that is not known
	Verdict Verdict
	Text    string
}

// Whales returns the tenants that are too large for a pool, and those with a dedicated cell that no longer are, in the order of their ids. It goes by
// what was measured, and by promises. There is hysteresis without memory: what makes a whale must last for hours or days, and what lets it return
// is far below that and must last for longer.
func (s *Snapshot) Whales() []Whale {
	promised := make([]int64, len(s.cells))
	for i := range s.tenants {
		if t := &s.tenants[i]; t.seat() != none {
			promised[t.seat()] += min(AmountMax, max(0, int64(t.Reserved)))
		}
	}
	var whales []Whale
	for i := range s.tenants {
		t := &s.tenants[i]
		if t.going != none {
			continue
		}
		w := Whale{Tenant: t.ID}
		if t.home != none {
			w.Cell = s.cells[t.home].ID
		}
		var found bool
		if t.home != none && s.cells[t.home].Kind == KindDedicated {
			found = s.returns(t, promised, &w)
		} else {
			found = s.outgrows(t, promised, &w)
		}
		if found {
			whales = append(whales, w)
		}
	}
	return whales
}

// outgrows looks for the signals of a whale; what is to be proposed goes before what is to be watched.
func (s *Snapshot) outgrows(t *tenantState, promised []int64, w *Whale) bool {
	if len(s.classes[t.class].open) > 0 && !s.promisable(t, promised) {
		w.Signal, w.Verdict = SignalReservation, VerdictPropose
		w.Text = fmt.Sprintf("no pooled cell that it may be in can promise it %s beside what others are promised", t.Reserved)
		w.Share, _, _ = s.sharing(t)
		return true
	}
	share, hours, since := s.sharing(t)
	days, first := s.limited(t)
	w.Share = share
	bySharing := hours >= (s.cfg.WhaleHours+1)/2
	byLimits := days >= (s.cfg.WhaleLimitedDays+1)/2
	switch {
	case hours >= s.cfg.WhaleHours, bySharing && days < s.cfg.WhaleLimitedDays:
		w.Signal, w.Since, w.Verdict = SignalShare, since, verdict(hours, s.cfg.WhaleHours)
		w.Text = fmt.Sprintf("has %.0f %% of the load of %s or more, for %d hours in a row, of %d that make a whale%s",
			s.cfg.WhaleShare*100, w.Cell, hours, s.cfg.WhaleHours, s.cfg.Hour.note())
	case byLimits:
		w.Signal, w.Since, w.Verdict = SignalLimits, first, verdict(days, s.cfg.WhaleLimitedDays)
		w.Text = fmt.Sprintf("reached its limits on %d days in a row, of %d that make a whale%s", days, s.cfg.WhaleLimitedDays, s.cfg.Hour.note())
	default:
		return false
	}
	return true
}

func verdict(lasted, enough int) Verdict {
	if lasted >= enough {
		return VerdictPropose
	}
	return VerdictWatch
}

// promisable reports whether a pooled cell can promise the tenant its reservation beside what it promises others.
func (s *Snapshot) promisable(t *tenantState, promised []int64) bool {
	if t.Reserved <= 0 {
		return true
	}
	for _, i := range s.classes[t.class].open {
		others := promised[i]
		if t.home == int(i) {
			others -= int64(t.Reserved)
		}
		if int64(t.Reserved) <= int64(s.cells[i].bound.Compute)-others {
			return true
		}
	}
	return false
}

// sharing returns the tenant's largest share of its cell's load in the last 24 hours, for how many hours in a row it was enough for a whale,
// and since when.
func (s *Snapshot) sharing(t *tenantState) (share float64, hours int, since cell.Instant) {
	if t.home == none {
		return 0, 0, 0
	}
	c := &s.cells[t.home]
	now := s.cfg.Hour.Of(s.now)
	run := 0
	for hour := max(1, now-HoursPerDay); hour < now; hour++ {
		slot := &t.Profile.Hours[hour%HoursPerDay]
		of := 0.0
		if slot.Hour == hour {
			of = c.shareOf(slot.Average.Max(slot.P95), int(hour%HoursPerDay), s.cfg.WhaleFloor)
		}
		share = max(share, of)
		if of < s.cfg.WhaleShare {
			run = 0
			continue
		}
		if run++; run > hours {
			hours, since = run, s.cfg.Hour.instantOf(hour-int64(run)+1)
		}
	}
	return share, hours, since
}

// shareOf returns the largest share that l is of the cell's load in an hour, over the resources of which it is at least floor of the capacity.
func (c *cellState) shareOf(l Load, hour int, floor float64) float64 {
	share := 0.0
	for r := range resources {
		n, all := float64(l.amount(r)), float64(c.settled[hour].amount(r))
		if n > 0 && all > 0 && n*c.inverse[r] >= floor {
			share = max(share, min(1, n/all))
		}
	}
	return share
}

// limited returns on how many days in a row, up to today or yesterday, the tenant was refused because of its limits, and when the first began.
func (s *Snapshot) limited(t *tenantState) (days int, first cell.Instant) {
	today := s.cfg.Hour.Of(s.now) / HoursPerDay
	hit := func(day int64) bool {
		if day <= 0 {
			return false
		}
		d := &t.Profile.Days[day%DaysKept]
		return d.Day == day && d.Limited > 0
	}
	day := today
	if !hit(day) {
		day--
	}
	for ; days < DaysKept && hit(day); day-- {
		days++
		first = s.cfg.Hour.instantOf(day * HoursPerDay)
	}
	return days, first
}

// returns looks whether a tenant with a dedicated cell was small for long enough.
func (s *Snapshot) returns(t *tenantState, promised []int64, w *Whale) bool {
	pool := s.smallest(t)
	since := s.cfg.Hour.Of(s.now)/HoursPerDay - int64(s.cfg.ReturnDays)
	long := time.Duration(s.cfg.ReturnDays) * HoursPerDay * s.cfg.Hour.Length()
	if pool == (Load{}) || t.Since.Add(long) > s.now || since <= 0 || !s.promisable(t, promised) {
		return false
	}
	for day := since; day < since+int64(s.cfg.ReturnDays); day++ { // whole days: today is not over
		d := &t.Profile.Days[day%DaysKept]
		if d.Day != day || d.Limited > 0 {
			return false
		}
		w.Share = max(w.Share, d.Peak.Dominant(pool))
	}
	today := &t.Profile.Days[(since+int64(s.cfg.ReturnDays))%DaysKept]
	if today.Day == since+int64(s.cfg.ReturnDays) {
		w.Share = max(w.Share, today.Peak.Dominant(pool))
	}
	if w.Share >= s.cfg.ReturnShare || float64(t.Reserved) >= s.cfg.ReturnShare*float64(pool.Compute) {
		return false
	}
	w.Signal, w.Verdict, w.Since = SignalShare, VerdictReturn, s.cfg.Hour.instantOf(since*HoursPerDay)
	w.Text = fmt.Sprintf("would have had %.1f %% of the smallest pooled cell at most, for %d days, and reached no limit%s", w.Share*100, s.cfg.ReturnDays, s.cfg.Hour.note())
	if t.Rules.Cell != "" {
		w.Text += "; its rules name " + string(t.Rules.Cell)
	}
	return true
}

// smallest returns the least capacity, resource by resource, of the open pooled cells that have the labels that a tenant requires, whatever cell its
// rules name; 0 when there is none.
func (s *Snapshot) smallest(t *tenantState) Load {
	least := Load{Compute: math.MaxInt64, Jobs: math.MaxInt64, Bytes: math.MaxInt64}
	found := false
	for i := range s.cells {
		c := s.cells[i].Cell
		if c.Kind != KindPooled || static(Rules{Require: t.Rules.Require}, c) != feasible {
			continue
		}
		found = true
		by := scored(s.cfg, c.Capacity.bounded())
		least = Load{Compute: min(least.Compute, by.Compute), Jobs: min(least.Jobs, by.Jobs), Bytes: min(least.Bytes, by.Bytes)}
	}
	if !found {
		return Load{}
	}
	return least
}
