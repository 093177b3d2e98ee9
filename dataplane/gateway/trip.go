package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
)

const (
	// answerTime is how long before its caller's deadline a request gives up waiting, so that the answer arrives.
	answerTime = 100 * time.Millisecond
	// againMin and againMax bound how long a request waits before it asks again where nothing says that anything has changed: twice as long each
	// time. The first is short, because a cell that was made a lane's home a moment ago opens it without anybody being told.
	againMin = 20 * time.Millisecond
	againMax = 500 * time.Millisecond
)

// errNowhereElse is returned when what one home of a tenant has not found cannot be at another.
var errNowhereElse = errors.New("gateway: no other cell can have it")

// trip is a request on its way to the cells that have its lanes, which may be others each time it asks. One goroutine uses it.
type trip struct {
	f      *Forwarder
	c      *call
	tenant cell.TenantID // whose lanes they are
	until  time.Time     // it waits no longer; zero before it first waits
	delay  time.Duration // of the last wait

	refused [2]cell.ID // by class: who refused it last
	missed  []cell.ID  // who has not found it, while the lanes were where absent says
	absent  route.Lane
}

// lane returns where the tenant's lanes are at home now, as far as is known.
func (t *trip) lane() route.Lane {
	l, _ := t.f.cfg.Routes().Lane(t.tenant)
	return l
}

// refuse takes in that a cell has done nothing because of the class's lane, or of both for class 0.
func (t *trip) refuse(by cell.ID, class cell.Class) {
	for _, c := range cell.Classes() {
		if class == 0 || class == c {
			t.refused[c.Index()] = by
		}
	}
}

// refuseAll takes in that a cell has done nothing that was asked for the lanes of the classes for which to names it.
func (t *trip) refuseAll(by cell.ID, to [2]cell.ID) {
	for i := range to {
		if to[i] == by {
			t.refused[i] = by
		}
	}
}

// served takes in that a call which began then was answered. One that was held for long may wait as long again for the next move.
func (t *trip) served(began time.Time) {
	if time.Since(began) > t.f.cfg.ParkMax {
		t.until, t.delay = time.Time{}, 0
	}
}

// targets returns, for some of the classes asked for, the cell that is to have their lanes next: the home, which it may know to be another than who
// has just refused. It waits while all of them have been refused by the homes that are known, and then names those again. It returns the refusal of
// the request when that takes too long.
func (t *trip) targets(ctx context.Context, wanted [2]bool) (to [2]cell.ID, err error) {
	for waited := false; ; waited = true {
		table := t.f.cfg.Routes()
		lane, _ := table.Lane(t.tenant)
		some := false
		for _, class := range cell.Classes() {
			i := class.Index()
			home, _ := lane.Home(class)
			if _, ok := table.Cell(home); ok && wanted[i] && (waited || home != t.refused[i]) {
				to[i], some = home, true
			}
		}
		if some {
			return to, nil
		}
		if err := t.wait(ctx, lane); err != nil {
			return to, err
		}
	}
}

// target returns the cell that is to have the class's lane next, as targets does.
func (t *trip) target(ctx context.Context, class cell.Class) (cell.ID, error) {
	var wanted [2]bool
	wanted[class.Index()] = true
	to, err := t.targets(ctx, wanted)
	return to[class.Index()], err
}

// next returns where a request about one thing goes after a cell has said n. It returns errNowhereElse when that cell's answer is the last word.
func (t *trip) next(ctx context.Context, by cell.ID, n notice) (cell.ID, error) {
	t.refuse(by, n.class)
	switch {
	case n.absent():
		return t.other(ctx, by, n.epoch)
	case n.class == 0:
		return t.target(ctx, cell.ClassInteractive)
	default:
		return t.target(ctx, n.class)
	}
}

// other returns the tenant's home that has not been asked yet for what by has not found, while it knew of a lane of that epoch elsewhere. When all
// have been, and that lane is newer than what is known here, it waits for better knowledge and begins again.
func (t *trip) other(ctx context.Context, by cell.ID, epoch cell.Epoch) (cell.ID, error) {
	lane := t.lane()
	if lane != t.absent {
		t.absent, t.missed = lane, nil
	}
	t.missed = append(t.missed, by)
	for _, class := range cell.Classes() {
		if home, _ := lane.Home(class); !slices.Contains(t.missed, home) {
			return t.reachable(ctx, class)
		}
	}
	if newest(lane) >= epoch {
		return "", errNowhereElse
	}
	if err := t.wait(ctx, lane); err != nil {
		return "", err
	}
	t.missed = nil
	return t.reachable(ctx, cell.ClassInteractive)
}

// reachable returns the class's home, whoever has refused it.
func (t *trip) reachable(ctx context.Context, class cell.Class) (cell.ID, error) {
	t.refused[class.Index()] = ""
	return t.target(ctx, class)
}

// wait lets time pass until the tenant's lanes are elsewhere than known says, or it is time to ask again whatever is known. It returns the
// refusal when that takes too long, or too many wait. What is held for the request meanwhile counts as waiting and not as a cell's.
func (t *trip) wait(ctx context.Context, known ...route.Lane) error {
	now := time.Now()
	if t.until.IsZero() {
		t.until = now.Add(t.f.cfg.ParkMax)
		if deadline, ok := ctx.Deadline(); ok && deadline.Add(-answerTime).Before(t.until) {
			t.until = deadline.Add(-answerTime)
		}
	}
	left := t.until.Sub(now)
	if left <= 0 {
		return refuseMoving(t.tenant)
	}
	t.c.drop()
	bytes := int64(cap(t.c.body))
	if err := t.f.waiting.enter(t.tenant, bytes); err != nil {
		return err
	}
	defer t.f.waiting.leave(t.tenant, bytes)
	t.delay = min(max(2*t.delay, againMin), againMax)
	timer := time.NewTimer(min(left, t.delay/2+rand.N(t.delay/2+1)))
	defer timer.Stop()
	for {
		var changed <-chan struct{}
		if t.f.cfg.Changed != nil {
			changed = t.f.cfg.Changed()
		}
		if t.changed(known) {
			t.delay = 0 // the new home may be about to open the lane
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return refuseMoving(t.tenant)
		}
	}
}

// changed reports whether one of the lanes is elsewhere now.
func (t *trip) changed(known []route.Lane) bool {
	table := t.f.cfg.Routes()
	return slices.ContainsFunc(known, func(l route.Lane) bool {
		now, ok := table.Lane(l.Tenant)
		return ok && now != l
	})
}
