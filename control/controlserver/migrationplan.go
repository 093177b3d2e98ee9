package controlserver

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// planLookMax bounds how long a plan waits for the cells: one that does not answer is one of its blockers.
const planLookMax = 3 * time.Second

// planMigrationID stands for the migration that a plan is of, which is nowhere else.
const planMigrationID cell.MigrationID = "mig_planned"

// PlanMigration implements MigrationService. Nothing is changed by it, in control or in any cell.
func (m migrationService) PlanMigration(
	ctx context.Context, req *fairleadv1.PlanMigrationRequest,
) (*fairleadv1.PlanMigrationResponse, error) {
	out, err := m.planMigration(ctx, req)
	if err == nil {
		err = m.verify(ctx)
	}
	if err != nil {
		return nil, m.fail(ctx, err)
	}
	return out, nil
}

func (s *Server) planMigration(ctx context.Context, req *fairleadv1.PlanMigrationRequest) (*fairleadv1.PlanMigrationResponse, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	t, err := s.tenant("tenant", req.GetTenant())
	if err != nil {
		return nil, err
	}
	options, err := optionsOf(req.GetOptions())
	if err != nil {
		return nil, err
	}
	view := s.machine.View()
	target, err := s.targetOf(r, view, t, req.GetTarget())
	if err != nil {
		return nil, err
	}
	homes := view.Homes(t.ID())
	record, err := migrate.New(migrate.Declaration{
		ID: planMigrationID, Tenant: t.ID(), Source: homes[0].Cell, Target: target, Reason: reasonOperator, Actor: s.actor(ctx), Options: options,
		Epochs: [2]cell.Epoch{homes[0].Epoch, homes[1].Epoch}, Now: s.instant(),
	})
	if err != nil {
		return nil, err
	}
	p := migrate.MakePlan(migrate.PlanInput{Record: record, Observed: s.lookAt(ctx, r, &record), Config: s.cfg.Migrate, Now: s.instant()})
	out := planOf(&record, p)
	if live, ok := view.MigrationOf(t.ID()); ok && !live.Done() {
		out.Blockers = append(out.Blockers, "the tenant is moving already, by migration "+string(live.ID))
	}
	return out, nil
}

func planOf(r *migrate.Record, p migrate.Plan) *fairleadv1.PlanMigrationResponse {
	out := &fairleadv1.PlanMigrationResponse{
		Tenant: string(r.Tenant), Source: string(r.Source), Target: string(r.Target), Gates: gateMessages(p.Gates), Blockers: p.Blockers, Jobs: p.Jobs,
		Bytes: p.Bytes, CopyTime: durationpb.New(p.CopyTime), Pause: durationpb.New(p.Pause),
	}
	for _, step := range p.Steps {
		out.Steps = append(out.Steps, &fairleadv1.PlannedStep{
			State: fairleadv1.MigrationState(step.State), Class: fairleadv1.Class(step.Class), Text: step.Text, Undo: step.Undo,
			Time: durationMessage(step.Time),
		})
	}
	return out
}

// lookAt returns how both cells of a migration stand now.
func (s *Server) lookAt(ctx context.Context, r *reign, m *migrate.Record) migrate.Observed {
	var (
		o   migrate.Observed
		all sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(ctx, planLookMax)
	defer cancel()
	for _, id := range []cell.ID{m.Source, m.Target} {
		at := o.Cell(m, id)
		all.Go(func() {
			answer, err := s.cfg.Dialer.Lanes(id, r.agentsOf(id)).GetLanes(ctx, &fairleadv1.GetLanesRequest{Tenant: string(m.Tenant)})
			if now := s.instant(); err != nil || s.cfg.Seen == nil {
				at.Since = now
			} else {
				*at = s.cfg.Seen(answer)
				at.At, at.Baseline = now, at.AnswerP99
			}
		})
	}
	o.Gates = s.moveGates(ctx, r, m)
	all.Wait()
	return o
}

// durationMessage returns nil for none.
func durationMessage(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
