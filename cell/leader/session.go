package leader

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/sched"
)

// session is a worker process as the leader knows it. Of a session found by its leases alone only those are known until it polls: it is given
// nothing.
type session struct {
	id         SessionID
	worker     string
	operations []cell.Operation
	group      cell.WorkerGroup
	offer      sched.OfferID
	offered    bool
	polled     bool // its slots are what it said
	classes    [2]bool
	slots      int64
	prefetch   int64
	duration   time.Duration
	held       []*lease
	revoked    int   // of those held
	poll       *Call // open
	report     *Call // of the entry being sealed, whose answer is to come
	pollSeq    int64
	reportSeq  int64
	seen       cell.Instant
}

func (s *session) private() bool { return s.id.Tenant != "" }

// room returns how many more leases the session may hold, up to its slots or beyond them by its prefetch.
func (s *session) room(beyond bool) int64 {
	room := s.slots - int64(len(s.held))
	if beyond {
		room += s.prefetch
	}
	return room
}

// session returns the poll's session as the poll describes it.
func (l *Leader) session(p *Poll) (*session, error) {
	s := l.sessions[p.Session]
	if s == nil {
		if err := l.checkPlaces(p.Session.Tenant); err != nil {
			return nil, err
		}
		s = &session{id: p.Session}
	}
	classes := s.classes
	s.classes = p.Classes
	if err := l.offer(s, p.Operations, p.Group); err != nil {
		s.classes = classes
		return nil, err
	}
	l.enter(s)
	s.seen, s.polled = l.draft.now, true
	s.worker, s.operations, s.group, s.duration = p.Worker, p.Operations, p.Group, max(p.LeaseDuration, time.Millisecond)
	slots := min(p.Slots, l.cfg.RoomMax)
	if prefetch := min(p.Prefetch, l.cfg.RoomMax-slots); s.slots != slots || s.prefetch != prefetch {
		l.resize(s, slots, prefetch)
	}
	return s, nil
}

// checkPlaces returns a *cell.LimitError when there is no place for another session.
func (l *Leader) checkPlaces(tenant cell.TenantID) error {
	limit := &cell.LimitError{
		Limit: "sessions_max", Scope: cell.ScopeCell, Value: int64(len(l.sessions) + 1), Bound: int64(l.cfg.SessionsMax),
		RetryAfter: l.cfg.SessionGrace, Remedy: "run fewer, larger workers",
	}
	if tenant != "" && l.tenantSessions[tenant] >= l.cfg.TenantSessionsMax {
		limit.Limit, limit.Scope = "tenant_sessions_max", cell.ScopeTenant
		limit.Value, limit.Bound = int64(l.tenantSessions[tenant]+1), int64(l.cfg.TenantSessionsMax)
		return limit
	}
	if limit.Value > limit.Bound {
		return limit
	}
	return nil
}

// offer makes the operations, as a worker of the group, what the session offers. It returns a *cell.LimitError when there are too many
// different offers.
func (l *Leader) offer(s *session, operations []cell.Operation, group cell.WorkerGroup) error {
	if s.private() || s.offered && s.group == group && slices.Equal(s.operations, operations) {
		return nil
	}
	var err error
	var set sched.OfferID
	if s.offered {
		set, err = l.sched.Change(s.offer, operations, group)
	} else {
		set, err = l.sched.Open(operations, group)
	}
	if err != nil {
		return err
	}
	for _, le := range s.held {
		if !le.revoked { // found in the state: from now on it is charged where it would have been granted
			l.sched.Adopt(le.job, set)
			l.spare(le)
		}
	}
	s.offer, s.offered = set, true
	return nil
}

// enter counts a session that is new.
func (l *Leader) enter(s *session) {
	if l.sessions[s.id] != nil {
		return
	}
	l.sessions[s.id] = s
	if s.private() {
		l.tenantSessions[s.id.Tenant]++
	}
}

// leave forgets a session.
func (l *Leader) leave(s *session) {
	if s.offered {
		l.sched.Leave(s.offer)
	}
	l.resize(s, 0, 0)
	delete(l.sessions, s.id)
	if !s.private() {
		return
	}
	if l.tenantSessions[s.id.Tenant]--; l.tenantSessions[s.id.Tenant] == 0 {
		delete(l.tenantSessions, s.id.Tenant)
	}
}

// resize changes what a session may hold, and with it the room of the cell where its slots are the cell's own.
func (l *Leader) resize(s *session, slots, prefetch int64) {
	if !s.private() {
		l.slots += slots - s.slots
		l.room += slots + prefetch - s.slots - s.prefetch
		l.sched.Resize(l.slots, l.room)
	}
	s.slots, s.prefetch = slots, prefetch
}

// sweepSessions forgets sessions that are not heard of and hold nothing.
func (l *Leader) sweepSessions() {
	now := l.draft.now
	if now.Sub(l.swept) < l.cfg.SessionGrace/4 {
		return
	}
	l.swept = now
	var gone []*session
	for _, s := range l.sessions { // order-free: sorted below
		if s.poll == nil && len(s.held) == 0 && now.Sub(s.seen) > l.cfg.SessionGrace {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.id.Tenant, b.id.Tenant), cmp.Compare(a.id.Name, b.id.Name))
	})
	for _, s := range gone {
		l.leave(s)
	}
}
