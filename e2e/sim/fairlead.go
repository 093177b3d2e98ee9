package sim

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cell/sched"
)

// epoch is the instant of time 0: the scheduler's instant 0 is none.
const epoch cell.Instant = 946_684_800e9

// fairlead is the scheduler of production, driven as a cell's leader drives it: time first, then what completes, what comes and what
// expires, then attempts that run longer than they were charged for and borrowed slots that are due, and then who is next.
type fairlead struct {
	sched   *sched.Scheduler
	offers  []sched.OfferID
	rules   Rules
	records []*Record // by their places, which are the jobs' ids there
	expired []*Record // at this instant
	last    time.Duration
}

// newFairlead makes the scheduler of a policy for a scenario: with its organizations and tenants, and the default for tenants that it does
// not name.
func newFairlead(s *Scenario, p *policy.File) (*fairlead, error) {
	cfg := p.Sched
	tenants, organizations := promises(s, p)
	cfg.LanesMax = max(cfg.LanesMax, 2*len(tenants))
	if p.Costing.ByUnit || s.Unit != cell.UnitSlotSeconds {
		cfg.OverrunMin = 0 // as in a leader: time says nothing about what an attempt will have cost
	}
	core, err := sched.New(cfg, epoch)
	if err != nil {
		return nil, err
	}
	f := &fairlead{sched: core, records: make([]*Record, len(s.Jobs))}
	f.sched.Resize(int64(s.Slots()), int64(s.Slots()))
	for _, o := range organizations {
		if err := core.SetOrganization(o); err != nil {
			return nil, fmt.Errorf("organization %s: %w", o.Organization, err)
		}
	}
	f.rules.KeysIgnored, f.rules.RunningMaxOf = cfg.Policy == sched.PolicyFIFO, map[string]int64{}
	if cfg.Policy == sched.PolicyFairlead {
		f.rules.HandOf = map[string]uint64{}
	}
	for _, t := range tenants {
		if err := core.SetTenant(t); err != nil {
			return nil, fmt.Errorf("tenant %s: %w", t.Tenant, err)
		}
		if cfg.Policy == sched.PolicyFairlead {
			f.rules.RunningMaxOf[string(t.Tenant)] = t.RunningMax
			f.rules.HandOf[string(t.Tenant)] = t.Groups
		}
	}
	all := operationsOf(s)
	for _, w := range s.Workers {
		ops := w.Operations
		if len(ops) == 0 {
			ops = all
		}
		offer, err := core.Open(ops, w.Group)
		if err != nil {
			return nil, err
		}
		f.offers = append(f.offers, offer)
	}
	for i, c := range cell.Classes() {
		own, other := core.Use(c), core.Use(cell.Classes()[1-i])
		f.rules.ClassMax[i] = max(own.Nominal, min(
			int64(s.Slots())-(other.Nominal-other.Lendable), own.Nominal+int64(s.Slots())*cfg.Bulkheads[i].BorrowMaxPercent/100,
		))
	}
	return f, nil
}

// promises returns the policies of everybody who has a job, and of those whom the policy names besides. An organization that only the jobs
// name has the usual weight.
func promises(s *Scenario, p *policy.File) ([]cell.TenantPolicy, []cell.OrganizationPolicy) {
	tenants, organizations := slices.Clone(p.Tenants), slices.Clone(p.Organizations)
	known, parents := map[cell.TenantID]bool{}, map[cell.OrganizationID]bool{}
	for _, t := range tenants {
		known[t.Tenant] = true
	}
	for _, o := range organizations {
		parents[o.Organization] = true
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		id := cell.TenantID(j.Tenant)
		if known[id] {
			continue
		}
		known[id] = true
		t := p.Default
		t.Tenant = id
		if parent := cell.OrganizationID(j.Organization); t.Organization == "" && parent != "" {
			t.Organization = parent
			if !parents[parent] {
				parents[parent] = true
				organizations = append(organizations, cell.OrganizationPolicy{Organization: parent, Weight: cell.WeightDefault, Epoch: 1})
			}
		}
		tenants = append(tenants, t)
	}
	return tenants, organizations
}

// operationsOf returns what jobs of the scenario need, sorted.
func operationsOf(s *Scenario) []cell.Operation {
	seen := map[cell.Operation]bool{}
	var out []cell.Operation
	for i := range s.Jobs {
		if op := s.Jobs[i].Operation; !seen[op] {
			seen[op] = true
			out = append(out, op)
		}
	}
	slices.Sort(out)
	return out
}

// Rules implements Ruled.
func (f *fairlead) Rules() Rules { return f.rules }

// Advance implements Timed.
func (f *fairlead) Advance(now time.Duration, free int) {
	f.sched.Advance(epoch.Add(now))
	elapsed := now - f.last
	f.last = now
	if elapsed > 0 && free > 0 && !f.sched.Starved() {
		f.sched.Idle(int64(free) * elapsed.Microseconds())
	}
}

// Arrive implements Dispatcher.
func (f *fairlead) Arrive(_ time.Duration, r *Record) error {
	f.records[r.place] = r
	_, err := f.sched.Add(item(r))
	return err
}

// item is a job as the scheduler takes it. One that was taken back keeps its place.
func item(r *Record) sched.Item {
	j := r.Job
	it := sched.Item{
		ID: r.id(), Lane: cell.Lane{Tenant: cell.TenantID(j.Tenant), Class: j.Class}, Operation: j.Operation, Seq: uint64(r.place) + 1,
		Created: epoch.Add(j.Arrival), Priority: j.Priority, Cost: j.Cost, Keys: j.Keys, Preemptible: j.Preemptible,
	}
	if j.Deadline > 0 {
		it.Deadline = epoch.Add(j.Deadline)
	}
	return it
}

// id is the job's id in the scheduler.
func (r *Record) id() cell.JobID {
	var id cell.JobID
	binary.BigEndian.PutUint32(id[12:], uint32(r.place))
	return id
}

func (f *fairlead) record(id cell.JobID) *Record { return f.records[binary.BigEndian.Uint32(id[12:])] }

// Review implements Timed.
func (f *fairlead) Review(now time.Duration) ([]*Record, error) {
	at := epoch.Add(now)
	f.sched.Overruns(at, math.MaxInt)
	var back []*Record
	for _, id := range f.sched.Preempt(at, math.MaxInt) {
		r := f.record(id)
		f.sched.Settle(id, partly(r.Job, now-r.Start))
		if _, err := f.sched.Add(item(r)); err != nil {
			return nil, err
		}
		f.sched.Drop(id)
		back = append(back, r)
	}
	return back, nil
}

// nextTries bounds how often Next asks again because the scheduler has left something undone, which it does after so many strands of jobs
// with several concurrency keys in one call.
const nextTries = 1 << 20

// Next implements Dispatcher.
func (f *fairlead) Next(now time.Duration, workers int) (*Record, bool) {
	at := epoch.Add(now)
	for range nextTries {
		g, ok := f.sched.Next(sched.Ask{Now: at, Offer: f.offers[workers], Classes: [2]bool{true, true}})
		if ok {
			return f.record(g.Item.ID), true
		}
		if wake := f.sched.Wake(at); wake == 0 || wake > at {
			break
		}
	}
	return nil, false
}

// Complete implements Dispatcher.
func (f *fairlead) Complete(_ time.Duration, r *Record) {
	id := r.id()
	f.sched.Settle(id, r.Job.Charge())
	f.sched.Observe(cell.TenantID(r.Job.Tenant), r.Job.Operation, r.Job.Charge())
	if !f.sched.Drop(id) {
		panic(fmt.Sprintf("sim: job %d completes and is not held", r.Job.ID))
	}
}

// Remove implements Dispatcher. In a cell jobs expire by the entry that has the grants of the instant, after them: until then they count as
// waiting, though none is granted past its deadline.
func (f *fairlead) Remove(_ time.Duration, r *Record) { f.expired = append(f.expired, r) }

// Wake implements Timed.
func (f *fairlead) Wake(now time.Duration) (time.Duration, bool) {
	for _, r := range f.expired {
		f.sched.Remove(r.id()) // the scheduler may have thrown it out itself
	}
	f.expired = f.expired[:0]
	wake := f.sched.Wake(epoch.Add(now))
	return wake.Sub(epoch), wake != 0
}
