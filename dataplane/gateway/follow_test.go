package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

func spec(class fairleadv1.Class, operation string) *fairleadv1.JobSpec {
	return &fairleadv1.JobSpec{Operation: operation, Class: class}
}

const (
	interactive = fairleadv1.Class_CLASS_INTERACTIVE
	batchClass  = fairleadv1.Class_CLASS_BATCH
)

// A tenant's clients and workers go on while its lanes move to and fro, are given back, and the gateway hears of it late: nobody sees an error,
// each job that was accepted is at its lane's owner once, answers belong to what was asked, and each completion is taken once.
func TestTenantMovesUnderLoad(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				newLoad(t, rand.New(rand.NewPCG(seed, 7))).runLoad()
			})
		})
	}
}

// load is a tenant's clients and workers.
type load struct {
	*lanes
	t   *testing.T
	rng *rand.Rand

	done     chan struct{}
	mu       sync.Mutex
	accepted map[string]string // the operation of each job that was accepted
	reported map[string]bool   // whose completion was taken
}

func newLoad(t *testing.T, rng *rand.Rand) *load {
	return &load{lanes: newLanes(t, nil), t: t, rng: rng, done: make(chan struct{}), accepted: map[string]string{}, reported: map[string]bool{}}
}

func (l *load) runLoad() {
	var clients sync.WaitGroup
	names := []string{"connect", "json", "grpc", "grpc-web", "gzip"}
	for n := range 5 {
		service := l.jobService(protocols()[names[n]]...)
		seed := l.rng.Uint64()
		clients.Go(func() { l.clientLoad(service, rand.New(rand.NewPCG(seed, 1)), n) })
		options := protocols()[names[n]]
		clients.Go(func() { l.workerLoad(l.workerService("t-a", "", options...), "own") })
		clients.Go(func() { l.workerLoad(l.workerService("platform", "a", options...), "a") })
		clients.Go(func() { l.workerLoad(l.workerService("platform", "b", options...), "b") })
	}
	for range 12 {
		l.stepLoad()
	}
	close(l.done)
	clients.Wait()
	l.end()
	l.check()
}

func (l *load) some(most time.Duration) time.Duration { return rand.N(most) + time.Millisecond }

// stepLoad moves a lane, or does not after all.
func (l *load) stepLoad() {
	time.Sleep(l.some(2 * time.Second))
	ln := lane(cell.Classes()[l.rng.IntN(2)])
	l.lanes.mu.Lock()
	from, _ := l.owner(ln)
	l.lanes.mu.Unlock()
	l.fence(ln)
	time.Sleep(l.some(300 * time.Millisecond))
	if l.rng.IntN(3) == 0 {
		l.unfenceLane(ln, l.some(time.Second))
		return
	}
	to := cell.ID("a")
	if from.id == to {
		to = "b"
	}
	l.commitLane(ln, to, l.some(100*time.Millisecond), l.some(time.Second))
}

func (l *load) running() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

func (l *load) accept(id, operation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, twice := l.accepted[id]; twice || id == "" {
		l.t.Errorf("%q is the id of %q and %q", id, operation, other)
	}
	l.accepted[id] = operation
}

// clientLoad submits and looks, one call after the other.
func (l *load) clientLoad(service fairleadv1connect.JobServiceClient, rng *rand.Rand, n int) {
	var mine []string
	for k := 0; l.running(); k++ {
		time.Sleep(rand.N(30 * time.Millisecond))
		ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
		operation := fmt.Sprintf("op-%d-%d", n, k)
		var err error
		switch rng.IntN(5) {
		case 0, 1:
			var resp *fairleadv1.SubmitResponse
			resp, err = service.Submit(ctx, &fairleadv1.SubmitRequest{Job: spec(fairleadv1.Class(rng.IntN(3)), operation)})
			if err == nil {
				l.accept(resp.GetJobId(), operation)
				mine = append(mine, resp.GetJobId())
			}
		case 2:
			err = l.batch(ctx, service, rng, operation)
		case 3:
			if len(mine) > 0 {
				var resp *fairleadv1.GetJobResponse
				id := mine[rng.IntN(len(mine))]
				resp, err = service.GetJob(ctx, &fairleadv1.GetJobRequest{JobId: id})
				if err == nil && resp.GetJob().GetOperation() != l.operation(id) {
					l.t.Errorf("%s is %v", id, resp)
				}
			}
		default:
			if len(mine) > 0 {
				_, err = service.WaitJob(ctx, &fairleadv1.WaitJobRequest{JobId: mine[len(mine)-1], Timeout: durationpb.New(10 * time.Second)})
			}
		}
		cancel()
		if err != nil {
			l.t.Errorf("%s: %v", operation, err)
		}
	}
}

func (l *load) operation(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted[id]
}

// batch submits some jobs of both classes, among them bad ones, and checks that each answer is its job's.
func (l *load) batch(ctx context.Context, service fairleadv1connect.JobServiceClient, rng *rand.Rand, operation string) error {
	req := &fairleadv1.SubmitBatchRequest{}
	for i := range 1 + rng.IntN(20) {
		name := fmt.Sprintf("%s-%d", operation, i)
		if rng.IntN(8) == 0 {
			name = "bad"
		}
		req.Jobs = append(req.Jobs, spec(fairleadv1.Class(rng.IntN(3)), name))
	}
	resp, err := service.SubmitBatch(ctx, req)
	if err != nil {
		return err
	}
	if len(resp.GetResults()) != len(req.GetJobs()) {
		l.t.Errorf("%d answers for %d jobs", len(resp.GetResults()), len(req.GetJobs()))
		return nil
	}
	for i, r := range resp.GetResults() {
		name := req.GetJobs()[i].GetOperation()
		field := fmt.Sprintf("jobs[%d].operation", i)
		switch {
		case name == "bad" && (r.GetRejection().GetField() != field || r.GetRejection().GetMessage() != field+" is bad"):
			l.t.Errorf("a bad job at %d: %v", i, r)
		case name != "bad" && r.GetRejection() != nil:
			l.t.Errorf("a good job at %d: %v", i, r)
		case name != "bad":
			l.accept(r.GetJobId(), name)
		}
	}
	return nil
}

// workerLoad leases, extends, and reports.
func (l *load) workerLoad(service fairleadv1connect.WorkerServiceClient, name string) {
	for l.running() {
		ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
		resp, err := service.Lease(ctx, &fairleadv1.LeaseRequest{
			Session: name, Operations: []string{"op"}, MaxJobs: 5, Wait: durationpb.New(rand.N(3 * time.Second)),
		})
		if err != nil {
			l.t.Errorf("lease of %s: %v", name, err)
		}
		req := &fairleadv1.ReportRequest{Session: name}
		extend := &fairleadv1.ReportRequest{Session: name}
		for _, x := range resp.GetLeases() {
			req.Outcomes = append(req.Outcomes, &fairleadv1.Outcome{
				JobId: x.GetJobId(), Token: x.GetToken(), Result: &fairleadv1.Outcome_Success{Success: &fairleadv1.Success{}},
			})
			extend.Extensions = append(extend.Extensions, &fairleadv1.Extension{JobId: x.GetJobId(), Token: x.GetToken()})
		}
		for range rand.IntN(4) {
			time.Sleep(rand.N(500 * time.Millisecond))
			if resp, err := service.Report(ctx, extend); err != nil || len(resp.GetCancels()) > 0 {
				l.t.Errorf("extension by %s: %v, %v", name, resp, err)
			}
		}
		if len(req.GetOutcomes()) > 0 {
			l.report(ctx, service, name, req)
		}
		cancel()
	}
}

func (l *load) report(ctx context.Context, service fairleadv1connect.WorkerServiceClient, name string, req *fairleadv1.ReportRequest) {
	resp, err := service.Report(ctx, req)
	if err != nil || len(resp.GetResults()) != len(req.GetOutcomes()) {
		l.t.Errorf("report of %s: %v, %v", name, resp, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range resp.GetResults() {
		id := req.GetOutcomes()[i].GetJobId()
		if r.GetRejection() != nil || r.GetState() != fairleadv1.JobState_JOB_STATE_SUCCEEDED || l.reported[id] {
			l.t.Errorf("outcome of %s by %s: %v", id, name, r)
		}
		l.reported[id] = true
	}
}

// check compares what clients and workers were told with what the owners have.
func (l *load) check() {
	there := map[string]int{}
	for _, class := range cell.Classes() {
		_, ln := l.owner(lane(class))
		places := map[string]int{} // of the last job of each batch
		for _, j := range ln.jobs {
			there[j.id]++
			var n, k, i int
			if parts, _ := fmt.Sscanf(j.operation, "op-%d-%d-%d", &n, &k, &i); parts == 3 {
				name := fmt.Sprintf("%d-%d", n, k)
				if i < places[name] {
					l.t.Errorf("%s comes after the batch's %d in its lane", j.operation, places[name])
				}
				places[name] = i
			}
			if l.accepted[j.id] != j.operation || l.reported[j.id] != j.done || j.taken > 1 {
				l.t.Errorf("%+v: accepted as %q, reported %v", j, l.accepted[j.id], l.reported[j.id])
			}
		}
	}
	for id := range l.accepted {
		if there[id] != 1 {
			l.t.Errorf("%s is there %d times", id, there[id])
		}
	}
	if len(there) != len(l.accepted) || len(there) < 100 || len(l.reported) < 50 {
		l.t.Errorf("%d jobs are there, %d were accepted, %d reported", len(there), len(l.accepted), len(l.reported))
	}
}

// Where no lane has moved, a request is one call of one cell.
func TestStillTenantIsOneCall(t *testing.T) {
	for name, options := range protocols() {
		synctest.Test(t, func(t *testing.T) {
			w := newLanes(t, nil)
			defer w.end()
			s, ctx := w.jobService(options...), t.Context()
			resp, err := s.SubmitBatch(ctx, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{spec(interactive, "x"), spec(batchClass, "y")}})
			if err != nil {
				t.Fatal(name, err)
			}
			id := resp.GetResults()[0].GetJobId()
			_, err1 := s.GetJob(ctx, &fairleadv1.GetJobRequest{JobId: id})
			list, err2 := s.ListJobs(ctx, &fairleadv1.ListJobsRequest{PageSize: 10})
			_, err3 := w.workerService("platform", "a", options...).Report(ctx, &fairleadv1.ReportRequest{
				Session: "s", Extensions: []*fairleadv1.Extension{{JobId: id, Token: "x"}},
			})
			if err1 != nil || err2 != nil || err3 != nil || len(list.GetJobs()) != 2 || w.cells["a"].calls != 4 || w.cells["b"].calls != 0 {
				t.Errorf("%s: %v, %v, %v, %v after %d calls", name, err1, err2, err3, list, w.cells["a"].calls)
			}
			_, err = s.GetJob(ctx, &fairleadv1.GetJobRequest{JobId: "nobody's"})
			if connect.CodeOf(err) != connect.CodeNotFound || w.cells["a"].calls != 5 {
				t.Errorf("%s: %v after %d calls", name, err, w.cells["a"].calls)
			}
		})
	}
}

// A request waits for a fenced lane and no longer than it may; then nothing was done, and the caller is told when to come back.
func TestFencedTooLong(t *testing.T) {
	for name, options := range protocols() {
		synctest.Test(t, func(t *testing.T) {
			w := newLanes(t, nil)
			defer w.end()
			s := w.jobService(options...)
			first, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(batchClass, "x")})
			if err != nil {
				t.Fatal(err)
			}
			w.fence(lane(cell.ClassBatch))
			calls := map[string]func(context.Context) error{
				"submit": func(ctx context.Context) error {
					_, err := s.Submit(ctx, &fairleadv1.SubmitRequest{Job: spec(batchClass, "x")})
					return err
				},
				"get": func(ctx context.Context) error {
					_, err := s.GetJob(ctx, &fairleadv1.GetJobRequest{JobId: first.GetJobId()})
					return err
				},
				"wait": func(ctx context.Context) error {
					_, err := s.WaitJob(ctx, &fairleadv1.WaitJobRequest{JobId: first.GetJobId()})
					return err
				},
				"list": func(ctx context.Context) error {
					_, err := s.ListJobs(ctx, &fairleadv1.ListJobsRequest{PageSize: 1})
					return err
				},
			}
			for what, do := range calls {
				began := time.Now()
				err := do(t.Context())
				r := rejection.From(err)
				if took := time.Since(began); connect.CodeOf(err) != connect.CodeUnavailable || r.GetReason() != rejection.ReasonNotApplied ||
					r.GetRetryAfter().AsDuration() != time.Second || took != 5*time.Second {
					t.Errorf("%s of %s: %v after %v", name, what, err, took)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				began = time.Now()
				err = do(ctx)
				if took := time.Since(began); connect.CodeOf(err) != connect.CodeUnavailable || took < 850*time.Millisecond || took > 950*time.Millisecond {
					t.Errorf("%s of %s with a deadline: %v after %v", name, what, err, took)
				}
				cancel()
			}
			// Of a batch the other lane's jobs are accepted.
			resp, err := s.SubmitBatch(t.Context(), &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{
				spec(batchClass, "x"), spec(interactive, "y"), spec(batchClass, "z"),
			}})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range resp.GetResults() {
				if i == 1 && r.GetJobId() == "" || i != 1 && (r.GetRejection().GetReason() != rejection.ReasonNotApplied || r.GetRejection().GetCode() != "unavailable") {
					t.Errorf("%s: job %d: %v", name, i, r)
				}
			}
			if _, ln := w.owner(lane(cell.ClassBatch)); len(ln.jobs) != 1 {
				t.Errorf("%d jobs", len(ln.jobs))
			}
		})
	}
}

// As soon as the routes say that a fenced lane is elsewhere, those who wait for it go there.
func TestWakesWithTheRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLanes(t, nil)
		defer w.end()
		s := w.jobService()
		for _, class := range cell.Classes() {
			w.fence(lane(class))
			time.AfterFunc(450*time.Millisecond, func() { w.commitLane(lane(class), "b", 0, 0) })
			began := time.Now()
			_, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(fairleadv1.Class(class), "x")})
			if took := time.Since(began); err != nil || took != 450*time.Millisecond {
				t.Errorf("%v: %v after %v", class, err, took)
			}
		}
		// A home that opens the lane only a little later does not make them wait for much longer than that.
		const opens = 30 * time.Millisecond
		for range 20 {
			w.fence(lane(cell.ClassBatch))
			time.AfterFunc(450*time.Millisecond, func() { w.commitLane(lane(cell.ClassBatch), "a", opens, 0) })
			began := time.Now()
			_, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(batchClass, "x")})
			if took := time.Since(began) - 450*time.Millisecond; err != nil || took < opens || took > opens+2*againMin {
				t.Errorf("%v after %v", err, took)
			}
			w.fence(lane(cell.ClassBatch))
			w.commitLane(lane(cell.ClassBatch), "b", 0, 0)
			w.updates.Wait()
		}
		// With the batch lane and then the other there, a is not asked any more.
		before := w.cells["a"].calls
		if _, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(interactive, "x")}); err != nil || w.cells["a"].calls != before {
			t.Errorf("%v after %d calls", err, w.cells["a"].calls-before)
		}
	})
}

// A gateway that has not heard of a move is told so by the cell, and waits for control's word; it never goes anywhere else.
func TestStaleGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLanes(t, nil)
		defer w.end()
		s := w.jobService()
		first, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(interactive, "x")})
		if err != nil {
			t.Fatal(err)
		}
		for _, class := range cell.Classes() {
			w.fence(lane(class))
			w.commitLane(lane(class), "b", 0, 20*time.Second)
		}
		began := time.Now()
		_, err = s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(interactive, "x")})
		if took := time.Since(began); connect.CodeOf(err) != connect.CodeUnavailable || took != 5*time.Second || w.cells["b"].calls != 0 {
			t.Errorf("%v after %v, and %d calls of b", err, took, w.cells["b"].calls)
		}
		time.Sleep(12 * time.Second)
		w.cells["a"].lanes[lane(cell.ClassInteractive)].jobs = nil // it was wiped
		for _, id := range []string{first.GetJobId(), "nobody's"} {
			// What the cell does not know may be at the new home: that it is nowhere is known once that has been asked.
			_, err = s.GetJob(t.Context(), &fairleadv1.GetJobRequest{JobId: id})
			if id == first.GetJobId() && err != nil || id != first.GetJobId() && connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

// What neither home has is not found, and both were asked.
func TestAbsentFromBothHomes(t *testing.T) {
	for name, options := range protocols() {
		synctest.Test(t, func(t *testing.T) {
			w := newLanes(t, nil)
			defer w.end()
			s := w.jobService(options...)
			w.fence(lane(cell.ClassBatch))
			w.commitLane(lane(cell.ClassBatch), "b", 0, 0)
			w.updates.Wait()
			there, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(batchClass, "x")})
			if err != nil {
				t.Fatal(err)
			}
			a, b := w.cells["a"].calls, w.cells["b"].calls
			if _, err := s.GetJob(t.Context(), &fairleadv1.GetJobRequest{JobId: there.GetJobId()}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_, err = s.GetJob(t.Context(), &fairleadv1.GetJobRequest{JobId: "nobody's"})
			_, err2 := s.WaitJob(t.Context(), &fairleadv1.WaitJobRequest{JobId: "nobody's"})
			if connect.CodeOf(err) != connect.CodeNotFound || connect.CodeOf(err2) != connect.CodeNotFound ||
				rejection.From(err).GetReason() != rejection.ReasonNotFound || rejection.From(err2).GetReason() != rejection.ReasonNotFound ||
				w.cells["a"].calls != a+3 || w.cells["b"].calls != b+3 {
				t.Errorf("%s: %v, %v after %d and %d calls", name, err, err2, w.cells["a"].calls-a, w.cells["b"].calls-b)
			}
		})
	}
}

// A wait for a job that moves ends when it would have.
func TestWaitJobAcrossMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLanes(t, nil)
		defer w.end()
		s := w.jobService()
		j, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(batchClass, "x")})
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Duration{15 * time.Second, 30 * time.Second} {
			time.AfterFunc(at, func() {
				w.fence(lane(cell.ClassBatch))
				time.Sleep(4 * time.Second) // together they are longer than one wait may be
				to := cell.ID("b")
				if at > 20*time.Second {
					to = "a"
				}
				w.commitLane(lane(cell.ClassBatch), to, 0, 0)
			})
		}
		began := time.Now()
		resp, err := s.WaitJob(t.Context(), &fairleadv1.WaitJobRequest{JobId: j.GetJobId(), Timeout: durationpb.New(50 * time.Second)})
		if took := time.Since(began); err != nil || resp.GetDone() || took < 50*time.Second || took > 51*time.Second {
			t.Errorf("%v, %v after %v", resp, err, took)
		}
	})
}

// The room for those that wait is a tenant's own up to its bound, and what one has none is another's: neither is ever short because of it.
func TestWaitingBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLanes(t, func(c *ForwardConfig) { c.WaitingMax, c.WaitingPerTenantMax = 20, 5 })
		defer w.end()
		for _, class := range cell.Classes() {
			w.fence(lane(class))
			w.fence(cell.Lane{Tenant: "t-b", Class: class})
		}
		refused := func(key Secret, n int) map[string]int {
			var wg sync.WaitGroup
			var mu sync.Mutex
			limits := map[string]int{}
			for range n {
				wg.Go(func() {
					s := fairleadv1connect.NewJobServiceClient(through{w: w.world, key: key}, "https://gateway")
					began := time.Now()
					_, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(interactive, "x")})
					r := rejection.From(err)
					if connect.CodeOf(err) != connect.CodeUnavailable || r.GetReason() != rejection.ReasonNotApplied || r.GetRetryAfter() == nil ||
						(r.GetLimit() == "") != (time.Since(began) == 5*time.Second) {
						t.Errorf("%v after %v", err, time.Since(began))
					}
					mu.Lock()
					limits[r.GetLimit()]++
					mu.Unlock()
				})
			}
			wg.Wait()
			return limits
		}
		if got := refused("t-a", 8); got[LimitWaitingPerTenant] < 3 || got[""] != 8-got[LimitWaitingPerTenant] || got[""] < 1 {
			t.Errorf("of eight: %v", got)
		}
		var wg sync.WaitGroup
		wg.Go(func() { refused("t-a", 100) })
		synctest.Wait()
		u := w.fwd.upstreams["a"]
		u.mu.Lock()
		if c := u.counts; c.inFlight != 0 || c.bytes != 0 || c.parked != 0 || w.fwd.waiting.tenants["t-a"].inFlight != 5 || w.fwd.waiting.bytes == 0 {
			t.Errorf("those that wait hold %+v of the cell's room, and %+v of their own", c, w.fwd.waiting.tenants)
		}
		u.mu.Unlock()
		if got := refused("t-b", 2); got[""] != 2 {
			t.Errorf("of another tenant's two: %v", got)
		}
		wg.Wait()
	})
}

// The bounds hold whoever comes, in whatever order: a tenant within its own bound is refused by the whole's alone, and what has left is free.
func TestWaitingModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	cfg := ForwardConfig{WaitingMax: 20, WaitingPerTenantMax: 5, WaitingBytesMax: 400, WaitingBytesPerTenantMax: 100}
	p := waiting{cfg: &cfg, tenants: map[cell.TenantID]share{}}
	type in struct {
		tenant cell.TenantID
		bytes  int64
	}
	var there []in
	for range 20_000 {
		if len(there) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(there))
			p.leave(there[i].tenant, there[i].bytes)
			there = slices.Delete(there, i, i+1)
			continue
		}
		x := in{cell.TenantID(fmt.Sprint(rng.IntN(8))), rng.Int64N(60)}
		count, bytes, own, ownBytes := 1, x.bytes, 1, x.bytes
		for _, y := range there {
			count, bytes = count+1, bytes+y.bytes
			if y.tenant == x.tenant {
				own, ownBytes = own+1, ownBytes+y.bytes
			}
		}
		want := ""
		switch {
		case own > 5:
			want = LimitWaitingPerTenant
		case ownBytes > 100:
			want = LimitWaitingBytesPerTenant
		case count > 20:
			want = LimitWaiting
		case bytes > 400:
			want = LimitWaitingBytes
		}
		err := p.enter(x.tenant, x.bytes)
		if got := rejection.From(err).GetLimit(); got != want || (err == nil) != (want == "") {
			t.Fatalf("%+v among %+v: %v, want %q", x, there, err, want)
		}
		if err == nil {
			there = append(there, x)
		}
	}
}

// A list of a tenant whose lanes come apart and together again has each job once, whatever pages it is read in.
func TestListAcrossMoves(t *testing.T) {
	for name, options := range protocols() {
		for seed := range uint64(6) {
			synctest.Test(t, func(t *testing.T) {
				w := newLanes(t, nil)
				defer w.end()
				s, rng := w.jobService(options...), rand.New(rand.NewPCG(seed, 2))
				want := map[string]bool{}
				for range 40 {
					resp, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(fairleadv1.Class(1+rng.IntN(2)), "x")})
					if err != nil {
						t.Fatal(err)
					}
					want[resp.GetJobId()] = true
				}
				got := map[string]int{}
				moves := rng.IntN(3)
				req := &fairleadv1.ListJobsRequest{PageSize: int32(1 + rng.IntN(12))}
				for page := 0; page == 0 || req.GetPageToken() != ""; page++ {
					if page == moves || rng.IntN(6) == 0 {
						l := lane(cell.Classes()[rng.IntN(2)])
						from, _ := w.owner(l)
						to := cell.ID("b")
						if from.id == to {
							to = "a"
						}
						w.fence(l)
						w.commitLane(l, to, 0, time.Duration(rng.IntN(2))*time.Second)
					}
					resp, err := s.ListJobs(t.Context(), req)
					if err != nil {
						t.Fatalf("%s, %d, page %d: %v", name, seed, page, err)
					}
					for _, j := range resp.GetJobs() {
						got[j.GetId()]++
					}
					req.PageToken = resp.GetNextPageToken()
				}
				for id := range want {
					if got[id] != 1 {
						t.Errorf("%s, %d: %s was listed %d times", name, seed, id, got[id])
					}
				}
			})
		}
	}
}

// A token is read as it was written; no other text is taken for one of this package's that a cell could not have made.
func TestPageToken(t *testing.T) {
	for _, p := range []page{
		{class: cell.ClassInteractive, then: cell.ClassBatch, token: "AQ", start: "Ag"},
		{class: cell.ClassBatch},
		{class: cell.ClassBatch, token: "x-_"},
		{class: cell.ClassInteractive, then: cell.ClassBatch},
	} {
		got, ours, err := parsePage(p.text())
		if got != p || !ours || err != nil {
			t.Errorf("%+v is read as %+v, %v, %v", p, got, ours, err)
		}
	}
	for _, text := range []string{"", "AQ", "fl1", "fl2.ib.."} {
		if _, ours, err := parsePage(text); ours || err != nil {
			t.Errorf("%q: %v, %v", text, ours, err)
		}
	}
	for _, text := range []string{"fl1.", "fl1.ib", "fl1.ib.", "fl1.ii..", "fl1.-b..", "fl1.i..", "fl1.ibb..", "fl1.xy..", "fl1.ib.a.b.c"} {
		if _, ours, err := parsePage(text); !ours || rejection.From(err).GetField() != "page_token" {
			t.Errorf("%q: %v, %v", text, ours, err)
		}
	}
}

// Leases that have moved are extended by their owner, whose word on those that it took back reaches the worker; leases that it never had are not
// taken back by it. A cell that cannot tell the two apart is not believed.
func TestExtensionsFollow(t *testing.T) {
	for name, ignorant := range map[string]bool{"told": false, "not told": true} {
		for whose, to := range map[Secret]cell.ID{"platform": "a", "t-a": ""} {
			synctest.Test(t, func(t *testing.T) {
				w := newLanes(t, nil)
				defer w.end()
				w.cells["a"].ignorant, w.cells["b"].ignorant = ignorant, ignorant
				s, work := w.jobService(), w.workerService(whose, to)
				for _, class := range []fairleadv1.Class{interactive, batchClass, batchClass} {
					if _, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(class, "x")}); err != nil {
						t.Fatal(err)
					}
				}
				leased, err := work.Lease(t.Context(), &fairleadv1.LeaseRequest{Session: "s", MaxJobs: 9})
				if err != nil || len(leased.GetLeases()) != 3 {
					t.Fatal(leased, err)
				}
				req := &fairleadv1.ReportRequest{Session: "s"}
				for _, x := range leased.GetLeases() {
					req.Extensions = append(req.Extensions, &fairleadv1.Extension{JobId: x.GetJobId(), Token: x.GetToken()})
				}
				w.fence(lane(cell.ClassBatch))
				began := time.Now()
				if resp, err := work.Report(t.Context(), req); err != nil || len(resp.GetCancels()) != 0 || time.Since(began) != 0 {
					t.Errorf("%s, %s: while fenced: %v, %v after %v", name, whose, resp, err, time.Since(began))
				}
				w.commitLane(lane(cell.ClassBatch), "b", 0, 0)
				w.updates.Wait()
				if resp, err := work.Report(t.Context(), req); err != nil || len(resp.GetCancels()) != 0 {
					t.Errorf("%s, %s: %v, %v", name, whose, resp, err)
				}
				_, ln := w.owner(lane(cell.ClassBatch))
				ln.jobs[0].done = true // somebody has cancelled it
				want := 1
				if ignorant {
					want = 0
				}
				resp, err := work.Report(t.Context(), req)
				if err != nil || len(resp.GetCancels()) != want || want == 1 && resp.GetCancels()[0].GetJobId() != ln.jobs[0].id {
					t.Errorf("%s, %s: one taken back: %v, %v", name, whose, resp, err)
				}
			})
		}
	}
}

// What the owner has forgotten is not known: a worker is told so at once where it is certain, and does not repeat it for ever where a cell that had
// the job before still remembers it.
func TestReportOfForgotten(t *testing.T) {
	for name, moves := range map[string]int{"one lane moved": 1, "both moved": 2} {
		synctest.Test(t, func(t *testing.T) { forgotten(t, name, moves) })
	}
}

func forgotten(t *testing.T, name string, moves int) {
	t.Helper()
	w := newLanes(t, nil)
	defer w.end()
	j, err := w.jobService().Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(batchClass, "x")})
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []cell.Class{cell.ClassBatch, cell.ClassInteractive}[:moves] {
		w.fence(lane(class))
		w.commitLane(lane(class), "b", 0, 0)
	}
	w.updates.Wait()
	_, ln := w.owner(lane(cell.ClassBatch))
	ln.jobs = nil
	want := map[int]time.Duration{1: 5 * time.Second, 2: 0}[moves]
	began := time.Now()
	resp, err := w.workerService("platform", "a").Report(t.Context(), &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{
		{JobId: j.GetJobId(), Token: "a.1", Result: &fairleadv1.Outcome_Success{}},
	}})
	if err != nil || resp.GetResults()[0].GetRejection().GetReason() != rejection.ReasonNotFound || time.Since(began) != want {
		t.Errorf("%s: %v, %v after %v", name, resp, err, time.Since(began))
	}
}

// A report whose lane is fenced for too long is refused as a whole, so that whoever made it repeats it; then what had been taken is not taken twice.
func TestReportRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLanes(t, nil)
		defer w.end()
		s, work := w.jobService(), w.workerService("platform", "a")
		req := &fairleadv1.ReportRequest{Session: "s"}
		for _, class := range []fairleadv1.Class{interactive, batchClass} {
			if _, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(class, "x")}); err != nil {
				t.Fatal(err)
			}
		}
		leased, err := work.Lease(t.Context(), &fairleadv1.LeaseRequest{Session: "s", MaxJobs: 9})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range leased.GetLeases() {
			req.Outcomes = append(req.Outcomes, &fairleadv1.Outcome{JobId: x.GetJobId(), Token: x.GetToken(), Result: &fairleadv1.Outcome_Success{}})
		}
		w.fence(lane(cell.ClassBatch))
		if _, err := work.Report(t.Context(), req); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%v", err)
		}
		w.commitLane(lane(cell.ClassBatch), "b", 0, 0)
		resp, err := work.Report(t.Context(), req)
		if err != nil || len(resp.GetResults()) != 2 {
			t.Fatal(resp, err)
		}
		for _, class := range cell.Classes() {
			if _, ln := w.owner(lane(class)); ln.jobs[0].taken != 1 {
				t.Errorf("%v: taken %d times", class, ln.jobs[0].taken)
			}
		}
	})
}

// A poll of a tenant's own worker goes where the tenant goes, while it waits; and to both of its homes while it has two.
func TestPollFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLanes(t, nil)
		defer w.end()
		s, work := w.jobService(), w.workerService("t-a", "")
		poll := func() (int, time.Duration) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			resp, err := work.Lease(ctx, &fairleadv1.LeaseRequest{Session: "s", MaxJobs: 9, Wait: durationpb.New(20 * time.Second)})
			if err != nil {
				t.Error(err)
			}
			return len(resp.GetLeases()), time.Since(began)
		}
		time.AfterFunc(5*time.Second, func() {
			w.fence(lane(cell.ClassBatch))
			w.commitLane(lane(cell.ClassBatch), "b", 0, 0)
			if _, err := s.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(batchClass, "x")}); err != nil {
				t.Error(err)
			}
		})
		leases, took := poll()
		for leases == 0 && took < 20*time.Second {
			n, d := poll()
			leases, took = n, took+d
		}
		if leases != 1 || took > 6*time.Second {
			t.Errorf("%d leases after %v", leases, took)
		}
		bothHomesInTurn(t, w)
		w.fence(lane(cell.ClassInteractive))
		w.commitLane(lane(cell.ClassInteractive), "b", 0, 0)
		w.updates.Wait()
		if leases, took := poll(); leases != 0 || took < 20*time.Second || took > 21*time.Second {
			t.Errorf("together again: %d leases after %v", leases, took)
		}
	})
}

// bothHomesInTurn checks that a worker is given jobs of both homes when both have more than it takes.
func bothHomesInTurn(t *testing.T, w *lanes) {
	t.Helper()
	const each = 8
	for i := range 2 * each {
		if _, err := w.jobService().Submit(t.Context(), &fairleadv1.SubmitRequest{Job: spec(fairleadv1.Class(1+i%2), "x")}); err != nil {
			t.Fatal(err)
		}
	}
	from := map[string]int{}
	for n := range 2 * each {
		resp, err := w.workerService("t-a", "").Lease(t.Context(), &fairleadv1.LeaseRequest{Session: "s", MaxJobs: 1, Wait: durationpb.New(time.Second)})
		if err != nil || len(resp.GetLeases()) != 1 {
			t.Fatal(resp, err)
		}
		at, _, _ := strings.Cut(resp.GetLeases()[0].GetToken(), ".")
		if from[at]++; n == each-1 && len(from) != 2 {
			t.Errorf("the first %d come from %v", each, from)
		}
	}
}

// What does not concern a lane passes as it came, whatever a cell says of it.
func TestNoticesOfNoRelease(t *testing.T) {
	for _, text := range []string{"moved", "moved;any", "gone;any;1", "moved;both;1", "moved;batch;x", "moved;batch;-1", ";;"} {
		if n, ok := noticeOf(http.Header{HeaderLane: {text}}); ok {
			t.Errorf("%q: %+v", text, n)
		}
	}
	n, ok := noticeOf(http.Header{HeaderLane: {"behind;interactive;7"}, HeaderLaneTenants: {"x, y,"}})
	if !ok || n.what != "behind" || n.class != cell.ClassInteractive || n.epoch != 7 || !slices.Equal(n.tenants, []cell.TenantID{"x", "y"}) {
		t.Errorf("%+v, %v", n, ok)
	}
	if got := epochsOf(route.Lane{Epoch: 18446744073709551615, BatchCell: "b", BatchEpoch: 18446744073709551614}); got != "18446744073709551615,18446744073709551614" {
		t.Error(got)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newLanes(t, nil)
		defer w.end()
		w.agents["a-1"].serve = func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set(HeaderLane, "moved;both;1")
			_, _ = rw.Write([]byte(`{"jobId":"mine"}`)) // a recorder takes it
		}
		got := w.do(w.request(t.Context(), "t-a", submit))
		if got.status != http.StatusOK || !strings.Contains(got.body, "mine") || got.header.Get(HeaderLane) != "" {
			t.Errorf("%+v", got)
		}
	})
}
