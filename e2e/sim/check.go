package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// checkFaultsMax bounds the faults that Check names: the rest is likely to be more of the same.
const checkFaultsMax = 20

// Check goes over a run's intervals and returns everything that cannot be, joined, or nil: a slot with two jobs at a time, more jobs
// running than there are slots, or than a tenant, a class or a concurrency key may have; a start before the arrival; an attempt of another
// length than the job's service; a job on a slot that does not offer its operation, or of a group that its tenant does not hold; a record that is missing, or that says two things. It
// knows nothing of policies and shares no code with the simulation.
func Check(run *Run) error {
	c := &checker{run: run}
	for i := range run.Records {
		c.record(&run.Records[i])
	}
	c.revoked()
	c.exclusive()
	c.sweep()
	return errors.Join(c.errs...)
}

// checker is a check while it goes on.
type checker struct {
	run   *Run
	spans []span
	errs  []error
}

// span is an attempt that occupied a slot.
type span struct {
	job        *Job
	start, end time.Duration
	slot       int32
}

func (c *checker) fault(format string, args ...any) {
	if len(c.errs) < checkFaultsMax {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

// record checks a record by itself, and notes its attempt.
func (c *checker) record(r *Record) {
	j := r.Job
	switch r.State {
	case StateCompleted, StateRunning:
		end := r.End
		if r.State == StateRunning {
			end = c.run.End
		}
		c.spans = append(c.spans, span{job: j, start: r.Start, end: end, slot: r.Slot})
		if r.Start < j.Arrival {
			c.fault("job %d starts at %v, before it comes at %v", j.ID, r.Start, j.Arrival)
		}
		if j.Deadline > 0 && r.Start >= j.Deadline && r.Preempted == 0 {
			c.fault("job %d starts at %v, past its deadline at %v", j.ID, r.Start, j.Deadline)
		}
		if r.State == StateCompleted && r.End-r.Start != j.Service {
			c.fault("job %d runs for %v, of %v", j.ID, r.End-r.Start, j.Service)
		}
		if r.State == StateRunning && c.run.End-r.Start > j.Service {
			c.fault("job %d is still running after %v, of %v", j.ID, c.run.End-r.Start, j.Service)
		}
		if r.State == StateCompleted && r.Preempted == 0 && r.Charged != j.Charge() {
			c.fault("job %d was charged %d for what costs %d", j.ID, r.Charged, j.Charge())
		}
	case StateExpired:
		if j.Deadline == 0 || j.Deadline > c.run.End {
			c.fault("job %d has expired, with its deadline at %v", j.ID, j.Deadline)
		}
		fallthrough
	case StateWaiting, StateRejected:
		if r.Slot != -1 || r.Start != 0 || r.End != 0 {
			c.fault("job %d is %v and has slot %d from %v to %v", j.ID, r.State, r.Slot, r.Start, r.End)
		}
	default:
		c.fault("job %d is %v", j.ID, r.State)
	}
	if r.State == StateRejected && (r.Charged != 0 || r.Preempted != 0) {
		c.fault("job %d was rejected, charged %d and taken back %d times", j.ID, r.Charged, r.Preempted)
	}
}

// revoked notes the attempts that were taken back, and compares them with the records.
func (c *checker) revoked() {
	counts := map[*Job]int32{}
	for _, a := range c.run.Revoked {
		counts[a.Job]++
		c.spans = append(c.spans, span{job: a.Job, start: a.Start, end: a.End, slot: a.Slot})
		if a.Start < a.Job.Arrival || a.End-a.Start >= a.Job.Service || a.End < a.Start || !a.Job.Preemptible {
			c.fault("job %d was taken back at %v, having started at %v", a.Job.ID, a.End, a.Start)
		}
	}
	ids := make([]int, len(c.run.Records))
	for i := range c.run.Records {
		r := &c.run.Records[i]
		ids[i] = r.Job.ID
		if r.Preempted != counts[r.Job] {
			c.fault("job %d was taken back %d times by its record, and %d times by the attempts", r.Job.ID, r.Preempted, counts[r.Job])
		}
	}
	slices.Sort(ids)
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			c.fault("job %d has two records", ids[i])
		}
	}
}

// exclusive checks that no slot has two jobs at a time, and that it offers what it runs.
func (c *checker) exclusive() {
	slices.SortFunc(c.spans, func(a, b span) int {
		if a.slot != b.slot {
			return cmp.Compare(a.slot, b.slot)
		}
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return cmp.Compare(a.end, b.end)
	})
	for i, s := range c.spans {
		if s.slot < 0 || int(s.slot) >= c.run.Slots {
			c.fault("job %d runs on slot %d, of %d", s.job.ID, s.slot, c.run.Slots)
			continue
		}
		if i > 0 && c.spans[i-1].slot == s.slot && c.spans[i-1].end > s.start {
			c.fault("slot %d runs job %d until %v and job %d from %v", s.slot, c.spans[i-1].job.ID, c.spans[i-1].end, s.job.ID, s.start)
		}
		w := c.workersOf(s.slot)
		if len(w.Operations) > 0 && !slices.Contains(w.Operations, s.job.Operation) {
			c.fault("slot %d runs job %d of operation %s, which it does not offer", s.slot, s.job.ID, s.job.Operation)
		}
		if hand := c.run.Rules.HandOf[s.job.Tenant]; c.run.Rules.HandOf != nil && !w.Group.In(hand) {
			c.fault("slot %d of group %d runs job %d of %s, whose groups are %q", s.slot, w.Group, s.job.ID, s.job.Tenant, cell.FormatWorkerGroups(hand))
		}
	}
}

// workersOf returns whose slot it is, of those that there are.
func (c *checker) workersOf(slot int32) Workers {
	for _, w := range c.run.Workers {
		if int(slot) < w.Slots {
			return w
		}
		slot -= int32(w.Slots)
	}
	return Workers{}
}

// edge is where an attempt begins or ends.
type edge struct {
	at   time.Duration
	span int32
}

// edges returns one end of every attempt, in the order of time.
func (c *checker) edges(of func(*span) time.Duration) []edge {
	out := make([]edge, len(c.spans))
	for i := range c.spans {
		out[i] = edge{at: of(&c.spans[i]), span: int32(i)}
	}
	slices.SortFunc(out, func(a, b edge) int { return cmp.Compare(a.at, b.at) }) // of one time, the order is not seen
	return out
}

// counts are what runs at a time.
type counts struct {
	all     int64
	classes [2]int64
	tenants map[string]int64
	keys    map[[2]string]int64
	keyMax  map[[2]string]int64 // the greatest bound that any job gives: which one holds is the policy's business
}

// sweep counts what runs along time. What ends at a time makes room for what begins at it.
func (c *checker) sweep() {
	n := counts{tenants: map[string]int64{}, keys: map[[2]string]int64{}, keyMax: map[[2]string]int64{}}
	for i := range c.run.Records {
		j := c.run.Records[i].Job
		for _, k := range j.Keys {
			key := [2]string{j.Tenant, k.Key}
			n.keyMax[key] = max(n.keyMax[key], k.Max)
		}
	}
	starts := c.edges(func(s *span) time.Duration { return s.start })
	ends := c.edges(func(s *span) time.Duration { return s.end })
	for _, e := range starts {
		for len(ends) > 0 && ends[0].at <= e.at {
			n.count(c.spans[ends[0].span].job, -1)
			ends = ends[1:]
		}
		j := c.spans[e.span].job
		n.count(j, 1)
		c.within(e.at, j, &n)
	}
}

// count adds a job to what runs, or takes it away.
func (n *counts) count(j *Job, by int64) {
	n.all += by
	n.classes[j.Class.Index()] += by
	n.tenants[j.Tenant] += by
	for _, k := range j.Keys {
		n.keys[[2]string{j.Tenant, k.Key}] += by
	}
}

// within checks the bounds on what runs once a job has begun.
func (c *checker) within(at time.Duration, j *Job, n *counts) {
	if n.all > int64(c.run.Slots) {
		c.fault("at %v %d jobs run on %d slots", at, n.all, c.run.Slots)
	}
	if most, got := c.run.Rules.ClassMax[j.Class.Index()], n.classes[j.Class.Index()]; most > 0 && got > most {
		c.fault("at %v %d %v jobs run, of at most %d", at, got, j.Class, most)
	}
	most, ok := c.run.Rules.RunningMaxOf[j.Tenant]
	if !ok {
		most = c.run.Rules.RunningMax
	}
	if got := n.tenants[j.Tenant]; most > 0 && got > most {
		c.fault("at %v %d jobs of %s run, of at most %d", at, got, j.Tenant, most)
	}
	for _, k := range j.Keys {
		key := [2]string{j.Tenant, k.Key}
		if got := n.keys[key]; got > n.keyMax[key] && !c.run.Rules.KeysIgnored {
			c.fault("at %v %d jobs of %s hold the key %s, of at most %d", at, got, j.Tenant, k.Key, n.keyMax[key])
		}
	}
}
