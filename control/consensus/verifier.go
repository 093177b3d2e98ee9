package consensus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// verifier asks the other voters whether this replica still leads. Whoever comes while a question is under way shares the
// next one: the answer must be of after the call began, but one is enough for all.
type verifier struct {
	wake chan struct{} // capacity one: next is set

	mu   sync.Mutex
	next *verification // nil until somebody waits for it
}

// verification is one question.
type verification struct {
	done chan struct{}
	err  error // written before done is closed
}

func (v *verifier) init() { v.wake = make(chan struct{}, 1) }

// join returns a question that has not been asked yet.
func (v *verifier) join() *verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		v.next = &verification{done: make(chan struct{})}
		v.wake <- struct{}{} // it was taken together with the last one
	}
	return v.next
}

// take returns the question that is to be asked.
func (v *verifier) take() *verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	q := v.next
	v.next = nil
	return q
}

func (v *verifier) run(g *Group) {
	for {
		select {
		case <-v.wake:
		case <-g.stop:
			return
		}
		q := v.take()
		q.err = g.ask()
		close(q.done)
	}
}

// ask asks the other voters. Raft's own question is not enough: an answer that was on its way when the question came counts
// for it, and what is answered before a pause may be read after it, when another leads. So raft is made to send, and what
// counts are answers to what left afterwards.
func (g *Group) ask() error {
	round := g.network.rounds.Add(1)
	term := g.raft.CurrentTerm()
	again := time.NewTicker(g.cfg.ElectionTimeout)
	defer again.Stop()
	for {
		if err := g.raft.VerifyLeader().Error(); err != nil {
			return err
		}
		if g.raft.CurrentTerm() != term {
			return raft.ErrLeadershipLost
		}
		configuration := g.raft.GetConfiguration()
		if err := configuration.Error(); err != nil {
			return err
		}
		for waiting := true; waiting; {
			ok, changed := g.network.agreed(configuration.Configuration().Servers, raft.ServerID(g.cfg.ID), term, round)
			if ok {
				return nil
			}
			select {
			case <-changed:
			case <-again.C:
				waiting = false // raft knows by now if it leads no more
			case <-g.stop:
				return ErrClosed
			}
		}
	}
}

// Verify returns nil when this replica led the group, ready to serve, at some time after the call began: what was read from
// the state machine before it was then not of a deposed leader's. With one voter it costs nothing, with several an exchange
// with a majority, which concurrent calls share. Its errors wrap ErrNotLeader, except that of a closed or failed group and
// that of ctx.
func (g *Group) Verify(ctx context.Context) error {
	term, _, ok := g.leading.ready(g.raft)
	if !ok {
		return ErrNotLeader
	}
	if g.network == nil {
		return nil
	}
	q := g.verifier.join()
	select {
	case <-q.done:
	case <-g.failed:
		return *g.failure.Load()
	case <-g.stop:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("verify leadership: %w", context.Cause(ctx))
	}
	if q.err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, q.err)
	}
	// The same readiness: between two of its reigns another may have led.
	if now, _, ok := g.leading.ready(g.raft); !ok || now != term {
		return ErrNotLeader
	}
	return nil
}
