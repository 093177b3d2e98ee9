package sim

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Progress is told now and then how many of all jobs have come to their end.
type Progress func(done, total int)

// progressEvery is how many jobs end between two calls of a Progress.
const progressEvery = 4096

// idleWakesMax bounds how often a policy can ask to be woken without anything coming of it: beyond, it would go on for ever.
const idleWakesMax = 1_000_000

// Simulate runs a scenario under a policy. progress may be nil. It returns the faults of [Scenario.Validate], and an error when the policy
// refuses a job, or makes a choice that is none of its business, such as a job that does not wait.
func Simulate(s *Scenario, p Policy, progress Progress) (*Run, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	d, err := p.New(s)
	if err != nil {
		return nil, fmt.Errorf("policy %s for scenario %s: %w", p.Name, s.Name, err)
	}
	w := newWorld(s, p, d, progress)
	if err := w.loop(); err != nil {
		return nil, fmt.Errorf("scenario %s under %s at %v: %w", s.Name, p.Name, w.now, err)
	}
	w.cut()
	return w.run, nil
}

// world is one simulation while it goes on.
type world struct {
	s     *Scenario
	d     Dispatcher
	timed Timed // d, or nil
	run   *Run

	now         time.Duration
	next        int // the record that comes next
	completions heap[completion]
	expiries    heap[expiry]
	slots       pool
	backlog     map[string]int64 // waiting jobs by tenant, where they are bounded
	done        int
	progress    Progress
}

func newWorld(s *Scenario, p Policy, d Dispatcher, progress Progress) *world {
	run := &Run{
		Scenario: s.Name, Policy: p.Name, Seed: s.Seed, Unit: s.Unit, Slots: s.Slots(), Workers: s.Workers, Notes: s.Notes,
		Records: make([]Record, len(s.Jobs)),
	}
	for i := range run.Records {
		run.Records[i] = Record{Job: &s.Jobs[i], Slot: -1, place: int32(i)}
	}
	if r, ok := d.(Ruled); ok {
		run.Rules = r.Rules()
	}
	w := &world{s: s, d: d, run: run, slots: newPool(s.Workers), backlog: map[string]int64{}, progress: progress}
	if t, ok := d.(Timed); ok {
		w.timed = t
	}
	return w
}

// loop goes from instant to instant until nothing is left to happen.
func (w *world) loop() error {
	wakes := 0
	for {
		at, eventful := w.nextEvent()
		if w.timed != nil {
			if wake, ok := w.timed.Wake(w.now); ok && max(wake, w.now+1) < at && w.done < len(w.run.Records) {
				at, eventful = max(wake, w.now+1), false
			}
		}
		if at == math.MaxInt64 || w.s.Until > 0 && at > w.s.Until {
			return nil
		}
		if wakes++; eventful {
			wakes = 0
		}
		before := w.slots.left
		if w.timed != nil {
			w.timed.Advance(at, w.slots.left)
		}
		w.now = at
		w.complete()
		if err := w.arrive(); err != nil {
			return err
		}
		w.expire()
		if err := w.review(); err != nil {
			return err
		}
		if err := w.dispatch(); err != nil {
			return err
		}
		if w.slots.left != before {
			wakes = 0
		}
		if wakes > idleWakesMax {
			return fmt.Errorf("the policy asked to be woken %d times without doing anything", wakes)
		}
	}
}

// nextEvent returns when something happens by itself next, and whether anything does.
func (w *world) nextEvent() (time.Duration, bool) {
	at := int64(math.MaxInt64)
	for len(w.completions) > 0 && !w.completions[0].valid() {
		w.completions.pop()
	}
	if len(w.completions) > 0 {
		at = w.completions[0].at
	}
	if w.next < len(w.run.Records) {
		at = min(at, int64(w.run.Records[w.next].Job.Arrival))
	}
	for len(w.expiries) > 0 && w.expiries[0].record.State != StateWaiting {
		w.expiries.pop()
	}
	if len(w.expiries) > 0 {
		at = min(at, w.expiries[0].at)
	}
	return time.Duration(at), at != math.MaxInt64
}

// valid reports whether the attempt was not taken back.
func (c completion) valid() bool {
	return c.record.State == StateRunning && c.record.Preempted == c.attempt && c.record.Slot == int32(c.slot)
}

func (w *world) complete() {
	for len(w.completions) > 0 && w.completions[0].at <= int64(w.now) {
		c := w.completions.pop()
		if !c.valid() {
			continue
		}
		r := c.record
		r.End, r.State = w.now, StateCompleted
		r.Charged += r.Job.Charge()
		w.slots.give(c.slot)
		w.d.Complete(w.now, r)
		w.ended()
	}
}

func (w *world) arrive() error {
	for ; w.next < len(w.run.Records) && w.run.Records[w.next].Job.Arrival <= w.now; w.next++ {
		r := &w.run.Records[w.next]
		if w.s.BacklogMax > 0 {
			if w.backlog[r.Job.Tenant] >= w.s.BacklogMax {
				r.State = StateRejected
				w.ended()
				continue
			}
			w.backlog[r.Job.Tenant]++
		}
		if r.Job.Deadline > 0 {
			w.expiries.push(expiry{at: int64(r.Job.Deadline), record: r})
		}
		if err := w.d.Arrive(w.now, r); err != nil {
			return fmt.Errorf("job %d of %s: %w", r.Job.ID, r.Job.Tenant, err)
		}
	}
	return nil
}

func (w *world) expire() {
	for len(w.expiries) > 0 && w.expiries[0].at <= int64(w.now) {
		r := w.expiries.pop().record
		if r.State != StateWaiting {
			continue
		}
		r.State = StateExpired
		w.left(r)
		w.d.Remove(w.now, r)
		w.ended()
	}
}

// review takes back what the policy wants back.
func (w *world) review() error {
	if w.timed == nil {
		return nil
	}
	revoked, err := w.timed.Review(w.now)
	if err != nil {
		return err
	}
	for _, r := range revoked {
		if r.State != StateRunning {
			return fmt.Errorf("the policy takes job %d back, which is %v", r.Job.ID, r.State)
		}
		w.run.Revoked = append(w.run.Revoked, Attempt{Job: r.Job, Start: r.Start, End: w.now, Slot: r.Slot})
		w.slots.give(slot(r.Slot))
		r.Charged += partly(r.Job, w.now-r.Start)
		r.State, r.Slot, r.Start = StateWaiting, -1, 0
		r.Preempted++
		if w.s.BacklogMax > 0 {
			w.backlog[r.Job.Tenant]++ // it was accepted once: it is not rejected now
		}
		if r.Job.Deadline > 0 {
			w.expiries.push(expiry{at: int64(r.Job.Deadline), record: r})
		}
	}
	w.expire()
	return nil
}

// partly returns what a job costs that has run for a part of its service: in proportion.
func partly(j *Job, ran time.Duration) cell.Cost {
	ran = max(0, min(ran, j.Service))
	hi, lo := bits.Mul64(uint64(j.Charge()), uint64(ran))
	q, _ := bits.Div64(hi, lo, uint64(j.Service)) // ran <= Service: it fits
	return cell.Cost(q)
}

// dispatch gives free slots jobs, one of each group of workers in turn, until no group can be given any.
func (w *world) dispatch() error {
	dry := w.slots.dry[:0]
	for range w.slots.groups {
		dry = append(dry, false)
	}
	w.slots.dry = dry
	for again := true; again; {
		again = false
		for g := range dry {
			if dry[g] || len(w.slots.groups[g]) == 0 {
				continue
			}
			r, ok := w.d.Next(w.now, g)
			if !ok {
				dry[g] = true // grants only make it less
				continue
			}
			if err := w.start(r, g); err != nil {
				return err
			}
			again = true
		}
	}
	return nil
}

func (w *world) start(r *Record, group int) error {
	if r.State != StateWaiting || r.Job.Arrival > w.now {
		return fmt.Errorf("the policy starts job %d, which is %v and comes at %v", r.Job.ID, r.State, r.Job.Arrival)
	}
	if ops := w.s.Workers[group].Operations; len(ops) > 0 && !slices.Contains(ops, r.Job.Operation) {
		return fmt.Errorf("the policy starts job %d of operation %s on workers that do not offer it", r.Job.ID, r.Job.Operation)
	}
	at := w.slots.take(group)
	r.State, r.Slot, r.Start = StateRunning, int32(at), w.now
	w.left(r)
	w.completions.push(completion{at: int64(w.now + r.Job.Service), record: r, slot: at, attempt: r.Preempted})
	return nil
}

// left takes note that a job waits no more.
func (w *world) left(r *Record) {
	if w.s.BacklogMax > 0 {
		w.backlog[r.Job.Tenant]--
	}
}

func (w *world) ended() {
	w.done++
	if w.progress != nil && (w.done%progressEvery == 0 || w.done == len(w.run.Records)) {
		w.progress(w.done, len(w.run.Records))
	}
	w.run.End = w.now
}

// cut charges what still runs when the simulation ends.
func (w *world) cut() {
	if w.s.Until > 0 && w.done < len(w.run.Records) {
		w.run.End = w.s.Until
	}
	for i := range w.run.Records {
		if r := &w.run.Records[i]; r.State == StateRunning {
			r.Charged += partly(r.Job, w.run.End-r.Start)
		}
	}
}
