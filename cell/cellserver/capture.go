package cellserver

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// CaptureTrace returns a page of what the cell still knows of every tenant's jobs, in the order in which they were accepted.
func (h Status) CaptureTrace(ctx context.Context, req *fairleadv1.CaptureTraceRequest) (*fairleadv1.CaptureTraceResponse, error) {
	resp, err := h.server.capture(ctx, req)
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	return resp, nil
}

const (
	// captureTenants and captureJobs bound how many tenants and jobs a capture looks at while it holds the cell's lock: a fraction of a millisecond.
	captureTenants = 256
	captureJobs    = 64
	// captureScanMax bounds the jobs that one page looks at. A page of a period long ago is then shorter, with a token to go on.
	captureScanMax = 20_000
)

func (s *Server) capture(ctx context.Context, req *fairleadv1.CaptureTraceRequest) (*fairleadv1.CaptureTraceResponse, error) {
	c := capture{server: s, resp: &fairleadv1.CaptureTraceResponse{}}
	var err error
	if c.size, err = admit.Page("page_size", req.GetPageSize()); err != nil {
		return nil, err
	}
	if req.GetPageSize() == 0 {
		c.size = admit.PageMax
	}
	if c.from, err = instantOf("from", req.GetFrom()); err != nil {
		return nil, err
	}
	if c.to, err = instantOf("to", req.GetTo()); err != nil {
		return nil, err
	}
	if c.to != 0 && c.to <= c.from {
		return nil, &cell.FieldError{
			Field: "to", Problem: fmt.Sprintf("is %v, not after from", c.to.Time()), Remedy: "give a later time, or none",
		}
	}
	if c.last, err = parsePageToken(req.GetPageToken()); err != nil {
		return nil, err
	}
	for _, step := range []func() (more bool, err error){c.find, c.take} {
		for more := true; more; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if more, err = step(); err != nil {
				return nil, err
			}
		}
	}
	if c.left {
		c.resp.NextPageToken = pageToken(c.last)
	}
	return c.resp, nil
}

// capture is a page in the making: the lanes' lists of jobs, merged by the order of acceptance. It holds the cell's lock for a few steps at a time.
// What happens in between does no harm: lists only grow at their ends, and a job that was forgotten is passed by.
//
// Lanes that came from different cells can have jobs of one number. Those stand on one page, which then is a few longer than it was to be. And in a
// lane that came here a job may have been created before one of a lower number, by another cell's clock.
type capture struct {
	server   *Server
	size     int
	from, to cell.Instant
	resp     *fairleadv1.CaptureTraceResponse

	tenants int      // looked at
	heads   headHeap // the next job of each lane that is served here and has one
	scanned int      // jobs looked at
	last    uint64   // the number of the last one
	left    bool     // there is more than fits in the page
}

// head is the next job of a lane, and its number.
type head struct {
	seq  uint64
	lane cell.Lane
}

type headHeap []head

func (h headHeap) Len() int           { return len(h) }
func (h headHeap) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h headHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap only.
func (h *headHeap) Push(x any) { *h = append(*h, x.(head)) } //nolint:errcheck,forcetypeassert // only heads are pushed

// Pop is for container/heap only.
func (h *headHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// find looks for the next jobs of some more tenants.
func (c *capture) find() (bool, error) {
	s := c.server
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.lead == nil {
		return false, ErrNotLeading
	}
	n := s.state.TenantCount()
	for end := min(n, c.tenants+captureTenants); c.tenants < end; c.tenants++ {
		for _, class := range cell.Classes() {
			l := s.state.TenantAt(c.tenants).Lane(class)
			if elsewhere(l) {
				continue // it is captured there
			}
			if j := l.After(c.last); j != nil {
				c.heads = append(c.heads, head{seq: j.Seq, lane: l.ID})
			}
		}
	}
	if c.tenants < n {
		return true, nil
	}
	heap.Init(&c.heads)
	return false, nil
}

// take puts some more jobs on the page.
func (c *capture) take() (bool, error) {
	s := c.server
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.lead == nil {
		return false, ErrNotLeading
	}
	for range captureJobs {
		if len(c.heads) == 0 {
			return false, nil
		}
		if (len(c.resp.Records) >= c.size || c.scanned >= captureScanMax) && c.heads[0].seq != c.last {
			c.left = true
			return false, nil
		}
		l := s.state.Lane(c.heads[0].lane)
		j := l.After(c.heads[0].seq - 1)
		if j != nil && j.Seq == c.heads[0].seq {
			if c.to != 0 && j.Created >= c.to && l.Epoch == 0 {
				heap.Pop(&c.heads) // so are all that follow in the lane
				continue
			}
			c.scanned++
			c.last = j.Seq
			if j.Created >= c.from && (c.to == 0 || j.Created < c.to) {
				c.resp.Records = append(c.resp.Records, s.record(j))
			}
			j = l.After(j.Seq)
		}
		if j == nil || elsewhere(l) {
			heap.Pop(&c.heads)
			continue
		}
		c.heads[0].seq = j.Seq
		heap.Fix(&c.heads, 0)
	}
	return true, nil
}

// record returns a job as the simulator replays it.
func (s *Server) record(j *engine.Job) *fairleadv1.TraceRecord {
	m := &fairleadv1.TraceRecord{
		JobId: j.ID.String(), Tenant: string(j.Lane.ID.Tenant), Organization: string(j.Lane.Tenant.Policy.Organization),
		Class: classTo(j.Lane.ID.Class), Operation: string(j.Spec.Operation), Arrival: timeTo(j.Created), Start: timeTo(j.LeasedAt),
		Cost: int64(j.Charged), DeclaredCost: int64(j.Spec.Cost), Priority: j.Spec.Priority, State: stateTo(j.State),
		ConcurrencyKeys: keysTo(j.Spec.Keys), Preemptible: j.Spec.Preemptible, Deadline: timeTo(j.Spec.Deadline),
	}
	if j.State.Ended() {
		m.Finish = timeTo(j.Finished)
		if ran := s.ran(j); ran > 0 {
			m.Run = durationpb.New(ran)
		}
	}
	return m
}

// ran returns how long the last attempt of an ended job ran, as far as it is known.
func (s *Server) ran(j *engine.Job) time.Duration {
	switch {
	case j.Attempt == 0:
		return 0
	case j.LastOutcome == engine.OutcomeNone: // cancelled while it ran
		return j.Finished.Sub(j.LeasedAt)
	case j.Ran == 0 && !s.cfg.Leader.Costing.ByUnit: // of a log from before run times were noted
		return time.Duration(j.Lease.Charged) * time.Microsecond
	default:
		return j.Ran
	}
}
