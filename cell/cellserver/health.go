package cellserver

import (
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const (
	// healthWindow is what a lane's figures are told of, twice. Two of them, and the time that a breach has to last, fit into the time for which a class is
	// observed unless its migration says otherwise; and a source is measured for two before it is fenced.
	healthWindow = 5 * time.Second
	healthTold   = 2
	// healthSlice is how exactly windows end.
	healthSlice  = time.Second
	windowSlices = int64(healthWindow / healthSlice)
	healthSlices = healthTold*windowSlices + 1 // and the present one, which is not whole
	// waitsKept is of how many starts of a slice it is kept how long they waited: of more it is a sample.
	waitsKept = 100
	// healthLanesMax bounds the lanes that are measured, at up to 10 KiB each: more than are observed at a time. When there are more, nothing is known any
	// more of the one whose measuring began longest ago.
	healthLanesMax = 64
)

// health is how lanes do that take part in a move: those that are tracked while they are open, and how they did until they were fenced. Every replica measures
// as it applies, by the log's time, so that a new leader knows what the one before knew; one that began anew knows what it has applied since. The
// server's mu guards it.
type health map[cell.Lane]*laneHealth

// laneHealth is what one lane did lately, slice by slice.
type laneHealth struct {
	began  cell.Instant
	opened cell.Instant // jobs that were ready before it waited elsewhere, or while nobody was served; 0 where there are none
	closed bool         // the lane is not open: what it did stays as it was
	ready  int64        // jobs, as of the last entry
	first  int64        // the first slice that is known whole
	slice  int64        // the present one: time divided by healthSlice
	slices [healthSlices]healthCount
}

// healthCount is what a lane did in one slice.
type healthCount struct {
	ended, badly, started int64
	waits                 []time.Duration // a sample
	known                 int64           // starts that it is a sample of
	readyLeast            int64
}

// measure takes in what an entry did to lanes that take part in a move, and which do from it on. Where none does it costs a look at each fact. The
// caller holds mu.
func (s *Server) measure(entry *engine.Entry, a *engine.Applied) {
	now := s.state.Time()
	for i, f := range entry.Facts {
		if r := &a.Results[i]; r.Err != nil || r.Duplicate {
			continue
		}
		switch f := f.(type) {
		case *engine.TrackFact:
			s.health.follow(s.state.Lane(f.Lane), now, 0)
		case *engine.GrantFact:
			if j, m := s.measured(f.ID); m != nil {
				m.grant(now, j)
			}
		case *engine.OutcomeFact:
			if _, m := s.measured(f.ID); m != nil {
				m.end(now, f.Kind)
			}
		}
	}
	for _, id := range a.Lanes {
		s.health.follow(s.state.Lane(id), now, now)
	}
	for id, m := range s.health { // order-free: each by itself
		m.see(now, s.state.Lane(id).Count(engine.Ready))
	}
}

// measured returns a job and what is measured of its lane; nil where nothing is.
func (s *Server) measured(id cell.JobID) (*engine.Job, *laneHealth) {
	if len(s.health) == 0 {
		return nil, nil
	}
	j := s.state.Job(id)
	if j == nil {
		return nil, nil
	}
	return j, s.health[j.Lane.ID]
}

// measureAll begins anew with a state that was made by entries that nobody saw here. The caller holds mu.
func (s *Server) measureAll() {
	s.health = health{}
	now := s.state.Time()
	for i := range s.state.TenantCount() {
		for _, c := range cell.Classes() {
			s.health.follow(s.state.TenantAt(i).Lane(c), now, now)
		}
	}
}

// follow begins to measure a lane that is tracked, goes on when it is open again, keeps what is known of one that is fenced or follows its new home, and
// forgets any other. opened is when it was opened, 0 where it was open before.
func (h health) follow(l *engine.Lane, now, opened cell.Instant) {
	m := h[l.ID]
	switch {
	case l.Mode == cell.ModeFenced || l.Mode == cell.ModeStandby:
		if m != nil && !m.closed {
			m.roll(now)
			m.closed = true
		}
	case l.Mode != cell.ModeOpen || !l.Tracked:
		delete(h, l.ID)
	case m != nil:
		m.closed, m.opened = false, max(m.opened, opened)
	default:
		h.add(l, now, opened)
	}
}

func (h health) add(l *engine.Lane, now, opened cell.Instant) {
	if len(h) >= healthLanesMax {
		var oldest cell.Lane
		for id, m := range h { // order-free: of equal ones any is forgotten
			if h[oldest] == nil || m.began < h[oldest].began {
				oldest = id
			}
		}
		delete(h, oldest)
	}
	at := sliceOf(now)
	m := &laneHealth{began: now, opened: opened, first: at + 1, slice: at, ready: l.Count(engine.Ready)}
	m.present().readyLeast = m.ready
	h[l.ID] = m
}

func sliceOf(at cell.Instant) int64 { return int64(at) / int64(healthSlice) }

func (m *laneHealth) at(slice int64) *healthCount { return &m.slices[slice%healthSlices] }

func (m *laneHealth) present() *healthCount { return m.at(m.slice) }

// roll brings it to the slice of now. A time before the last is taken for that.
func (m *laneHealth) roll(now cell.Instant) {
	to := sliceOf(now)
	for m.slice = max(m.slice, to-healthSlices); m.slice < to; {
		m.slice++
		c := m.present()
		*c = healthCount{waits: c.waits[:0], readyLeast: m.ready}
	}
}

// grant takes in a job that was granted just now. How long it was ready is not known where it came back without a delay.
func (m *laneHealth) grant(now cell.Instant, j *engine.Job) {
	if m.closed {
		return
	}
	m.roll(now)
	c := m.present()
	c.started++
	since := j.WakeAt
	if j.Attempt == 1 {
		since = max(j.Created, j.WakeAt)
	}
	if since == 0 || since < m.opened {
		return
	}
	c.known++
	wait := max(0, now.Sub(since))
	if len(c.waits) < waitsKept {
		c.waits = append(c.waits, wait)
	} else if i := rand.Int64N(c.known); i < waitsKept {
		c.waits[i] = wait
	}
}

// end takes in that an attempt ended just now. One that was handed back, or taken back for another class, ended neither well nor badly.
func (m *laneHealth) end(now cell.Instant, kind engine.OutcomeKind) {
	if m.closed {
		return
	}
	bad := false
	switch kind {
	case engine.OutcomeSuccess:
	case engine.OutcomeFailure, engine.OutcomeFatal, engine.OutcomeLoss, engine.OutcomeCrash:
		bad = true
	case engine.OutcomeNone, engine.OutcomeRelease, engine.OutcomePreempt:
		return
	default:
		return
	}
	m.roll(now)
	c := m.present()
	c.ended++
	if bad {
		c.badly++
	}
}

// see takes in how many jobs are ready after an entry.
func (m *laneHealth) see(now cell.Instant, ready int64) {
	if m.closed {
		return
	}
	m.roll(now)
	m.ready = ready
	m.present().readyLeast = min(m.present().readyLeast, ready)
}

// view returns the last whole windows before now, or before the lane was closed; nil for a lane that is not measured.
func (m *laneHealth) view(now cell.Instant) *fairleadv1.LaneHealth {
	if m == nil {
		return nil
	}
	if !m.closed {
		m.roll(now)
	}
	out := &fairleadv1.LaneHealth{Window: durationpb.New(healthWindow)}
	for end := m.slice; len(out.GetWindows()) < healthTold && end-windowSlices >= m.first; end -= windowSlices {
		out.Windows = append(out.Windows, m.window(end-windowSlices, end))
	}
	return out
}

// window adds up slices.
func (m *laneHealth) window(from, to int64) *fairleadv1.LaneWindow {
	w := &fairleadv1.LaneWindow{ReadyLeast: m.at(from).readyLeast}
	var waits []time.Duration
	for n := from; n < to; n++ {
		c := m.at(n)
		w.Ended += c.ended
		w.EndedBadly += c.badly
		w.Started += c.started
		w.Waits += c.known
		w.ReadyLeast = min(w.ReadyLeast, c.readyLeast)
		waits = append(waits, c.waits...)
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		w.WaitP99 = durationpb.New(nearestRank(waits, percentNearlyAll))
	}
	return w
}
