package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
)

const (
	// roundDelay is how long a request waits before it asks around again when nothing happens meanwhile.
	roundDelay = 100 * time.Millisecond
	// breakMin and breakMax bound how long an agent that could not be reached is left alone: twice as long after each failure.
	breakMin = 100 * time.Millisecond
	breakMax = 2 * time.Second
	// tenantShare is the part of the bytes held for a cell that one tenant's may be.
	tenantShare = 4
)

// upstream is a cell, or control, as the forwarder knows it. Nothing in it is shared with another.
type upstream struct {
	f    *Forwarder
	cell cell.ID

	mu       sync.Mutex
	table    *route.Table // that replicas are of
	replicas []*replica   // in the order of their names; those that are gone and have requests still at the end
	leader   string       // who leads as far as is known
	term     uint64       // the highest that a leader was seen in
	changed  chan struct{}
	probing  bool
	used     time.Time // when a request was last under way
	counts   counts
}

// counts are what the bounds are of.
type counts struct {
	inFlight int
	parked   int
	bytes    int64
	tenants  map[cell.TenantID]share // no entry for none
}

// share is a tenant's part.
type share struct {
	inFlight int
	bytes    int64
}

// replica is one agent of an upstream. Its fields but the ways to it are guarded by the upstream's mutex.
type replica struct {
	route.Replica
	calls, probes http.RoundTripper

	gone     bool // control names it no more, or at another address
	flights  map[*flight]struct{}
	failures int       // to reach it, in a row
	shutTill time.Time // it is not tried before
	deniedAt time.Time // when it last said to a request that it does not lead

	asking      bool         // a probe is under way
	status      LeaderStatus // by the last good probe
	statusAt    time.Time    // of it; zero for none
	silentSince time.Time    // since when no probe was answered; zero when the last was
	unanswered  int          // probes in a row
}

// flight is one request that a replica has.
type flight struct {
	cancel context.CancelCauseFunc
	term   uint64 // in which the replica was seen to lead; 0 when it was not
	doomed bool   // another was seen to lead in a later term
}

func newUpstream(f *Forwarder, id cell.ID) *upstream {
	return &upstream{f: f, cell: id, changed: make(chan struct{}), counts: counts{tenants: map[cell.TenantID]share{}}}
}

// name is the upstream as people call it.
func (u *upstream) name() string {
	if u.cell == control {
		return "control"
	}
	return "cell " + string(u.cell)
}

func (u *upstream) idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts.inFlight == 0 && u.counts.bytes == 0 && !u.probing
}

// close gives up the connections that nobody uses.
func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.replicas {
		r.close()
	}
}

func (r *replica) close() {
	for _, t := range []http.RoundTripper{r.calls, r.probes} {
		if c, ok := t.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// enter counts a request of the tenant, or returns the refusal. It sees to it that the upstream is probed.
func (u *upstream) enter(ctx context.Context, tenant cell.TenantID) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	cfg := &u.f.cfg
	if u.counts.inFlight >= cfg.InFlightPerCellMax {
		return refuseOverload(u, LimitInFlightPerCell, int64(u.counts.inFlight)+1, int64(cfg.InFlightPerCellMax))
	}
	s := u.counts.tenants[tenant]
	if tenant != "" && s.inFlight >= cfg.InFlightPerTenantMax {
		return refuseTenant(tenant, LimitInFlightPerTenant, int64(s.inFlight)+1, int64(cfg.InFlightPerTenantMax))
	}
	s.inFlight++
	u.counts.inFlight++
	u.counts.tenants[tenant] = s
	u.used = time.Now()
	u.probeLocked(ctx)
	return nil
}

func (u *upstream) leave(tenant cell.TenantID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts.inFlight--
	s := u.counts.tenants[tenant]
	s.inFlight--
	u.setShareLocked(tenant, s)
	u.used = time.Now()
}

func (u *upstream) setShareLocked(tenant cell.TenantID, s share) {
	if s == (share{}) {
		delete(u.counts.tenants, tenant)
		return
	}
	u.counts.tenants[tenant] = s
}

// reserve counts bytes that are held for a request of the tenant, or returns the refusal.
func (u *upstream) reserve(tenant cell.TenantID, n int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	bound := u.f.cfg.BytesPerCellMax
	if u.counts.bytes+n > bound {
		return refuseOverload(u, LimitBytesPerCell, u.counts.bytes+n, bound)
	}
	s := u.counts.tenants[tenant]
	if most := max(bound/tenantShare, 2*RequestBytesMax); tenant != "" && s.bytes+n > most {
		return refuseTenant(tenant, LimitBytesPerCell, s.bytes+n, most)
	}
	s.bytes += n
	u.counts.bytes += n
	u.counts.tenants[tenant] = s
	return nil
}

func (u *upstream) release(tenant cell.TenantID, n int64) {
	if n == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts.bytes -= n
	s := u.counts.tenants[tenant]
	s.bytes -= n
	u.setShareLocked(tenant, s)
}

// syncLocked makes the replicas those of the present routes.
func (u *upstream) syncLocked() {
	table := u.f.cfg.Routes()
	if table == u.table {
		return
	}
	u.table = table
	var want []route.Replica
	role := RoleControl
	if u.cell == control {
		want = table.Control()
	} else if c, ok := table.Cell(u.cell); ok {
		want, role = c.Replicas, RoleCell
	}
	var next []*replica
	for _, w := range want {
		i := slices.IndexFunc(u.replicas, func(r *replica) bool { return r.Replica == w && !r.gone })
		if i >= 0 {
			next = append(next, u.replicas[i])
			continue
		}
		peer := Peer{Role: role, Name: w.Name, Cell: string(u.cell)}
		next = append(next, &replica{
			Replica: w, calls: u.f.cfg.Transport(peer), probes: u.f.cfg.Transport(peer), flights: map[*flight]struct{}{},
		})
	}
	for _, r := range u.replicas {
		if slices.Contains(next, r) {
			continue
		}
		// What it has is still watched over until it is answered.
		if r.gone = true; len(r.flights) > 0 {
			next = append(next, r)
			continue
		}
		r.close()
	}
	u.replicas = next
	if u.replicaLocked(u.leader) == nil {
		u.leader = ""
	}
}

// replicaLocked returns the agent of that name that control names; nil for none.
func (u *upstream) replicaLocked(name string) *replica {
	for _, r := range u.replicas {
		if r.Name == name && !r.gone && name != "" {
			return r
		}
	}
	return nil
}

// pick returns whom to try, apart from those of tried: who leads as far as is known, and else any that might know. It returns nil when there
// is nobody, and a channel that is closed once somebody else may lead. With known, only a leader that a probe has just confirmed will do.
func (u *upstream) pick(tried []*replica, known bool) (*replica, <-chan struct{}) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.syncLocked()
	usable := func(r *replica) bool {
		return r != nil && !r.gone && !slices.Contains(tried, r) && !now.Before(r.shutTill) && !u.silentLocked(r, now)
	}
	if r := u.replicaLocked(u.leader); usable(r) {
		if !known || r.status.Leader && now.Sub(r.statusAt) <= u.f.cfg.ProbeSilence {
			return r, u.changed
		}
	}
	if known {
		return nil, u.changed
	}
	// A crowd that waits for an election must not ask those who have just said that they do not lead: probes will tell.
	every := u.f.cfg.ProbeEvery
	for _, r := range u.replicas {
		follows := !r.status.Leader && now.Sub(r.statusAt) < 2*every
		if usable(r) && !follows && now.Sub(r.deniedAt) >= every {
			return r, u.changed
		}
	}
	return nil, u.changed
}

// notLeading takes in that r has sent a request on its way, to the agent named hint where it knew.
func (u *upstream) notLeading(r *replica, hint string) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	r.failures, r.deniedAt = 0, now
	if u.leader == r.Name {
		u.leader = ""
	}
	// Two that each take the other for the leader must not send requests to and fro.
	if h := u.replicaLocked(hint); h != nil && h != r && u.leader == "" && now.Sub(h.deniedAt) >= u.f.cfg.ProbeEvery {
		u.leader = hint
	}
}

// unreached takes in that r could not be reached.
func (u *upstream) unreached(r *replica) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if now.Before(r.shutTill) {
		return // by another request, a moment ago
	}
	r.shutTill = now.Add(min(breakMax, breakMin<<min(r.failures, 8)))
	r.failures++
}

// answered takes in that r has served a request.
func (u *upstream) answered(r *replica) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r.failures, r.shutTill = 0, time.Time{}
	if u.leader == "" && !r.gone {
		u.leader = r.Name
	}
}

// fly counts a request that r is to have.
func (u *upstream) fly(r *replica, cancel context.CancelCauseFunc) *flight {
	u.mu.Lock()
	defer u.mu.Unlock()
	fl := &flight{cancel: cancel}
	if r.status.Leader {
		fl.term = r.status.Term
	}
	r.flights[fl] = struct{}{}
	return fl
}

func (u *upstream) land(r *replica, fl *flight) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(r.flights, fl)
	if r.gone && len(r.flights) == 0 {
		r.close()
		u.replicas = slices.DeleteFunc(u.replicas, func(o *replica) bool { return o == r })
	}
}

// park counts a request that waits; it returns the refusal when as many do as may.
func (u *upstream) park() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts.parked >= u.f.cfg.ParkedPerCellMax {
		return refuseOverload(u, LimitParkedPerCell, int64(u.counts.parked)+1, int64(u.f.cfg.ParkedPerCellMax))
	}
	u.counts.parked++
	return nil
}

func (u *upstream) unpark() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts.parked--
}

// state says who is known of the upstream, for refusals: what an operator would look at first.
func (u *upstream) state() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var names []string
	for _, r := range u.replicas {
		if !r.gone {
			names = append(names, r.Name)
		}
	}
	switch {
	case len(names) == 0:
		return "no agent of it is known"
	case u.leader == "":
		return "none of " + strings.Join(names, ", ") + " leads"
	default:
		return u.leader + " should lead and does not answer"
	}
}
