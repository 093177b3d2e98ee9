package controlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
)

// changed names an organization or a tenant: one of the two is empty.
type changed struct {
	organization cell.OrganizationID
	tenant       cell.TenantID
}

const (
	// policiesPerCall bounds one call: what a cell takes in one entry of its log.
	policiesPerCall = 500
	// callTimeout bounds one call to another agent. It belongs to everybody who waits, so that no caller's going away ends it.
	callTimeout = 10 * time.Second
	// configureRetryDelay is between attempts of what failed.
	configureRetryDelay = time.Second
	// unfitRetryDelay is the same where the cell has answered that something does not fit: it will not by itself, and all that was to be told is
	// told again.
	unfitRetryDelay = 30 * time.Second
)

// link sees to it that what is committed about a cell's tenants reaches that cell, newest last. Each cell has its own, so that one that hangs
// holds up nobody else's. Concurrent changes share calls: while one is under way, the next gathers. A policy is read after its name was
// taken for the call, so that however commits and calls interleave a cell ends with the latest.
type link struct {
	cell    cell.ID
	to      tenancy
	machine *Machine
	log     *slog.Logger
	turn    chan struct{} // holds a token while nobody configures
	failed  chan struct{} // holds a token when there may be something to tell
	todo    chan []reconcile.Action

	// Of whoever has the turn.
	told     map[cell.OrganizationID]cell.Epoch // what the cell was told of each
	draining *bool                              // what it was told of that; nil for nothing

	meters map[cell.TenantID]*placement.Meter // of the cell's goroutine

	mu      sync.Mutex
	pending map[changed]bool       // committed, and in no call yet or in one that failed
	all     bool                   // everything is pending
	closed  map[cell.TenantID]bool // take no jobs here: about to move away
	failure error                  // of the last attempt; nil for none
	leader  cellLeader             // who was told last
}

func newLink(id cell.ID, to tenancy, machine *Machine, log *slog.Logger) *link {
	l := &link{
		cell: id, to: to, machine: machine, log: log.With("cell", string(id)),
		turn: make(chan struct{}, 1), failed: make(chan struct{}, 1), todo: make(chan []reconcile.Action, 1),
		meters: make(map[cell.TenantID]*placement.Meter),
		told:   make(map[cell.OrganizationID]cell.Epoch), pending: make(map[changed]bool), closed: make(map[cell.TenantID]bool),
	}
	l.turn <- struct{}{}
	return l
}

// configure returns once the cell knows of the changes as they are committed now, or newer. It returns an error that wraps errCellBehind when
// it does not; then [link.run] goes on trying.
func (l *link) configure(ctx context.Context, ids ...changed) error {
	l.add(ids...)
	ctx, cancel := context.WithTimeout(ctx, callTimeout) // for the turn, which a cell that hangs does not give
	defer cancel()
	select {
	case <-l.turn:
	case <-ctx.Done():
		l.retry()
		return fmt.Errorf("%w: %w", errCellBehind, context.Cause(ctx))
	}
	defer func() { l.turn <- struct{}{} }()
	if !l.waits(ids) { // another caller's call has carried them
		return nil
	}
	if err := l.flush(context.WithoutCancel(ctx)); err != nil { // it is everybody's: each of its calls has a bound of its own
		l.retry()
		return fmt.Errorf("%w: %w", errCellBehind, err)
	}
	return nil
}

// configureAll is configure for everything there is.
func (l *link) configureAll(ctx context.Context) error {
	l.reset()
	return l.configure(ctx, changed{})
}

// reset makes everything pending: nothing that the cell was told before counts any more.
func (l *link) reset() {
	l.mu.Lock()
	l.all = true
	l.mu.Unlock()
	l.retry()
}

// flush configures everything that is pending. The caller has the turn. A cell that has no log yet has nobody to be told.
func (l *link) flush(ctx context.Context) error {
	if c, ok := l.machine.View().Cell(l.cell); !ok || c.Phase == placement.PhaseForming {
		return nil
	}
	ids, all := l.take()
	if all {
		clear(l.told)
		l.draining = nil
	}
	err := l.tellDraining(ctx)
	if err == nil {
		err = l.tell(ctx, ids)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
	if err == nil {
		return nil
	}
	l.all = l.all || all
	if !all {
		for _, id := range ids {
			l.pending[id] = true
		}
	}
	return err
}

// tell takes the direct way first: organizations, then tenants. What has changed together may have no such way. An organization that is
// lowered after its tenants does not fit until they are told, and tenants that trade places do not fit one by one. Then the organizations
// promise nothing for a moment, which anything fits in.
func (l *link) tell(ctx context.Context, ids []changed) error {
	organizations, tenants := l.policies(ids)
	err := l.call(ctx, organizations, tenants)
	if _, unfit := errors.AsType[*cell.FieldError](err); !unfit {
		return err
	}
	all := l.withParents(organizations, tenants, func(cell.OrganizationPolicy) bool { return true })
	open := slices.Clone(all)
	for i := range open {
		open[i].Reservation, open[i].Limit = [2]cell.Rate{}, 0
	}
	err = l.call(ctx, open, tenants)
	for _, o := range open { // it was not told what the epoch says
		delete(l.told, o.Organization)
	}
	if err != nil {
		return err
	}
	return l.call(ctx, all, nil)
}

// policies reads what each is promised now, and adds the organizations that the cell needs for them. One that is not there any more, or not in
// this cell, is left out.
func (l *link) policies(ids []changed) (organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) {
	view := l.machine.View()
	for _, id := range ids {
		if o, ok := view.Organization(id.organization); ok {
			organizations = append(organizations, o.Policy)
		}
		if p, ok := promiseIn(view, id.tenant, l.cell); ok {
			tenants = append(tenants, l.policy(p))
		}
	}
	return l.withParents(organizations, tenants, func(o cell.OrganizationPolicy) bool { return l.told[o.Organization] < o.Epoch }), tenants
}

// hosts reports whether what the tenant uses in this cell counts: it has a home there, or moves from it or to it.
func (l *link) hosts(tenant cell.TenantID) bool {
	_, ok := l.machine.View().PolicyIn(tenant, l.cell)
	return ok
}

// promiseIn returns what a cell is told of a tenant, if anything: its part, while the tenant's classes are apart.
func promiseIn(v state.View, tenant cell.TenantID, id cell.ID) (cell.TenantPolicy, bool) {
	p, ok := v.PolicyIn(tenant, id)
	m, moving := v.MigrationOf(tenant)
	if !ok || !moving || m.Done() || !m.Names(id) {
		return p, ok
	}
	source, target, toSource, toTarget := m.Policies(p)
	if id == m.Source {
		if m.Owner(cell.ClassInteractive) == m.Target && m.Owner(cell.ClassBatch) == m.Target {
			source.Reservation = [2]cell.Rate{} // it keeps what it has, and holds nothing back for it
		}
		return source, toSource
	}
	return target, toTarget
}

// policy returns p as the cell is told it. One that is about to move away is promised nothing and takes no job: none has less than two bytes.
func (l *link) policy(p cell.TenantPolicy) cell.TenantPolicy {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed[p.Tenant] {
		p.Reservation, p.Credit, p.BacklogJobsMax, p.BacklogBytesMax = [2]cell.Rate{}, cell.Credit{}, 1, 1
	}
	return p
}

// withParents returns the organizations and those of the tenants that wanted holds for, each once.
func (l *link) withParents(
	organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy, wanted func(cell.OrganizationPolicy) bool,
) []cell.OrganizationPolicy {
	view := l.machine.View()
	all := slices.Clone(organizations)
	seen := make(map[cell.OrganizationID]bool)
	for _, o := range all {
		seen[o.Organization] = true
	}
	for _, t := range tenants {
		if seen[t.Organization] {
			continue
		}
		seen[t.Organization] = true
		if o, ok := view.Organization(t.Organization); ok && wanted(o.Policy) {
			all = append(all, o.Policy)
		}
	}
	return all
}

// call configures in calls of a bounded size. It returns the first error, and goes on after one that concerns a policy alone.
func (l *link) call(ctx context.Context, organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) error {
	var unfit error
	configure := func(organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) (fits bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err = l.to.Configure(ctx, organizations, tenants)
		if _, ok := errors.AsType[*cell.FieldError](err); ok {
			unfit = cmp.Or(unfit, err)
			return false, nil
		}
		return err == nil, err
	}
	for chunk := range slices.Chunk(organizations, policiesPerCall) {
		fits, err := configure(chunk, nil)
		if err != nil {
			return err
		}
		for _, o := range chunk {
			if fits {
				l.told[o.Organization] = o.Epoch
			}
		}
	}
	for chunk := range slices.Chunk(tenants, policiesPerCall) {
		if _, err := configure(nil, chunk); err != nil {
			return err
		}
	}
	return unfit
}

// tellDraining says whether the cell takes jobs, when that is news to it.
func (l *link) tellDraining(ctx context.Context) error {
	draining := drains(l.machine.View(), l.cell)
	if l.draining != nil && *l.draining == draining {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := l.to.drain(ctx, draining); err != nil {
		return err
	}
	l.draining = &draining
	return nil
}

// duties is what a cell's goroutine does beside telling it of changes.
type duties struct {
	every   time.Duration // between two measurements
	measure func(context.Context, *link)
	act     func(context.Context, *link, []reconcile.Action)
}

// run tells the cell of what it could not be told when it was committed, measures it and does what the loop decided about it, until ctx ends. It is the
// only goroutine of its cell, so that a cell that hangs keeps its own busy and nobody else's.
func (l *link) run(ctx context.Context, d duties) {
	measure := time.NewTicker(d.every)
	defer measure.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for due := true; ; { // the timer runs
		select {
		case <-l.failed:
			if !due { // what comes meanwhile must not put it off
				due = true
				retry.Reset(l.delay())
			}
		case <-retry.C:
			due = false
			if err := l.attempt(ctx); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "the cell does not know of every change yet", "error", err)
				l.retry()
			}
		case actions := <-l.todo:
			d.act(ctx, l, actions)
		case <-measure.C:
			d.measure(ctx, l)
		case <-ctx.Done():
			return
		}
	}
}

// delay returns how long to wait before the next attempt.
func (l *link) delay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return 0
	}
	if _, unfit := errors.AsType[*cell.FieldError](l.failure); unfit {
		return unfitRetryDelay
	}
	return configureRetryDelay
}

// do hands the cell's goroutine what the loop decided. When it is busy with the last, this is decided again.
func (l *link) do(actions []reconcile.Action) {
	select {
	case l.todo <- actions:
	default:
	}
}

// leaderIs notes who leads the cell, and reports whether that is news.
func (l *link) leaderIs(leader cellLeader) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader == leader {
		return false
	}
	l.leader = leader
	return true
}

// attempt flushes what there is.
func (l *link) attempt(ctx context.Context) error {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { l.turn <- struct{}{} }()
	return l.flush(ctx)
}

// retry makes run look.
func (l *link) retry() {
	select {
	case l.failed <- struct{}{}:
	default:
	}
}

func (l *link) add(ids ...changed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.pending[id] = true
	}
}

// close makes the cell take no jobs of the tenants, or take them again, once it is configured.
func (l *link) close(tenants []cell.TenantID, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tenants {
		if l.closed[t] = closed; !closed {
			delete(l.closed, t)
		}
		l.pending[changed{tenant: t}] = true
	}
}

// take returns what is pending, in the order of ids, and leaves nothing: what is added from now on is for the next call.
func (l *link) take() (ids []changed, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, l.all = l.all, false
	if all {
		for _, t := range l.machine.View().TenantsIn(l.cell) {
			l.pending[changed{tenant: t}] = true
		}
	}
	ids = slices.SortedFunc(maps.Keys(l.pending), func(a, b changed) int {
		return cmp.Or(cmp.Compare(a.organization, b.organization), cmp.Compare(a.tenant, b.tenant))
	})
	clear(l.pending)
	return ids, all
}

func (l *link) waits(ids []changed) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all || slices.ContainsFunc(ids, func(id changed) bool { return l.pending[id] })
}
