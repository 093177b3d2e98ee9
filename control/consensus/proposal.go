package consensus

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// Proposal is one entry on its way through the log. It ends exactly once. All methods may be called from any goroutine,
// any number of times.
type Proposal struct {
	id     uint64
	future raft.ApplyFuture // read by the collector only
	done   chan struct{}

	// Written once, before done is closed.
	result any
	index  uint64
	err    error
}

// Done returns a channel that is closed when the proposal has ended.
func (p *Proposal) Done() <-chan struct{} { return p.done }

// Wait returns what Apply returned for the entry and the entry's index. Its error wraps ErrNotApplied or ErrUnknown. When
// ctx ends first the error wraps ErrUnknown and the context's cause; the proposal goes on and may be waited for again.
func (p *Proposal) Wait(ctx context.Context) (result any, index uint64, err error) {
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
		}
	}
	return p.result, p.index, p.err
}

// end is called once.
func (p *Proposal) end(result any, index uint64, err error) {
	p.result, p.index, p.err = result, index, err
	close(p.done)
}

// register is the set of unfinished proposals. The state machine's goroutine ends a proposal as soon as its entry is
// applied, which saves a hop over raft's own future; raft's future ends it when it failed. Whoever takes the proposal out
// of the register is the one that ends it.
type register struct {
	limit int

	mu      sync.Mutex
	less    *sync.Cond // broadcast when open shrinks while somebody waits for it
	waiting int
	open    map[uint64]*Proposal
	lastID  uint64
	refused error // why no more are taken, for good
	held    error // and for a while
}

func newRegister(limit int) *register {
	r := &register{limit: limit, open: make(map[uint64]*Proposal)}
	r.less = sync.NewCond(&r.mu)
	return r
}

// add gives the proposal its number, once there is room. It returns why proposals are no longer taken.
func (r *register) add(p *Proposal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitLocked(func() bool { return r.refused != nil || r.held != nil || len(r.open) < r.limit })
	if err := cmp.Or(r.refused, r.held); err != nil {
		return err
	}
	r.lastID++
	p.id = r.lastID
	r.open[p.id] = p
	return nil
}

func (r *register) waitLocked(until func() bool) {
	r.waiting++
	for !until() {
		r.less.Wait()
	}
	r.waiting--
}

// finish ends the proposal with the number, unless it ended already.
func (r *register) finish(id uint64, result any, index uint64, err error) {
	r.mu.Lock()
	p, ok := r.open[id]
	if ok {
		delete(r.open, id)
		if r.waiting > 0 {
			r.less.Broadcast()
		}
	}
	r.mu.Unlock()
	if ok {
		p.end(result, index, err)
	}
}

// fail ends every unfinished proposal as unknown and refuses new ones with err.
func (r *register) fail(err error) {
	r.mu.Lock()
	open := r.open
	r.open = make(map[uint64]*Proposal)
	r.refused = err
	r.less.Broadcast()
	r.mu.Unlock()
	for _, p := range open {
		p.end(nil, 0, fmt.Errorf("%w: %w", ErrUnknown, err))
	}
}

// drain refuses new proposals and waits until the unfinished ones have ended.
func (r *register) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = ErrClosed
	}
	r.less.Broadcast()
	r.waitLocked(func() bool { return len(r.open) == 0 })
}

// hold refuses new proposals with err and waits until the unfinished ones have ended, which a leader's do: as applied, or
// when it steps down. Then resume takes them again.
func (r *register) hold(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = err
	r.less.Broadcast()
	r.waitLocked(func() bool { return len(r.open) == 0 })
}

func (r *register) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = nil
}

func (r *register) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// The proposal's number travels in the entry's Extensions between the proposer and the state machine of this process. The
// store strips it (see guard), so that neither a replica nor a restart can mistake another process's number for its own.
func encodeProposalID(id uint64) []byte { return binary.LittleEndian.AppendUint64(nil, id) }

func decodeProposalID(extensions []byte) (uint64, bool) {
	if len(extensions) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(extensions), true
}
