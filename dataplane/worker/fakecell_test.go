package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeCell is a cell for one operation and one session at a time, kept naive: everything under one lock, every rule of worker.proto spelled
// out. What a worker must never do, it notes as a violation.
type fakeCell struct {
	// fault, if set, decides what goes wrong with the n-th call, counted from 1 over all calls.
	fault func(call string, n int) fault

	mu         sync.Mutex
	calls      int
	jobs       map[string]*fakeJob
	ready      []*fakeJob
	wake       chan struct{} // closed when there may be something to lease
	session    *fakeSession
	violations []string
	emptyNow   bool // Leases do not wait
	refuse     error
	extensions int
}

type fault uint8

const (
	faultNone    fault = iota
	faultRequest       // the cell never sees it
	faultReply         // the cell does it, the worker never hears of it
)

type fakeJob struct {
	lease    *fairleadv1.JobLease // as it will be granted; the token is set then
	attempts int
	leased   bool
	expires  time.Time
	outcomes []*fairleadv1.Outcome // the accepted ones
	done     bool
	freed    int // times it went back because the worker did not name it
}

type fakeSession struct {
	id          string
	capacity    int
	leaseSeq    int64
	leaseAnswer *fairleadv1.LeaseResponse
	reportSeq   int64
	reportReply *fairleadv1.ReportResponse
	grants      map[string]grantedBy // by token
	seen        map[string]int64     // outcomes by token: the Report that brought it
	heldMax     int
}

type grantedBy struct {
	job           *fakeJob
	lease, report int64 // the sequence of the call that granted it
}

func newFakeCell() *fakeCell {
	return &fakeCell{jobs: make(map[string]*fakeJob), wake: make(chan struct{})}
}

// add makes n jobs ready; change may be nil.
func (c *fakeCell) add(n int, change func(i int, l *fairleadv1.JobLease)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		id := fmt.Sprintf("job-%04d", len(c.jobs))
		l := &fairleadv1.JobLease{
			JobId: id, Tenant: "acme", Operation: "op", Class: fairleadv1.Class_CLASS_BATCH, ExecutionTimeout: durationpb.New(time.Hour),
		}
		if change != nil {
			change(i, l)
		}
		j := &fakeJob{lease: l}
		c.jobs[id] = j
		c.ready = append(c.ready, j)
	}
	c.wakeLocked()
}

func (c *fakeCell) wakeLocked() {
	close(c.wake)
	c.wake = make(chan struct{})
}

func (c *fakeCell) faultLocked(call string) fault {
	c.calls++
	if c.fault == nil {
		return faultNone
	}
	return c.fault(call, c.calls)
}

func errLost() error { return connect.NewError(connect.CodeUnavailable, fmt.Errorf("connection lost")) }

func (c *fakeCell) sessionLocked(id string) *fakeSession {
	if c.session == nil || c.session.id != id {
		c.session = &fakeSession{id: id, grants: make(map[string]grantedBy), seen: make(map[string]int64)}
	}
	return c.session
}

// Lease does what worker.proto says.
func (c *fakeCell) Lease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	f := c.faultLocked("lease")
	if f == faultRequest {
		return nil, errLost()
	}
	s := c.sessionLocked(req.GetSession())
	s.capacity = int(req.GetSlots() + req.GetPrefetch())
	switch {
	case req.GetSequence() < s.leaseSeq: // given up on by the worker, and overtaken on the way
		return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("lease %d came after %d", req.GetSequence(), s.leaseSeq))
	case req.GetSequence() > s.leaseSeq: // those between never arrived
		s.leaseSeq, s.leaseAnswer = req.GetSequence(), nil
		c.reconcileLocked(s, req)
	}
	deadline := time.NewTimer(req.GetWait().AsDuration())
	defer deadline.Stop()
	for s.leaseAnswer == nil {
		leases := c.grantLocked(s, cmp.Or(int(req.GetMaxJobs()), s.capacity), grantedBy{lease: req.GetSequence()}, req.GetLeaseDuration().AsDuration())
		if len(leases) > 0 || c.emptyNow {
			s.leaseAnswer = &fairleadv1.LeaseResponse{Leases: leases, Session: s.id}
			break
		}
		wake := c.wake
		c.mu.Unlock()
		expired, cancelled := false, false
		select {
		case <-wake:
		case <-deadline.C:
			expired = true
		case <-ctx.Done():
			cancelled = true
		}
		c.mu.Lock()
		if cancelled || s.leaseSeq != req.GetSequence() { // a later one took its place
			return nil, context.Canceled
		}
		if expired && s.leaseAnswer == nil {
			s.leaseAnswer = &fairleadv1.LeaseResponse{Session: s.id}
		}
	}
	if f == faultReply {
		return nil, errLost()
	}
	return s.leaseAnswer, nil
}

// reconcileLocked frees what was surely delivered and is not named.
func (c *fakeCell) reconcileLocked(s *fakeSession, req *fairleadv1.LeaseRequest) {
	named := make(map[string]bool)
	for _, ref := range req.GetHeld() {
		named[ref.GetToken()] = true
	}
	for token, g := range s.grants {
		delivered := g.lease > 0 && g.lease < req.GetSequence() || g.report > 0 && g.report <= req.GetReportSequence()
		if delivered && !named[token] && g.job.leased && g.job.lease.GetToken() == token {
			g.job.freed++
			c.freeLocked(s, g.job)
		}
	}
}

func (c *fakeCell) freeLocked(s *fakeSession, j *fakeJob) {
	delete(s.grants, j.lease.GetToken())
	j.leased = false
	c.ready = append(c.ready, j)
	c.wakeLocked()
}

func (c *fakeCell) grantLocked(s *fakeSession, most int, by grantedBy, duration time.Duration) []*fairleadv1.JobLease {
	var leases []*fairleadv1.JobLease
	for len(c.ready) > 0 && len(leases) < most && len(s.grants) < s.capacity {
		j := c.ready[0]
		c.ready = c.ready[1:]
		j.attempts++
		j.leased = true
		j.lease.Token = fmt.Sprintf("%s/%d", j.lease.GetJobId(), j.attempts)
		j.lease.Attempt = int32(j.attempts)
		j.lease.LeaseDuration = durationpb.New(cmp.Or(duration, LeaseDurationDefault))
		j.expires = time.Now().Add(j.lease.GetLeaseDuration().AsDuration())
		by.job = j
		s.grants[j.lease.GetToken()] = by
		leases = append(leases, cloneLease(j.lease))
		s.heldMax = max(s.heldMax, len(s.grants))
	}
	return leases
}

func cloneLease(l *fairleadv1.JobLease) *fairleadv1.JobLease {
	return &fairleadv1.JobLease{
		JobId: l.GetJobId(), Token: l.GetToken(), Tenant: l.GetTenant(), Operation: l.GetOperation(), Class: l.GetClass(),
		Payload: l.GetPayload(), Attempt: l.GetAttempt(), Labels: l.GetLabels(), ExecutionTimeout: l.GetExecutionTimeout(),
		LeaseDuration: l.GetLeaseDuration(), Traceparent: l.GetTraceparent(),
	}
}

// Report does what worker.proto says.
func (c *fakeCell) Report(_ context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	call := "report"
	if req.GetSequence() == 0 {
		call = "extend"
	}
	f := c.faultLocked(call)
	if f == faultRequest {
		return nil, errLost()
	}
	s := c.sessionLocked(req.GetSession())
	answer := s.reportReply
	if req.GetSequence() == 0 || req.GetSequence() != s.reportSeq {
		if req.GetSequence() != 0 && req.GetSequence() != s.reportSeq+1 {
			c.violations = append(c.violations, fmt.Sprintf("report sequence went from %d to %d", s.reportSeq, req.GetSequence()))
		}
		answer = c.applyLocked(s, req)
		if req.GetSequence() != 0 {
			s.reportSeq, s.reportReply = req.GetSequence(), answer
		}
	}
	if f == faultReply {
		return nil, errLost()
	}
	return answer, nil
}

func (c *fakeCell) applyLocked(s *fakeSession, req *fairleadv1.ReportRequest) *fairleadv1.ReportResponse {
	answer := &fairleadv1.ReportResponse{}
	if len(req.GetOutcomes()) > reportOutcomesMax {
		c.violations = append(c.violations, fmt.Sprintf("%d outcomes in a report", len(req.GetOutcomes())))
	}
	for _, o := range req.GetOutcomes() {
		if first, ok := s.seen[o.GetToken()]; ok {
			c.violations = append(c.violations, fmt.Sprintf("%s answered for in reports %d and %d", o.GetToken(), first, req.GetSequence()))
		}
		s.seen[o.GetToken()] = req.GetSequence()
		answer.Results = append(answer.Results, c.outcomeLocked(s, o))
	}
	for _, e := range req.GetExtensions() {
		c.extensions++
		j := c.jobs[e.GetJobId()]
		if j.leased && j.lease.GetToken() == e.GetToken() {
			j.expires = time.Now().Add(j.lease.GetLeaseDuration().AsDuration())
		} else {
			answer.Cancels = append(answer.Cancels, &fairleadv1.LeaseRef{JobId: e.GetJobId(), Token: e.GetToken()})
		}
	}
	answer.Leases = c.grantLocked(s, int(req.GetMaxJobs()), grantedBy{report: req.GetSequence()}, 0)
	return answer
}

func (c *fakeCell) outcomeLocked(s *fakeSession, o *fairleadv1.Outcome) *fairleadv1.OutcomeResult {
	j := c.jobs[o.GetJobId()]
	if !j.leased || j.lease.GetToken() != o.GetToken() {
		return &fairleadv1.OutcomeResult{Rejection: &fairleadv1.Rejection{Code: "aborted", Reason: "LEASE_GONE"}}
	}
	j.outcomes = append(j.outcomes, o)
	if o.GetRelease() != nil {
		c.freeLocked(s, j)
		return &fairleadv1.OutcomeResult{State: fairleadv1.JobState_JOB_STATE_READY}
	}
	delete(s.grants, o.GetToken())
	j.leased, j.done = false, true
	c.wakeLocked()
	return &fairleadv1.OutcomeResult{State: fairleadv1.JobState_JOB_STATE_SUCCEEDED}
}

// cancel ends a leased job, as if somebody had cancelled it.
func (c *fakeCell) cancel(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[id]
	j.leased, j.done = false, true
	if c.session != nil {
		delete(c.session.grants, j.lease.GetToken())
	}
	c.wakeLocked()
}

// restart forgets the session and gives every lease back, as a cell that lost them would.
func (c *fakeCell) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.session.grants {
		c.freeLocked(c.session, g.job)
	}
	c.session = nil
}

func (c *fakeCell) setFault(f func(call string, n int) fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// tally is what a test looks at.
type tally struct {
	done, ready, leased, released, freed int
	violations                           []string
}

func (c *fakeCell) tally() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := tally{violations: slices.Clone(c.violations)}
	for _, j := range c.jobs {
		switch {
		case j.done:
			t.done++
		case j.leased:
			t.leased++
		default:
			t.ready++
		}
		t.freed += j.freed
		for _, o := range j.outcomes {
			if o.GetRelease() != nil {
				t.released++
			}
		}
	}
	return t
}

func (c *fakeCell) outcomeOf(id string) *fairleadv1.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.jobs[id].outcomes; len(o) > 0 {
		return o[len(o)-1]
	}
	return nil
}

// refuseAll answers every call with code from now on.
func (c *fakeCell) refuseAll(code connect.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = rejection.New(code, &fairleadv1.Rejection{Reason: "TEST", Message: "no"})
	c.wakeLocked()
}
