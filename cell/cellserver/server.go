package cellserver

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

// Server is a running cell. Its methods are safe for concurrent use, except that Lead is called once, and before Close.
type Server struct {
	cfg   Config
	start time.Time // wall clock and monotonic, read once: see now

	// mu guards the state and everything about leading it.
	mu      sync.RWMutex
	state   *engine.State
	lead    *leader.Leader // nil unless this server leads
	stale   error          // why lead has to be made anew
	waiters waiters
	own     ownPolls
	charges charges
	health  health
	strays  strays
	// Totals of the state when this server began to lead, so that its counters start at zero then.
	accepted, ended uint64
	passed          uint64 // of the numbers of accepted jobs, those that other cells gave
	rejected        uint64 // by leaders before the present one

	// inbox guards what comes in between two entries.
	inbox struct {
		sync.Mutex
		closed    error // why no calls are taken
		flying    bool  // an entry is in flight: whoever waits for it looks here afterwards, so that nobody need wake it up
		calls     []*leader.Call
		abandoned []*leader.Call
	}
	diskFull atomic.Bool  // see roomForJobs
	diskFree atomic.Int64 // bytes

	kept   sync.Pool              // of *[]engine.SubmitFact, empty: see facts
	sealed atomic.Pointer[sealed] // the entry in flight until it is applied: see propose

	wake    chan struct{} // capacity 1
	hint    int           // how many bytes the next entry is likely to have; run's own
	log     Log
	reign   reign
	reigns  atomic.Uint64 // odd while this server leads
	limited limited
	commits latencies // of the log's entries, from their proposal until they were applied
	answers latencies // of submissions and reports, from when they came in
	survey  *survey
	drained atomic.Bool // new jobs are refused
}

// New returns a cell with an empty state, which a log's snapshot and entries fill by Restore and Apply. It returns an error when the
// configuration is at fault.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	state, err := engine.New(cfg.Leader.Limits)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, start: time.Now(), state: state, waiters: waiters{}, own: ownPolls{}, charges: charges{}, strays: newStrays(), wake: make(chan struct{}, 1),
		survey: newSurvey(), health: health{},
	}
	s.inbox.closed = ErrNotLeading
	s.limited.of = map[cell.TenantID]int64{}
	return s, nil
}

// now returns the wall clock as of the start, carried on by the monotonic clock: it never jumps.
func (s *Server) now() cell.Instant {
	return cell.InstantOf(s.start).Add(time.Since(s.start))
}

// Leading reports whether calls are served.
func (s *Server) Leading() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lead != nil
}

// waiter is the owner of a call: a handler that waits for it.
type waiter struct{ done chan struct{} }

// do puts a call to the leader and waits until it is done. When ctx ends first it returns ctx's error: the call goes on, its outcome is
// unknown to the caller, and its results must not be read.
func (s *Server) do(ctx context.Context, c *leader.Call) error {
	w := &waiter{done: make(chan struct{})}
	c.Owner = w
	s.inbox.Lock()
	if err := s.inbox.closed; err != nil {
		s.inbox.Unlock()
		return err
	}
	s.inbox.calls = append(s.inbox.calls, c)
	flying := s.inbox.flying
	s.inbox.Unlock()
	if !flying {
		s.signal()
	}
	began := time.Now()
	select {
	case <-w.done:
		if c.Submit != nil || c.Report != nil {
			now := time.Now()
			s.answers.note(now, now.Sub(began))
		}
		if c.Poll == nil || ctx.Err() == nil {
			return c.Err
		}
	case <-ctx.Done():
	}
	if c.Poll != nil {
		s.inbox.Lock()
		s.inbox.abandoned = append(s.inbox.abandoned, c)
		s.inbox.Unlock()
		s.signal()
	}
	return ctx.Err()
}

func (s *Server) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run seals entries until ctx ends.
func (s *Server) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	disk := time.NewTicker(diskInterval)
	defer disk.Stop()
	s.watchDisk()
	entries := context.WithoutCancel(ctx) // what became of an entry is heard after the end, too
	var flying Proposal
	var proposed time.Time
	for {
		var done <-chan struct{}
		if flying != nil {
			done = flying.Done()
		}
		select {
		case <-s.wake:
		case <-timer.C:
		case <-check.C:
			s.checkInvariants()
		case <-disk.C:
			s.watchDisk()
		case <-done:
			_, _, err := flying.Wait(entries)
			flying = nil
			if err != nil {
				s.lost(err)
			} else {
				now := time.Now()
				s.commits.note(now, now.Sub(proposed))
			}
		case <-ctx.Done():
			s.shut(entries, flying, context.Cause(ctx))
			return
		}
		if flying != nil {
			continue
		}
		entry, at := s.seal()
		if entry != nil {
			proposed = time.Now()
			flying = s.propose(entry)
			s.inbox.Lock()
			s.inbox.flying = true
			s.inbox.Unlock()
			continue // applied or failed, it wakes this loop up
		}
		timer.Reset(s.until(at))
	}
}

// sealed is an entry that was proposed, as its bytes and as what they say. Whoever asks first decodes them.
type sealed struct {
	data   []byte
	decode func() (*engine.Entry, error)
}

// propose hands an entry to the log, and reads it back from its bytes while they are written: Apply, which the next entry waits for, finds it
// read. It is what the bytes say that is applied, here as on every replica and after a restart.
func (s *Server) propose(entry *engine.Entry) Proposal {
	data := s.encode(entry)
	e := &sealed{data: data, decode: sync.OnceValues(func() (*engine.Entry, error) { return engine.DecodeEntry(data) })}
	s.sealed.Store(e)
	p := s.log.Propose(data)
	_, _ = e.decode() // Apply has the error
	return p
}

// decode returns the entry whose bytes are data, and whether these are the very bytes that were proposed last: what comes from the log's files or
// from another replica never is.
func (s *Server) decode(data []byte) (entry *engine.Entry, own bool, err error) {
	if e := s.sealed.Load(); e != nil && len(e.data) == len(data) && len(data) > 0 && &e.data[0] == &data[0] {
		s.sealed.CompareAndSwap(e, nil)
		entry, err = e.decode()
		return entry, true, err
	}
	entry, err = engine.DecodeEntry(data)
	return entry, false, err
}

// encode returns an entry's bytes. Entries that follow each other are of about one size, and growing to it costs several times the bytes.
func (s *Server) encode(entry *engine.Entry) []byte {
	data := engine.AppendEntry(make([]byte, 0, s.hint), entry)
	s.hint = len(data) + len(data)/4
	return data
}

// until returns how long to sleep when nothing comes in before at.
func (s *Server) until(at cell.Instant) time.Duration {
	if at == 0 {
		return time.Hour
	}
	return max(0, at.Sub(s.now()))
}

// seal returns the next entry, or when to look again.
func (s *Server) seal() (*engine.Entry, cell.Instant) {
	s.inbox.Lock()
	calls, abandoned := s.inbox.calls, s.inbox.abandoned
	s.inbox.calls, s.inbox.abandoned, s.inbox.flying = nil, nil, false
	s.inbox.Unlock()

	s.mu.Lock()
	if s.lead == nil { // deposed, and about to be told
		for _, c := range calls {
			c.Err = ErrNotLeading
		}
		s.mu.Unlock()
		finish(calls)
		return nil, 0
	}
	finished := s.renew()
	for _, c := range calls {
		s.lead.Enqueue(c)
	}
	for _, c := range abandoned {
		s.lead.Abandon(c)
	}
	entry, done := s.lead.Seal(s.now(), rand.Uint64())
	at := s.lead.Wake()
	s.mu.Unlock()

	finish(finished)
	finish(done)
	return entry, at
}

// renew replaces a leader that can go on no more. Its calls end with the reason.
func (s *Server) renew() []*leader.Call {
	if s.stale == nil {
		return nil
	}
	done := judge(s.lead.Failed(s.stale), ErrNotLeading)
	s.rejected += s.lead.Rejected()
	lead, err := leader.New(s.cfg.Leader, s.state, s.now())
	if err != nil {
		panic("cellserver: " + err.Error()) // the same configuration made the leader before
	}
	s.lead, s.stale = lead, nil
	return done
}

// lost deals with an entry that was not applied, or nobody knows.
func (s *Server) lost(err error) {
	s.cfg.Logger.Error("an entry was lost; the scheduler is made anew", "error", err)
	s.mu.Lock()
	s.stale = err
	s.mu.Unlock()
}

func finish(calls []*leader.Call) {
	for _, c := range calls {
		if w, ok := c.Owner.(*waiter); ok {
			close(w.done)
		}
	}
}

const (
	// checkInterval is how often a running cell checks its invariants.
	checkInterval = time.Minute
	// checkJobsMax is the largest state that it checks: a check of so many jobs takes about a tenth of a second.
	checkJobsMax = 200_000
)

// checkInvariants reports what should never be. It is a witness: it mends nothing.
func (s *Server) checkInvariants() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	live, _ := s.state.Live()
	if live > checkJobsMax || s.lead == nil {
		return
	}
	err := s.state.Check()
	if err == nil && !s.lead.InFlight() {
		err = s.lead.Check()
	}
	if err != nil {
		s.cfg.Logger.Error("an invariant of the cell is broken; please report it with this line", "error", err)
	}
}
