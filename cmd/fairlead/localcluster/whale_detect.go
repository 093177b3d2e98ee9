package localcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// errUndetected is returned when control has not begun to move the whale. The demonstration does not do it instead: it would show what nobody has seen.
var errUndetected = fmt.Errorf("control has not found the whale within %v", detectMax)

// detect shows what placement says of the whale until control has begun to move it.
func (w *whaleShow) detect(ctx context.Context, r *WhaleReport) error {
	bound, cancel := context.WithTimeoutCause(ctx, detectMax, errUndetected)
	defer cancel()
	began, asked, told := time.Now(), time.Time{}, ""
	earlier, err := w.latest(bound)
	for err == nil {
		var m *fairleadv1.Migration
		if m, err = w.latest(bound); err == nil && m != nil && m.GetId() != earlier.GetId() {
			w.found(m, time.Since(began), r)
			return nil
		}
		if err == nil && time.Since(asked) >= detectPoll {
			asked = time.Now()
			var said string
			if said, err = w.asks(bound, r); said != "" && said != told {
				told = said
				w.board.sayf("%s", told)
			}
		}
		if err == nil {
			err = client.Pause(bound, movePoll)
		}
	}
	if ctx.Err() == nil && errors.Is(context.Cause(bound), errUndetected) {
		return fmt.Errorf("%w; the last of placement about it: %q", errUndetected, told)
	}
	return fmt.Errorf("waiting for control to find the whale: %w", err)
}

// latest returns the whale's latest migration, or nil when it has had none.
func (w *whaleShow) latest(ctx context.Context) (m *fairleadv1.Migration, err error) {
	err = w.call(ctx, func(ctx context.Context) error {
		resp, err := w.migrations.GetMigration(ctx, &fairleadv1.GetMigrationRequest{Tenant: whaleName})
		m = resp.GetMigration()
		return err
	})
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil, nil
	}
	return m, err
}

// asks returns what placement says of the whale now, if anything, and notes the pause that a plan for it predicts.
func (w *whaleShow) asks(ctx context.Context, r *WhaleReport) (said string, err error) {
	var resp *fairleadv1.PlanPlacementResponse
	err = w.call(ctx, func(ctx context.Context) (err error) {
		resp, err = w.placement.PlanPlacement(ctx, &fairleadv1.PlanPlacementRequest{})
		return err
	})
	for _, found := range resp.GetPlan().GetWhales() {
		if found.GetTenant() == whaleName {
			said = fmt.Sprintf("placement (%s): the tenant %s %s", found.GetVerdict(), whaleName, found.GetText())
		}
	}
	if err != nil || said == "" {
		return "", err
	}
	var plan *fairleadv1.PlanMigrationResponse
	err = w.call(ctx, func(ctx context.Context) (err error) {
		plan, err = w.migrations.PlanMigration(ctx, &fairleadv1.PlanMigrationRequest{Tenant: whaleName, Target: whaleCell})
		return err
	})
	if connect.CodeOf(err) == connect.CodeFailedPrecondition { // it moves already
		return said, nil
	}
	if d := plan.GetPause().AsDuration(); d > 0 {
		r.predicted = d
	}
	return said, err
}

// found notes and tells by what the whale was found, by whom, and after how long.
func (w *whaleShow) found(m *fairleadv1.Migration, after time.Duration, r *WhaleReport) {
	r.migration, r.detected, r.detectedAfter = m, why(m), after
	w.board.sayf("%s", detectedText(m, r.detected))
	w.board.sayf("%s begins to move it to %s by itself, %s after the flood began", m.GetActor(), m.GetTarget(), seconds(after))
}

// why is why a migration was begun: the first of its events says so.
func why(m *fairleadv1.Migration) string {
	for _, e := range m.GetEvents() {
		if e.GetWhy() != "" {
			return e.GetWhy()
		}
	}
	return "is moved for the reason " + m.GetReason()
}
