package cellserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	"github.com/fairlead/fairlead/cell/sched"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Workers serves WorkerService: the platform's workers, and a tenant's own.
type Workers struct{ server *Server }

var _ fairleadv1connect.WorkerServiceHandler = Workers{}

// Workers returns the handler of WorkerService.
func (s *Server) Workers() Workers { return Workers{server: s} }

// Lease waits for jobs.
func (h Workers) Lease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	s := h.server
	p, err := s.poll(ctx, req)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	var leases []leader.Leased
	if p.Session.Tenant != "" {
		leases, err = s.pollOwn(ctx, p)
	} else if err = s.do(ctx, &leader.Call{Poll: p}); err == nil {
		leases = p.Leases
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	var away notice
	s.whereHeld(&away, p.Session.Tenant, p.Held)
	away.tell(ctx)
	return &fairleadv1.LeaseResponse{Leases: leasesTo(leases), Session: p.Session.Name}, nil
}

// poll checks a worker's request, and returns it as the leader takes it.
func (s *Server) poll(ctx context.Context, req *fairleadv1.LeaseRequest) (*leader.Poll, error) {
	caller, ok := s.cfg.Caller(ctx)
	if !ok {
		return nil, errNoCaller
	}
	p := &leader.Poll{
		Session: leader.SessionID{Tenant: caller.Tenant, Name: req.GetSession()}, Worker: req.GetWorker(),
		Slots: int64(req.GetSlots()), Prefetch: int64(req.GetPrefetch()), Sequence: req.GetSequence(),
		ReportSequence: req.GetReportSequence(), Want: int(req.GetMaxJobs()),
	}
	if p.Slots == 0 {
		p.Slots = max(1, int64(req.GetMaxJobs()))
	}
	if p.Want == 0 {
		p.Want = int(p.Slots + p.Prefetch)
	}
	if p.Session.Name == "" {
		p.Session.Name = uuid.NewString()
	}
	if p.Worker == "" {
		p.Worker = p.Session.Name
	}
	checks := []func() error{
		func() error { return cell.CheckID("session", p.Session.Name) },
		func() error { return cell.CheckID("worker", p.Worker) },
		func() error { return admit.Room("slots", p.Slots, 1) },
		func() error { return admit.Room("prefetch", p.Prefetch, 0) },
		func() error { return admit.Room("max_jobs", int64(p.Want), 1) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if err := pollOffer(p, caller, req); err != nil {
		return nil, err
	}
	group, err := cell.CheckWorkerGroup("group", int64(req.GetGroup()))
	if err != nil {
		return nil, err
	}
	p.Group = group
	if err := pollClasses(p, req); err != nil {
		return nil, err
	}
	if err := s.pollTimes(p, req); err != nil {
		return nil, err
	}
	p.Held, err = refsOf("held", req.GetHeld())
	return p, err
}

// pollOffer takes the operations that the worker offers and its key may lease.
func pollOffer(p *leader.Poll, caller cell.Caller, req *fairleadv1.LeaseRequest) error {
	n := len(req.GetOperations())
	if n < 1 || n > sched.OperationsMax {
		return &cell.FieldError{
			Field: "operations", Problem: fmt.Sprintf("has %d, outside 1 to %d", n, sched.OperationsMax),
			Remedy: "offer the operations that the worker has handlers for",
		}
	}
	for i, name := range req.GetOperations() {
		op, err := cell.ParseOperation(fmt.Sprintf("operations[%d]", i), name)
		if err != nil {
			return err
		}
		if !caller.MayLease(op) {
			return &cell.FieldError{
				Field: fmt.Sprintf("operations[%d]", i), Problem: fmt.Sprintf("%q is not one that this key may lease", name),
				Remedy: "use a key that may, or leave it out",
			}
		}
		p.Operations = append(p.Operations, op)
	}
	p.Operations = sched.SortOperations(p.Operations)
	return nil
}

func pollClasses(p *leader.Poll, req *fairleadv1.LeaseRequest) error {
	p.Classes = [2]bool{len(req.GetClasses()) == 0, len(req.GetClasses()) == 0}
	for i, c := range req.GetClasses() {
		class, err := classOf(fmt.Sprintf("classes[%d]", i), c)
		if err != nil {
			return err
		}
		p.Classes[class.Index()] = true
	}
	return nil
}

func (s *Server) pollTimes(p *leader.Poll, req *fairleadv1.LeaseRequest) error {
	wait, err := durationOf("wait", req.GetWait())
	if err != nil {
		return err
	}
	if req.GetWait() == nil {
		wait = admit.WaitDefault
	} else if _, err := admit.Wait("wait", wait, 0); err != nil {
		return err
	}
	p.Until = s.now().Add(wait)
	d, err := durationOf("lease_duration", req.GetLeaseDuration())
	if err != nil {
		return err
	}
	p.LeaseDuration, err = admit.LeaseDuration("lease_duration", d)
	return err
}

// Report hands in outcomes and extensions, and fetches the next jobs.
func (h Workers) Report(ctx context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	s := h.server
	r, results, err := s.report(ctx, req)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	resp := &fairleadv1.ReportResponse{Leases: leasesTo(r.Leases), Results: make([]*fairleadv1.OutcomeResult, len(results))}
	items := make([]fairleadv1.OutcomeResult, len(results))
	var away notice
	for i := range results {
		away.heedOf(results[i].Err, r.Session.Tenant)
		items[i].State, items[i].Rejection = stateTo(results[i].State), s.item(results[i].Err)
		resp.Results[i] = &items[i]
	}
	for _, c := range s.stops(ctx, r.Cancels) {
		resp.Cancels = append(resp.Cancels, &fairleadv1.LeaseRef{JobId: c.JobID.String(), Token: c.Token.String()})
	}
	s.whereHeld(&away, r.Session.Tenant, r.Elsewhere)
	away.tell(ctx)
	return resp, nil
}

// stops returns those of the leases to stop that the worker is to be told of, which are all but in a report that was forwarded: what is not known here
// goes on elsewhere.
func (s *Server) stops(ctx context.Context, cancels []leader.LeaseRef) []leader.LeaseRef {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok || info.RequestHeader().Get(HeaderLaneForwarded) != "1" {
		return cancels
	}
	info.ResponseHeader().Set(HeaderLaneForwarded, "1")
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.DeleteFunc(cancels, func(x leader.LeaseRef) bool { return s.state.Job(x.JobID) == nil })
}

// report puts a worker's report to the leader, and returns it with one result for each outcome. An outcome that is at fault is refused alone.
func (s *Server) report(ctx context.Context, req *fairleadv1.ReportRequest) (*leader.Report, []engine.Result, error) {
	caller, ok := s.cfg.Caller(ctx)
	if !ok {
		return nil, nil, errNoCaller
	}
	r := &leader.Report{
		Session: leader.SessionID{Tenant: caller.Tenant, Name: req.GetSession()}, Sequence: req.GetSequence(), Want: int(req.GetMaxJobs()),
	}
	if caller.Tenant != "" {
		var err error
		if r.Epochs, err = epochsOf(ctx); err != nil {
			return nil, nil, err
		}
	}
	n := len(req.GetOutcomes())
	if n > 0 {
		if err := admit.Batch("outcomes", n); err != nil {
			return nil, nil, err
		}
	}
	if err := admit.Room("max_jobs", int64(r.Want), 0); err != nil {
		return nil, nil, err
	}
	if r.Session.Name != "" {
		if err := cell.CheckID("session", r.Session.Name); err != nil {
			return nil, nil, err
		}
	}
	results := make([]engine.Result, n)
	at := s.outcomes(r, req.GetOutcomes(), results)
	for i, x := range req.GetExtensions() {
		ref, err := refOf(x)
		if err != nil {
			return nil, nil, under(fmt.Sprintf("extensions[%d].", i), err)
		}
		r.Extensions = append(r.Extensions, ref)
	}
	reign := s.reigns.Load()
	if err := s.do(ctx, &leader.Call{Report: r}); err != nil {
		return nil, nil, err
	}
	for k, i := range at {
		results[i] = r.Results[k]
		if errors.Is(results[i].Err, engine.ErrJobUnknown) {
			results[i].Err = s.followed(results[i].Err, caller.Tenant, r.Outcomes[k].JobID)
		}
	}
	if caller.Tenant != "" {
		for i := range results {
			results[i].Err = s.placed(results[i].Err, caller.Tenant)
		}
	}
	s.followStops(r)
	if slices.ContainsFunc(results, func(x engine.Result) bool { return x.Err != nil }) {
		return r, results, s.confirmRefusal(ctx, reign)
	}
	return r, results, nil
}

// outcomes adds the outcomes to the report, and returns where each of those stands among all. One that is at fault is refused in the results.
func (s *Server) outcomes(r *leader.Report, all []*fairleadv1.Outcome, results []engine.Result) (at []int) {
	at = make([]int, 0, len(all))
	r.Outcomes = make([]leader.Outcome, 0, len(all))
	for i, m := range all {
		o, err := s.outcome(m)
		if err != nil {
			results[i].Err = under(fmt.Sprintf("outcomes[%d].", i), err)
			continue
		}
		if !s.mayKnow(r.Session.Tenant, o.JobID) {
			results[i].Err = s.followed(engine.ErrJobUnknown, r.Session.Tenant, o.JobID)
			continue
		}
		r.Outcomes = append(r.Outcomes, o)
		at = append(at, i)
	}
	return at
}

// outcome returns an outcome as the leader takes it. Its errors name fields as the outcome has them.
func (s *Server) outcome(m *fairleadv1.Outcome) (leader.Outcome, error) {
	var o leader.Outcome
	var err error
	if o.JobID, err = cell.ParseJobID("job_id", m.GetJobId()); err != nil {
		return o, err
	}
	if o.Token, err = engine.ParseToken("token", m.GetToken()); err != nil {
		return o, err
	}
	if o.RunTime, err = durationOf("run_time", m.GetRunTime()); err != nil {
		return o, err
	}
	if o.Used, err = resourcesOf("resources", m.GetResources()); err != nil {
		return o, err
	}
	switch r := m.GetResult().(type) {
	case *fairleadv1.Outcome_Success:
		o.Kind = engine.OutcomeSuccess
		if o.Result, err = payloadOf("success.result", r.Success.GetResult()); err != nil {
			return o, err
		}
		err = s.cfg.Admit.Result("success.result", &o.Result)
	case *fairleadv1.Outcome_Failure:
		o.Kind = engine.OutcomeFailure
		if r.Failure.GetFatal() {
			o.Kind = engine.OutcomeFatal
		}
		o.Error = r.Failure.GetError()
		o.Delay, err = boundedDelay("failure.retry_after", r.Failure.GetRetryAfter().AsDuration())
	case *fairleadv1.Outcome_Release:
		o.Kind = engine.OutcomeRelease
		o.Delay, err = boundedDelay("release.delay", r.Release.GetDelay().AsDuration())
	default:
		err = &cell.FieldError{Field: "result", Problem: "is missing", Remedy: "give success, failure or release"}
	}
	return o, err
}

// mayKnow reports whether a worker may learn what became of a job: a tenant's own must not learn of another tenant's that there is one.
func (s *Server) mayKnow(tenant cell.TenantID, id cell.JobID) bool {
	if tenant == "" {
		return true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.JobOf(tenant, id) != nil
}

// boundedDelay returns how long a job is put off by its worker, and a *cell.FieldError when that is out of its bounds.
func boundedDelay(field string, d time.Duration) (time.Duration, error) {
	if d < 0 || d > admit.DelayMax {
		return 0, &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %v, outside 0 to 365 days", d), Remedy: "give one inside"}
	}
	return d, nil
}

func refsOf(field string, refs []*fairleadv1.LeaseRef) ([]leader.LeaseRef, error) {
	held := make([]leader.LeaseRef, 0, len(refs))
	for i, x := range refs {
		ref, err := refOf(x)
		if err != nil {
			return nil, under(fmt.Sprintf("%s[%d].", field, i), err)
		}
		held = append(held, ref)
	}
	return held, nil
}

// leaseName is what both LeaseRef and Extension are.
type leaseName interface {
	GetJobId() string
	GetToken() string
}

func refOf(x leaseName) (leader.LeaseRef, error) {
	id, err := cell.ParseJobID("job_id", x.GetJobId())
	if err != nil {
		return leader.LeaseRef{}, err
	}
	token, err := engine.ParseToken("token", x.GetToken())
	return leader.LeaseRef{JobID: id, Token: token}, err
}

func leasesTo(leases []leader.Leased) []*fairleadv1.JobLease {
	if len(leases) == 0 {
		return nil
	}
	out := make([]*fairleadv1.JobLease, len(leases))
	items := make([]fairleadv1.JobLease, len(leases))
	var execution, duration lastDuration
	for i := range leases {
		le, m := &leases[i], &items[i]
		m.JobId, m.Token, m.Attempt = le.JobID.String(), le.Token.String(), le.Attempt
		m.Tenant, m.Class, m.Operation = string(le.Lane.Tenant), classTo(le.Lane.Class), string(le.Spec.Operation)
		m.Payload, m.Labels, m.Traceparent = payloadTo(&le.Spec.Payload), labelsTo(le.Spec.Labels), le.Spec.Traceparent
		m.CreateTime, m.NotBefore, m.Deadline = timeTo(le.Created), timeTo(le.Spec.NotBefore), timeTo(le.Spec.Deadline)
		m.ExecutionTimeout, m.LeaseDuration = execution.to(le.Spec.ExecutionTimeout), duration.to(le.Duration)
		out[i] = m
	}
	return out
}

// lastDuration makes one message of durations that follow each other and are the same, as those of an answer mostly are. Nothing changes an
// answer.
type lastDuration struct {
	of      time.Duration
	message *durationpb.Duration
}

func (l *lastDuration) to(d time.Duration) *durationpb.Duration {
	if l.of != d {
		l.of, l.message = d, durationTo(d)
	}
	return l.message
}
