package sim

import (
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// deficit is deficit round robin among the tenants, by weight, and by what jobs declare to cost; those that declare nothing are charged
// what they turn out to cost, which a real scheduler cannot know. Nothing is settled: whoever under-declares gains by it. Slots that offer
// different operations are different offer sets of one ring.
type deficit struct {
	offers []operations
	keys   *keyring
	ring   *drr.Ring[*flow]
	flows  map[string]*drr.Flow[*flow]
}

type flow struct{ lineup lineup }

func newDeficit(s *Scenario) (*deficit, error) {
	names := tenantsOf(s)
	ring, err := drr.New[*flow](drr.Config{Quantum: quantumOf(s), FlowsMax: max(1, len(names))})
	if err != nil {
		return nil, err
	}
	d := &deficit{offers: offersOf(s), keys: newKeyring(), ring: ring, flows: make(map[string]*drr.Flow[*flow], len(names))}
	for i := range s.Workers {
		if err := ring.OpenSet(drr.SetID(i)); err != nil {
			return nil, err
		}
	}
	weights, usual := map[string]cell.Weight{}, cell.WeightDefault
	if s.Policy != nil {
		usual = s.Policy.Default.Weight
		for _, t := range s.Policy.Tenants {
			weights[string(t.Tenant)] = t.Weight
		}
	}
	for _, name := range names {
		w, ok := weights[name]
		if !ok {
			w = usual
		}
		f, err := ring.NewFlow(&flow{lineup: lineup{keys: d.keys}}, drr.Weight(w))
		if err != nil {
			return nil, err
		}
		d.flows[name] = f
	}
	return d, nil
}

// quantumOf returns the mean cost of the scenario's jobs: then a round is about one job of each tenant.
func quantumOf(s *Scenario) int64 { return toQuantum(int64(s.meanCost(declared))) }

// declared is what deficit charges for a job.
func declared(j *Job) cell.Cost { return max(1, j.Declared(j.Charge())) }

// meanCost returns the mean of a cost of the scenario's jobs.
func (s *Scenario) meanCost(of func(*Job) cell.Cost) cell.Cost {
	var sum float64
	for i := range s.Jobs {
		sum += float64(of(&s.Jobs[i]))
	}
	return cell.Cost(sum / float64(max(1, len(s.Jobs))))
}

// toQuantum rounds a cost to what a quantum may be.
func toQuantum(cost int64) int64 {
	steps := (cost + drr.QuantumMin/2) / drr.QuantumMin
	return max(1, min(steps, drr.QuantumMax/drr.QuantumMin)) * drr.QuantumMin
}

// Arrive implements Dispatcher.
func (d *deficit) Arrive(_ time.Duration, r *Record) error {
	f := d.flows[r.Job.Tenant]
	f.Value.lineup.push(r)
	d.refresh(f)
	return nil
}

// refresh makes the flow active in the offer sets that it has a job for which may run.
func (d *deficit) refresh(f *drr.Flow[*flow]) {
	for i, offered := range d.offers {
		set := drr.SetID(i)
		switch ready := f.Value.lineup.first(offered) != nil; {
		case ready && !f.Active(set):
			d.ring.Activate(f, set)
		case !ready && f.Active(set):
			d.ring.Deactivate(f, set)
		}
	}
}

// Next implements Dispatcher.
func (d *deficit) Next(_ time.Duration, workers int) (*Record, bool) {
	set := drr.SetID(workers)
	f, ok := d.ring.Next(set)
	if !ok {
		return nil, false
	}
	lineup := &f.Value.lineup
	r := lineup.take(lineup.first(d.offers[workers]))
	d.ring.Charge(f, set, int64(declared(r.Job)))
	d.keys.hold(r.Job, 1)
	d.refresh(f)
	return r, true
}

// Complete implements Dispatcher.
func (d *deficit) Complete(_ time.Duration, r *Record) {
	if len(r.Job.Keys) > 0 {
		d.keys.hold(r.Job, -1)
		d.refresh(d.flows[r.Job.Tenant])
	}
}

// Remove implements Dispatcher.
func (d *deficit) Remove(_ time.Duration, r *Record) {
	f := d.flows[r.Job.Tenant]
	f.Value.lineup.removed()
	d.refresh(f)
}
