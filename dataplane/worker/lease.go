package worker

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// errDraining is why a Lease ended without an answer.
var errDraining = errors.New("draining")

// The bounds of the one Lease that a drain may still make: see [session.lastLease].
const (
	lastLeaseTimeout = 500 * time.Millisecond
	lastLeaseWait    = time.Millisecond
)

// runLease keeps a Lease open while the ledger wants one, until ctx ends. base outlives ctx.
func (s *session) runLease(ctx, base context.Context, operations []string) {
	empty := client.Backoff{Min: emptyDelayMin, Max: emptyDelayMax}
	for fast := 0; ; {
		req := s.nextLease(operations)
		if req == nil {
			select {
			case <-s.leaseWake:
				continue
			case <-ctx.Done():
				return
			}
		}
		began := time.Now()
		answer, err := s.lease(ctx, req)
		if errors.Is(err, errDraining) {
			answer = s.lastLease(base, operations)
		}
		s.leased(answer)
		if err != nil {
			return
		}
		if len(answer.GetLeases()) > 0 || time.Since(began) >= min(time.Second, s.cfg.PollWait/2) {
			fast = 0
			continue
		}
		// The cell did not wait: it is stopping, or counts more leases on this worker than there are. Asking again at once would only
		// burn both sides.
		fast++
		t := time.NewTimer(empty.Next(fast, 0))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// nextLease returns the Lease to make now, or nil.
func (s *session) nextLease(operations []string) *fairleadv1.LeaseRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ledger.wantsLease() {
		return nil
	}
	s.ledger.leasing = true
	return s.leaseRequestLocked(operations)
}

func (s *session) leaseRequestLocked(operations []string) *fairleadv1.LeaseRequest {
	s.leaseSeq++
	s.stats.LeaseCalls++
	req := &fairleadv1.LeaseRequest{
		Session:        s.id,
		Worker:         s.cfg.Name,
		Operations:     operations,
		Slots:          int32(s.cfg.Slots),
		Prefetch:       int32(s.cfg.Prefetch),
		Sequence:       s.leaseSeq,
		ReportSequence: s.answeredSeq,
		Held:           s.ledger.refs(),
		Wait:           durationpb.New(s.cfg.PollWait),
		LeaseDuration:  durationpb.New(s.cfg.LeaseDuration),
		Group:          int32(s.cfg.Group),
	}
	for _, c := range s.cfg.Classes {
		req.Classes = append(req.Classes, fairleadv1.Class(c)) // the numbers are the same
	}
	return req
}

// lease makes one Lease, as it is, until it is answered. It returns errDraining when ctx ended, or the cell's refusal when that is definite.
func (s *session) lease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	for n := 1; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, s.cfg.PollWait+callTimeout)
		answer, err := s.service.Lease(attempt, req)
		cancel()
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, errDraining
		}
		e := client.AsError(err)
		if definite(e) {
			s.fail(e)
			return nil, e
		}
		if !s.pause(ctx, "lease", n, e) {
			return nil, errDraining
		}
	}
}

// lastLease follows a Lease that a drain cut short. That one may have granted jobs at the last moment, whose leases would have to run out
// now. A further Lease tells the cell that they are not held, so that they go back free. It asks for as little as a Lease can, and hands
// that back.
func (s *session) lastLease(base context.Context, operations []string) *fairleadv1.LeaseResponse {
	s.mu.Lock()
	req := s.leaseRequestLocked(operations)
	s.mu.Unlock()
	req.MaxJobs, req.Wait = 1, durationpb.New(lastLeaseWait)
	ctx, cancel := context.WithTimeout(base, lastLeaseTimeout)
	defer cancel()
	answer, err := s.service.Lease(ctx, req)
	if err != nil {
		s.log.Warn("leases granted in the last moment will run out", "error", client.AsError(err))
		return nil
	}
	return answer
}

// leased takes in the answer of a Lease; nil when there is none.
func (s *session) leased(answer *fairleadv1.LeaseResponse) {
	s.mu.Lock()
	s.ledger.leasing = false
	s.grantedLocked(answer.GetLeases())
	draining := s.ledger.draining
	s.mu.Unlock()
	if draining {
		poke(s.reportWake)
		poke(s.changed)
	}
}
