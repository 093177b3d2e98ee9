package cellserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

// reign is one time of leading, from Lead to Follow or Close. Its mutex is held by whoever begins or ends one.
type reign struct {
	mu      sync.Mutex
	stop    context.CancelCauseFunc // nil while this server does not lead
	stopped chan struct{}
	closed  bool
}

// Lead begins to serve on a log whose entries so far were all applied here. It may be called again after Follow; after Close it returns
// ErrStopping. It returns ErrClock when this replica's clock must not be a leader's. Every live lease gets a full grace: nobody knows when it was last
// extended.
func (s *Server) Lead(log Log) error {
	s.reign.mu.Lock()
	defer s.reign.mu.Unlock()
	if s.reign.closed {
		return ErrStopping
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if behind := s.state.Time().Sub(now); behind > ClockSkewMax {
		return fmt.Errorf("%w: by %v, of at most %v", ErrClock, behind, ClockSkewMax)
	}
	lead, err := leader.New(s.cfg.Leader, s.state, now)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background()) //nolint:forbidigo // the loop outlives this call and ends with Follow
	stopped := make(chan struct{})
	if s.lead != nil {
		panic("cellserver: Lead while leading")
	}
	s.lead, s.log, s.stale, s.rejected = lead, log, nil, 0
	s.accepted, s.ended = s.state.Totals()
	s.passed = s.state.Passed()
	s.reign.stop, s.reign.stopped = cancel, stopped
	s.commits.forget()
	s.answers.forget()
	s.beginCharges()
	s.wantAll()
	s.inbox.Lock()
	s.inbox.closed, s.inbox.flying = nil, false
	s.inbox.Unlock()
	s.reigns.Add(1)
	go func() {
		defer close(stopped)
		surveyed := make(chan struct{})
		go func() {
			defer close(surveyed)
			s.surveyLanes(ctx)
		}()
		s.run(ctx)
		<-surveyed
	}()
	return nil
}

// Follow stops leading and goes on applying: what becomes of the entry in flight is waited for, every other call ends with ErrNotLeading. It does
// nothing when this server does not lead.
func (s *Server) Follow() { s.abdicate(ErrNotLeading, false) }

// Close stops leading for good: what becomes of the entry in flight is waited for, every other call ends with ErrStopping. The log is the
// owner's to close after that. It may be called again.
func (s *Server) Close() { s.abdicate(ErrStopping, true) }

func (s *Server) abdicate(why error, closing bool) {
	s.reign.mu.Lock()
	defer s.reign.mu.Unlock()
	s.reign.closed = s.reign.closed || closing
	if s.reign.stop == nil {
		if closing {
			s.inbox.Lock()
			s.inbox.closed = why
			s.inbox.Unlock()
		}
		return
	}
	s.reign.stop(why)
	<-s.reign.stopped
	s.reign.stop = nil
	s.drained.Store(false) // control tells the next leader
}

// shut ends every call with why, once the entry in flight is done.
func (s *Server) shut(ctx context.Context, flying Proposal, why error) {
	if flying != nil {
		if _, _, err := flying.Wait(ctx); err != nil {
			s.lost(err)
		}
	}
	s.inbox.Lock()
	s.inbox.closed = why
	calls := s.inbox.calls
	s.inbox.calls, s.inbox.abandoned = nil, nil
	s.inbox.Unlock()
	s.mu.Lock()
	var done []*leader.Call
	if s.lead != nil {
		done = s.renew() // what a lost entry held does not end with why, which says that nothing was done
		done = append(done, judge(s.lead.Failed(why), why)...)
		s.leave()
	}
	for _, c := range calls {
		c.Err = why
	}
	s.mu.Unlock()
	finish(done)
	finish(calls)
}

// depose ends a reign before the shell is told of it, which then finds nothing left to do. The entry in flight, if there is one, is not known to come
// to anything.
func (s *Server) depose() []*leader.Call {
	s.cfg.Logger.Warn("another replica leads, or the state was replaced; calls end until this one leads again")
	s.inbox.Lock()
	s.inbox.closed = ErrNotLeading
	s.inbox.Unlock()
	why := ErrNotLeading
	if s.lead.InFlight() {
		why = errUnconfirmed
	}
	done := judge(s.lead.Failed(why), ErrNotLeading)
	s.leave()
	return done
}

// leave lets go of the leader, whose calls have ended.
func (s *Server) leave() {
	s.lead, s.stale = nil, nil
	s.sealed.Store(nil)
	s.reigns.Add(1)
	s.waiters.endAll()
}

// judge corrects what the calls of a leader were ended with, which is the same for all. A poll that only waited is told why, which says that nothing
// was done, whatever became of the entry that others were in. And of a call that a part was applied of before, nobody may be told that.
func judge(done []*leader.Call, why error) []*leader.Call {
	for _, c := range done {
		switch {
		case c.Waited():
			c.Err = why
		case errors.Is(c.Err, ErrNotLeading) || errors.Is(c.Err, ErrStopping):
			if partly(c) {
				c.Err = errUnconfirmed
			}
		}
	}
	return done
}

// partly reports whether something of a call that did not finish was applied.
func partly(c *leader.Call) bool {
	var results []engine.Result
	switch {
	case c.Submit != nil:
		results = c.Submit.Results
	case c.Report != nil:
		results = c.Report.Results
	}
	return slices.ContainsFunc(results, func(r engine.Result) bool { return r.Err == nil && r.State != 0 && !r.Duplicate })
}

// read makes what look reads linearizable: this replica led all the while, and did still at some time after the call began. Otherwise it returns
// ErrNotLeading, whatever look returned. What look finds and what it refuses are both only so if nobody else led.
func (s *Server) read(ctx context.Context, look func() error) error {
	reign := s.reigns.Load()
	if reign%2 == 0 {
		return ErrNotLeading
	}
	err := look()
	if s.confirm(ctx, reign) != nil {
		return ErrNotLeading
	}
	return err
}

// confirmRefusal is for what a change was answered without an entry of the log: a part of it may have had one. reign is that of when it began.
func (s *Server) confirmRefusal(ctx context.Context, reign uint64) error {
	if err := s.confirm(ctx, reign); err != nil {
		return fmt.Errorf("%w: %w", errUnconfirmed, err)
	}
	return nil
}

func (s *Server) confirm(ctx context.Context, reign uint64) error {
	s.mu.RLock()
	log := s.log
	s.mu.RUnlock()
	if s.reigns.Load() != reign {
		return ErrNotLeading
	}
	if err := log.Verify(ctx); err != nil {
		return err
	}
	if s.reigns.Load() != reign {
		return ErrNotLeading
	}
	return nil
}
