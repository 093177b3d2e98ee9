package consensus

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// barrierRetry is the pause after a barrier that failed while this replica leads on, as during a transfer that comes to
// nothing.
const barrierRetry = 20 * time.Millisecond

// leadership knows in which term this replica became ready to serve. A new leader's state machine may lag behind the log:
// a barrier once per term tells when it no longer does. A readiness begins with that and ends, for good, with the reign or
// with a restore, which replaces the state that was served.
type leadership struct {
	wake  chan struct{} // capacity one: a barrier is due
	onWin func()        // called at the begin of a reign

	mu        sync.Mutex
	leading   bool
	reign     uint64        // counts what ends a readiness, so that a barrier of before counts no more
	readyTerm uint64        // 0 unless ready
	change    chan struct{} // closed and replaced when readyTerm changes
	lost      chan struct{} // closed when this readiness ends
}

func (l *leadership) init(onWin func()) {
	l.wake = make(chan struct{}, 1)
	l.change = make(chan struct{})
	l.onWin = onWin
}

// changed returns a channel that is closed at the next change of what ready returns.
func (l *leadership) changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change
}

// ready returns the term that this replica is ready in, and what is closed when that ends; ok is false when it is not.
func (l *leadership) ready(node *raft.Raft) (term uint64, lost <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readyTerm == 0 || l.readyTerm != node.CurrentTerm() || node.State() != raft.Leader {
		return 0, nil, false
	}
	return l.readyTerm, l.lost, true
}

// begun says that a barrier of the term has passed which was sent in the reign.
func (l *leadership) begun(term, reign uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading || l.reign != reign {
		return
	}
	l.readyTerm, l.lost = term, make(chan struct{})
	l.signalLocked()
}

// end ends the readiness, if there is one, and makes barriers that are under way worthless.
func (l *leadership) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked()
}

func (l *leadership) endLocked() {
	l.reign++
	if l.readyTerm == 0 {
		return
	}
	l.readyTerm = 0
	close(l.lost)
	l.signalLocked()
}

func (l *leadership) signalLocked() {
	close(l.change)
	l.change = make(chan struct{})
}

// again asks for a new barrier, after end.
func (l *leadership) again() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// current returns the reign, and whether this replica leads.
func (l *leadership) current() (reign uint64, leading bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reign, l.leading
}

// watch reads raft's notifications and does nothing else: raft stops while its channel is full.
func (l *leadership) watch(notify <-chan bool, stop <-chan struct{}) {
	for {
		select {
		case leading := <-notify:
			if leading {
				l.onWin()
			}
			l.mu.Lock()
			l.leading = leading
			l.endLocked()
			l.mu.Unlock()
			l.again()
		case <-stop:
			return
		}
	}
}

// confirm sends the barrier of each term that this replica leads. It calls replayed after each.
func (l *leadership) confirm(node *raft.Raft, replayed func(), logger *slog.Logger, stop <-chan struct{}) {
	for {
		select {
		case <-l.wake:
		case <-stop:
			return
		}
		for reign, leading := l.current(); leading; reign, leading = l.current() {
			term := node.CurrentTerm()
			if err := node.Barrier(0).Error(); err != nil {
				// Leadership is gone or about to go, or the store has failed; either is told elsewhere.
				logger.Debug("barrier", "term", term, "error", err)
				select {
				case <-time.After(barrierRetry):
					continue
				case <-stop:
					return
				}
			}
			replayed()
			if term == node.CurrentTerm() {
				l.begun(term, reign)
				break
			}
		}
	}
}
