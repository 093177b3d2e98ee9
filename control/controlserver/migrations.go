package controlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	migrationIDPrefix = "mig_"
	listMigrations    = "migrations"
	// reasonOperator is why an operator moves a tenant who does not say why.
	reasonOperator = "operator"
	// controlAttempts is how often what an operator asks for is decided anew when the migration has gone on meanwhile.
	controlAttempts = 10
	// timeLeftMax bounds what is foretold: a year, in seconds.
	timeLeftMax = 365 * 24 * 3600.0
	// heldByOperator is why a migration is held that an operator paused and did not say why.
	heldByOperator = "paused by the operator"
)

// migrationService is the server as MigrationService: it moves tenants between cells while they run.
type migrationService struct{ *Server }

// Migrations returns what answers MigrationService.
func (s *Server) Migrations() fairleadv1connect.MigrationServiceHandler { return migrationService{s} }

// StartMigration implements MigrationService. It answers once the migration is declared; whoever drives it then does so by itself.
func (m migrationService) StartMigration(
	ctx context.Context, req *fairleadv1.StartMigrationRequest,
) (*fairleadv1.StartMigrationResponse, error) {
	of, created, err := m.start(ctx, req)
	if err != nil {
		return nil, m.fail(ctx, err)
	}
	return &fairleadv1.StartMigrationResponse{Migration: migrationMessage(of, true), Created: created}, nil
}

func (s *Server) start(ctx context.Context, req *fairleadv1.StartMigrationRequest) (migrate.Record, bool, error) {
	r, err := s.reigning()
	if err != nil {
		return migrate.Record{}, false, err
	}
	t, err := s.tenant("tenant", req.GetTenant())
	if err != nil {
		return migrate.Record{}, false, err
	}
	reason, err := reasonOf(req.GetReason())
	if err != nil {
		return migrate.Record{}, false, err
	}
	options, err := optionsOf(req.GetOptions())
	if err != nil {
		return migrate.Record{}, false, err
	}
	for attempt := 1; ; attempt++ {
		view := s.machine.View()
		if live, ok := view.MigrationOf(t.ID()); ok && !live.Done() && (req.GetTarget() == "" || req.GetTarget() == string(live.Target)) {
			return live.Record, false, s.verify(ctx)
		}
		target, err := s.targetOf(r, view, t, req.GetTarget())
		if err != nil {
			return migrate.Record{}, false, err
		}
		c, err := s.declare(view, t.ID(), target, reason, s.actor(ctx), options)
		if err != nil {
			return migrate.Record{}, false, err
		}
		of, err := s.begin(ctx, r, c.Actor, c)
		if err == nil {
			return of, true, nil
		}
		if !startAgain(err, target) || attempt == placeAttempts {
			return migrate.Record{}, false, err
		}
	}
}

// reasonOf returns why a tenant is to move.
func reasonOf(reason string) (string, error) {
	known := []string{
		reasonOperator, string(placement.ReasonWhale), string(placement.ReasonEvacuate), string(placement.ReasonReturn), string(placement.ReasonRebalance),
	}
	if reason = cmp.Or(reason, reasonOperator); !slices.Contains(known, reason) {
		return "", &cell.FieldError{
			Field: "reason", Problem: fmt.Sprintf("is %.60q", reason), Remedy: "use one of " + strings.Join(known, ", ") + ", or leave it out",
		}
	}
	return reason, nil
}

// startAgain reports whether a start was refused because of something that came between: somebody else was first, or what it was decided on is not so
// any more.
func startAgain(err error, target cell.ID) bool {
	if exists, ok := errors.AsType[*state.MigrationExistsError](err); ok {
		return exists.Target == target
	}
	_, stale := errors.AsType[*state.StaleError](err)
	return stale
}

// begin commits the start of a migration, and has its tenant's cells told.
func (s *Server) begin(ctx context.Context, r *reign, actor string, c command.StartMigration) (migrate.Record, error) {
	res, err := s.proposeAs(ctx, actor, c)
	if err != nil {
		return migrate.Record{}, err
	}
	s.cfg.Log.InfoContext(ctx, "migration declared", "migration", string(c.ID), "tenant", string(c.Tenant), "source", string(c.Source),
		"target", string(c.Target), "reason", c.Reason)
	r.look()
	return res.Migration.Record, nil
}

// declare returns the command that declares a migration of a tenant from where it is.
func (s *Server) declare(
	v state.View, tenant cell.TenantID, target cell.ID, reason, actor string, o migrate.Options,
) (command.StartMigration, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return command.StartMigration{}, err
	}
	homes := v.Homes(tenant)
	c := command.StartMigration{
		ID: cell.MigrationID(migrationIDPrefix + id.String()), Tenant: tenant, Source: homes[0].Cell, Target: target, Reason: reason, Actor: actor,
		Options: o, Order: migrate.DefaultOrder(), Expect: [2]cell.Epoch{homes[0].Epoch, homes[1].Epoch}, Time: s.instant(),
	}
	if home, ok := v.Cell(target); ok {
		c.TargetGeneration = home.Generation
		if home.Groups > 0 {
			c.Groups = reconcile.Hand(tenant, home)
		}
	}
	return c, nil
}

// targetOf returns the cell that a tenant is to go to: the one that is named, or the best beside its own.
func (s *Server) targetOf(r *reign, v state.View, t state.Tenant, name string) (cell.ID, error) {
	if s.shared != nil {
		return "", errNoLanes
	}
	home, ok := homeOf(v, t.ID())
	if !ok {
		return "", &unplacedError{placement.Decision{Tenant: t.ID()}}
	}
	if name != "" {
		c, err := s.cellNamed(name)
		switch {
		case err != nil:
			return "", err
		case c.ID == home:
			return "", &cell.FieldError{Field: "target", Problem: fmt.Sprintf("is %s, where the tenant is", name), Remedy: "name another cell"}
		}
		return c.ID, nil
	}
	d := s.freshSnapshot(r, v).Place(reconcile.TenantOf(v, t))
	if d.Target != home && d.Target != "" {
		return d.Target, nil
	}
	for _, c := range d.Candidates { // the best first
		if c.Rejected == "" && c.Cell != home {
			return c.Cell, nil
		}
	}
	d.Target = ""
	return "", &nowhereError{d}
}

// nowhereError is returned when a tenant that is to move can go to no other cell.
type nowhereError struct{ decision placement.Decision }

func (e *nowhereError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no other cell can take tenant %s", e.decision.Tenant)
	for i, c := range e.decision.Candidates {
		if i == rejectionsShown {
			break
		}
		if c.Rejected != "" {
			fmt.Fprintf(&b, "; %s %s", c.Cell, c.Rejected)
		}
	}
	return b.String() + ": name one, create one, or change the tenant's rules"
}

// optionsOf reads what a request says, with the defaults in place of what it does not.
func optionsOf(m *fairleadv1.MigrationOptions) (migrate.Options, error) {
	o := migrate.Options{Manual: m.GetManual(), BytesPerSecond: m.GetBytesPerSecond(), Priority: m.GetPriority()}
	pauseMax, err := duration("options.pause_max", m.GetPauseMax())
	if err != nil {
		return o, err
	}
	canary, err := duration("options.canary_time", m.GetCanaryTime())
	if err != nil {
		return o, err
	}
	window, err := duration("options.rollback_window", m.GetRollbackWindow())
	if err != nil {
		return o, err
	}
	o.PauseMax = pauseMax
	o = o.WithDefaults()
	if m != nil && m.CanaryJobs != nil { // none, and no window, can be meant
		o.CanaryJobs = m.GetCanaryJobs()
	}
	if m.GetCanaryTime() != nil {
		o.CanaryTime = canary
	}
	if m.GetRollbackWindow() != nil {
		o.RollbackWindow = window
	}
	return o, o.Validate()
}

// GetMigration implements MigrationService.
func (m migrationService) GetMigration(ctx context.Context, req *fairleadv1.GetMigrationRequest) (*fairleadv1.GetMigrationResponse, error) {
	of, err := m.migration(req.GetId(), req.GetTenant())
	if err == nil {
		err = m.verify(ctx)
	}
	if err != nil {
		return nil, m.fail(ctx, err)
	}
	return &fairleadv1.GetMigrationResponse{Migration: migrationMessage(of.Record, true)}, nil
}

// migration returns the migration that a request names by its id or by its tenant.
func (s *Server) migration(id, tenant string) (state.Migration, error) {
	view := s.machine.View()
	switch {
	case (id == "") == (tenant == ""):
		return state.Migration{}, &cell.FieldError{Field: "id", Problem: "and tenant are both given or both missing", Remedy: "give one of them"}
	case id != "":
		m, ok := view.Migration(cell.MigrationID(id))
		if !ok {
			return m, &state.NotFoundError{Kind: state.KindMigration, ID: id}
		}
		return m, nil
	}
	t, err := s.tenant("tenant", tenant)
	if err != nil {
		return state.Migration{}, err
	}
	m, ok := view.MigrationOf(t.ID())
	if !ok {
		return m, &state.NotFoundError{Kind: state.KindMigration, ID: "of tenant " + tenant}
	}
	return m, nil
}

// ListMigrations implements MigrationService.
func (m migrationService) ListMigrations(
	ctx context.Context, req *fairleadv1.ListMigrationsRequest,
) (*fairleadv1.ListMigrationsResponse, error) {
	out, err := m.list(req)
	if err == nil {
		err = m.verify(ctx)
	}
	if err != nil {
		return nil, m.fail(ctx, err)
	}
	return out, nil
}

func (s *Server) list(req *fairleadv1.ListMigrationsRequest) (*fairleadv1.ListMigrationsResponse, error) {
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	list := fmt.Sprintf("%s of %s, live %v", listMigrations, req.GetCell(), req.GetLive())
	after, err := pageAfter(list, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	before := uint64(0)
	if after != "" {
		if before, err = strconv.ParseUint(after, 10, 64); err != nil {
			return nil, &cell.FieldError{Field: "page_token", Problem: "is not a token of this list", Remedy: "give next_page_token of the page before"}
		}
	}
	rows := s.machine.View().Migrations(before)
	if name := req.GetCell(); name != "" {
		home, err := s.cellNamed(name)
		if err != nil {
			return nil, err
		}
		rows = s.machine.View().MigrationsOf(home.ID, before)
	}
	wanted := func(yield func(state.Migration) bool) {
		for m := range rows {
			if (!req.GetLive() || !m.Done()) && !yield(m) {
				return
			}
		}
	}
	out := &fairleadv1.ListMigrationsResponse{}
	out.Migrations, out.NextPageToken = page(list, size, wanted, func(m state.Migration) string { return strconv.FormatUint(m.Number, 10) },
		func(m state.Migration) *fairleadv1.Migration { return migrationMessage(m.Record, false) })
	return out, nil
}

// ControlMigration implements MigrationService.
func (m migrationService) ControlMigration(
	ctx context.Context, req *fairleadv1.ControlMigrationRequest,
) (*fairleadv1.ControlMigrationResponse, error) {
	of, text, err := m.control(ctx, req)
	if err != nil {
		return nil, m.fail(ctx, err)
	}
	return &fairleadv1.ControlMigrationResponse{Migration: migrationMessage(of, true), Text: text}, nil
}

func (s *Server) control(ctx context.Context, req *fairleadv1.ControlMigrationRequest) (migrate.Record, string, error) {
	r, err := s.reigning()
	if err != nil {
		return migrate.Record{}, "", err
	}
	for attempt := 1; ; attempt++ {
		of, err := s.migration(req.GetId(), req.GetTenant())
		if err != nil {
			return migrate.Record{}, "", err
		}
		e, err := eventOf(&of.Record, req)
		if err != nil {
			return migrate.Record{}, "", err
		}
		e.Actor, e.Time = s.actor(ctx), s.instant()
		text := actionText(&of.Record, &e)
		if done(&of.Record, req.GetAction()) { // as it was asked for before
			return of.Record, text, s.verify(ctx)
		}
		if _, err := of.Apply(e); err != nil {
			return migrate.Record{}, "", &actionError{record: of.Record, action: req.GetAction(), err: err}
		}
		if req.GetDryRun() {
			return of.Record, text, s.verify(ctx)
		}
		after, err := s.advance(ctx, r, of.ID, of.Generation, e)
		if err == nil {
			s.cfg.Log.InfoContext(ctx, "migration controlled", "migration", string(of.ID), "tenant", string(of.Tenant), "event", e.Kind.String())
			return after, text, nil
		}
		if _, stale := errors.AsType[*state.StaleError](err); !stale || attempt == controlAttempts {
			return migrate.Record{}, "", err
		}
	}
}

// done reports whether an action was taken already.
func done(r *migrate.Record, a fairleadv1.MigrationAction) bool {
	switch a {
	case fairleadv1.MigrationAction_MIGRATION_ACTION_RESUME:
		return r.Held == "" && !r.Done()
	case fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT:
		return r.State == migrate.Aborting || r.State == migrate.Aborted
	case fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE:
		return r.State == migrate.Reversing || r.State == migrate.RolledBack
	case fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE:
		return r.State == migrate.Draining || r.State == migrate.Released
	case fairleadv1.MigrationAction_MIGRATION_ACTION_PAUSE:
		return strings.HasPrefix(r.Held, heldByOperator) && !r.Done()
	case fairleadv1.MigrationAction_MIGRATION_ACTION_UNSPECIFIED, fairleadv1.MigrationAction_MIGRATION_ACTION_THROTTLE,
		fairleadv1.MigrationAction_MIGRATION_ACTION_SWITCH:
		return false
	default:
		return false
	}
}

// eventOf returns the event that a request asks for.
func eventOf(r *migrate.Record, req *fairleadv1.ControlMigrationRequest) (migrate.Event, error) {
	e := migrate.Event{Attempt: r.Attempt, Why: req.GetWhy()}
	switch req.GetAction() {
	case fairleadv1.MigrationAction_MIGRATION_ACTION_PAUSE:
		e.Kind, e.Why = migrate.EventHold, heldByOperator
		if req.GetWhy() != "" {
			e.Why += ": " + req.GetWhy()
		}
	case fairleadv1.MigrationAction_MIGRATION_ACTION_RESUME:
		e.Kind = migrate.EventResume
	case fairleadv1.MigrationAction_MIGRATION_ACTION_THROTTLE:
		e.Kind, e.BytesPerSecond = migrate.EventThrottle, req.GetBytesPerSecond()
		if n := e.BytesPerSecond; n < migrate.BytesPerSecondMin || n > migrate.BytesPerSecondMax {
			return e, &cell.FieldError{
				Field: "bytes_per_second", Problem: fmt.Sprintf("is %d, outside %d to %d", n, migrate.BytesPerSecondMin, migrate.BytesPerSecondMax),
				Remedy: "give how many bytes a second it copies at most; pause it to stop it",
			}
		}
	case fairleadv1.MigrationAction_MIGRATION_ACTION_SWITCH:
		e.Kind, e.Class = migrate.EventAllow, cell.Class(req.GetClass())
		if e.Class == 0 {
			e.Class = nextClass(r)
		}
		if !e.Class.Valid() {
			return e, &cell.FieldError{Field: "class", Problem: fmt.Sprintf("is %d", req.GetClass()), Remedy: "use interactive or batch"}
		}
	case fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT:
		e.Kind = migrate.EventAbort
	case fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE:
		e.Kind = migrate.EventReverse
	case fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE:
		e.Kind = migrate.EventComplete
	case fairleadv1.MigrationAction_MIGRATION_ACTION_UNSPECIFIED:
	default:
	}
	if e.Kind == 0 {
		return e, &cell.FieldError{Field: "action", Problem: fmt.Sprintf("is %d", req.GetAction()), Remedy: "say what is to be done"}
	}
	return e, nil
}

// nextClass returns the class that is switched next, or was last when none is left.
func nextClass(r *migrate.Record) cell.Class {
	at := slices.IndexFunc(r.Order[:], func(c cell.Class) bool {
		return r.Lanes[c.Index()].Phase == migrate.AtSource && !r.Lanes[c.Index()].Allowed
	})
	return r.Order[max(0, at)]
}

// actionText says what an event does, and what is lost by it.
func actionText(r *migrate.Record, e *migrate.Event) string {
	switch e.Kind { //nolint:exhaustive // the others are control's own
	case migrate.EventHold:
		return "takes no forward step until it is resumed; copying goes on"
	case migrate.EventResume:
		return "goes on from where it is"
	case migrate.EventThrottle:
		return fmt.Sprintf("copies at most %d bytes a second", e.BytesPerSecond)
	case migrate.EventAllow:
		return fmt.Sprintf("switches %s to %s as soon as it is ready: it takes nothing for a moment, at most %v", e.Class, r.Target, r.Options.PauseMax)
	case migrate.EventAbort:
		return fmt.Sprintf("ends it: tenant %s stays in %s, and what was copied to %s is removed. No job is lost", r.Tenant, r.Source, r.Target)
	case migrate.EventReverse:
		return fmt.Sprintf("takes every class of tenant %s back to %s, which has what changed in %s since: each takes nothing for a moment, at most %v. No job is lost",
			r.Tenant, r.Source, r.Target, r.Options.PauseMax)
	case migrate.EventComplete:
		return fmt.Sprintf("keeps tenant %s in %s for good: it cannot be reversed any more, and what %s still has of it is removed. No job is lost",
			r.Tenant, r.Target, r.Source)
	default:
		return ""
	}
}

// actionError is returned when an action does not fit where a migration stands.
type actionError struct {
	record migrate.Record
	action fairleadv1.MigrationAction
	err    error
}

func (e *actionError) Unwrap() error { return e.err }

// pastReturn reports whether a class was moved already: then the way back is another.
func pastReturn(r *migrate.Record) bool {
	return r.State == migrate.Ramping || r.State == migrate.CutOver
}

func (e *actionError) Error() string {
	text := fmt.Sprintf("migration %s is %s", e.record.ID, e.record.State)
	why := e.err.Error()
	if t, ok := errors.AsType[*migrate.TransitionError](e.err); ok {
		why = t.Why
	}
	switch {
	case e.record.Done():
		return text + ": it has ended, and nothing can be done to it any more"
	case e.action == fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT && pastReturn(&e.record):
		return text + ", and a class is at its new home already: it cannot be aborted any more; reverse it"
	case e.action == fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE && e.record.State < migrate.Ramping:
		return text + ", and no class was switched yet: there is nothing to reverse; abort it"
	case e.action == fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE && e.record.State < migrate.CutOver:
		return text + ": it can be completed once every class was switched"
	default:
		return text + ": " + why
	}
}

// migrationMessage returns a migration as the API says it, with its events if they are asked for.
func migrationMessage(r migrate.Record, events bool) *fairleadv1.Migration {
	m := &fairleadv1.Migration{
		Id: string(r.ID), Tenant: string(r.Tenant), Source: string(r.Source), Target: string(r.Target), State: fairleadv1.MigrationState(r.State),
		Attempt: r.Attempt, Held: r.Held, Reason: r.Reason, Actor: r.Actor, CreateTime: timeMessage(r.Created), EnterTime: timeMessage(r.Entered),
		EndTime: timeMessage(r.Ended), Options: optionsMessage(r.Options), Gates: gateMessages(r.Gates), Progress: progressMessage(r.Progress),
		Generation: r.Generation,
	}
	m.NextStep, m.Undo = migrate.Explain(&r)
	for _, c := range r.Order {
		l := r.Lanes[c.Index()]
		m.Lanes = append(m.Lanes, &fairleadv1.MigrationLane{
			Class: fairleadv1.Class(c), Phase: fairleadv1.LanePhase(l.Phase), Owner: string(l.Owner), Epoch: uint64(l.Epoch), Position: l.Position,
			Pause: durationMessage(l.Pause), FenceTime: timeMessage(l.FencedAt), CommitTime: timeMessage(l.CommittedAt), ActivateTime: timeMessage(l.ActivatedAt),
		})
	}
	if !events {
		return m
	}
	for _, n := range r.Notes {
		m.Events = append(m.Events, &fairleadv1.MigrationEvent{
			Time: timeMessage(n.At), Actor: n.Actor, What: n.What, Why: n.Why, Attempt: n.Attempt, Epoch: uint64(n.Epoch),
		})
	}
	return m
}

func optionsMessage(o migrate.Options) *fairleadv1.MigrationOptions {
	return &fairleadv1.MigrationOptions{
		Manual: o.Manual, PauseMax: durationpb.New(o.PauseMax), CanaryJobs: new(o.CanaryJobs), CanaryTime: durationpb.New(o.CanaryTime),
		RollbackWindow: durationpb.New(o.RollbackWindow), BytesPerSecond: o.BytesPerSecond, Priority: o.Priority,
	}
}

// gateMessages returns gates as the API says them: the verdicts' numbers are the same.
func gateMessages(gates []migrate.Gate) []*fairleadv1.Gate {
	var out []*fairleadv1.Gate
	for _, g := range gates {
		out = append(out, &fairleadv1.Gate{Name: g.Name, Verdict: fairleadv1.GateVerdict(g.Verdict), Evidence: g.Evidence})
	}
	return out
}

func progressMessage(p migrate.Progress) *fairleadv1.MigrationProgress {
	m := &fairleadv1.MigrationProgress{
		JobsTotal: p.JobsTotal, JobsCopied: p.JobsCopied, BytesCopied: p.BytesCopied, LagRecords: p.LagRecords, LagBytes: p.LagBytes,
		LagTime: durationMessage(p.LagTime), BytesPerSecond: p.BytesPerSecond, Throttled: p.Throttled,
	}
	if left := p.JobsTotal - p.JobsCopied; left > 0 && p.BytesPerSecond > 0 && p.JobsCopied > 0 {
		perJob := float64(p.BytesCopied) / float64(p.JobsCopied)
		m.TimeLeft = durationpb.New(time.Duration(min(timeLeftMax, float64(left)*perJob/float64(p.BytesPerSecond)) * float64(time.Second)))
	}
	return m
}
