package report_test

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
)

// quietAndBulk is one tenant with 400 jobs at once and nineteen with four jobs each now and then, which run 100 ms.
func quietAndBulk(bulk time.Duration) []sim.Job {
	var jobs []sim.Job
	add := func(tenant, cohort string, class cell.Class, arrival, service time.Duration) {
		jobs = append(jobs, sim.Job{
			ID: len(jobs), Arrival: arrival, Service: service,
			Traits: &sim.Traits{Tenant: tenant, Cohort: cohort, Class: class, Operation: "work"},
		})
	}
	for range 400 {
		add("t00", "bulk", cell.ClassBatch, 0, bulk)
	}
	for _, at := range []time.Duration{200 * ms, 600 * ms, 1000 * ms, 1400 * ms} {
		for t := 1; t < 20; t++ {
			add(fmt.Sprintf("t%02d", t), "quiet", cell.ClassInteractive, at, 100*ms)
		}
	}
	return jobs
}

// play runs jobs on slots in a simple way that shares nothing with the simulator: every millisecond it looks who is done, who has come and who may run.
// In turn rotates over tenants in the order of their names, passing over those with as many jobs running as the cap; otherwise the first to come is
// the first to run.
func play(policy string, jobs []sim.Job, slots int, inTurn bool, limit int) *sim.Run {
	run := &sim.Run{Scenario: "quiet-and-bulk", Policy: policy, Seed: 1, Unit: "slot_us", Slots: slots, Records: make([]sim.Record, len(jobs))}
	for i := range jobs {
		run.Records[i] = sim.Record{Job: &jobs[i], Slot: -1}
	}
	waiting := map[string][]int{}
	running := map[string]int{}
	busy := make([]int, slots) // record + 1
	var order []string
	cursor, left, come := 0, len(jobs), 0
	for now := time.Duration(0); left > 0; now += time.Millisecond {
		for s, k := range busy {
			if k > 0 && run.Records[k-1].End == now {
				busy[s] = 0
				running[jobs[k-1].Tenant]--
				run.Records[k-1].State = sim.StateCompleted
				run.Records[k-1].Charged = jobs[k-1].Charge()
				run.End = now
				left--
			}
		}
		for ; come < len(jobs) && jobs[come].Arrival == now; come++ {
			queue := "all"
			if inTurn {
				queue = jobs[come].Tenant
			}
			if _, ok := waiting[queue]; !ok {
				order = append(order, queue)
			}
			waiting[queue] = append(waiting[queue], come)
		}
		for s := range busy {
			if busy[s] > 0 {
				continue
			}
			for i := range order {
				at := (cursor + i) % len(order)
				queue := order[at]
				if len(waiting[queue]) == 0 || limit > 0 && running[queue] >= limit {
					continue
				}
				k := waiting[queue][0]
				waiting[queue] = waiting[queue][1:]
				running[jobs[k].Tenant]++
				r := &run.Records[k]
				r.Start, r.End, r.Slot, r.State = now, now+jobs[k].Service, int32(s), sim.StateRunning
				busy[s] = k + 1
				cursor = at + 1
				break
			}
		}
	}
	return run
}

// threePolicies are the runs that the pictures and the tables are tried on.
func threePolicies() []*sim.Run {
	jobs := quietAndBulk(500 * time.Millisecond)
	return []*sim.Run{play("fifo", jobs, 8, false, 0), play("rr", jobs, 8, true, 0), play("capped-rr", jobs, 8, true, 2)}
}

// mixed is a run in which jobs came to every end, and one attempt was taken back; the names are what a stranger may write.
func mixed() *sim.Run {
	traits := func(tenant, cohort string, class cell.Class) *sim.Traits {
		return &sim.Traits{Tenant: tenant, Cohort: cohort, Organization: "org", Class: class, Operation: "work"}
	}
	odd := traits("<b>\x1b[31m&\"'\u202e</b>", "]]>odd\x00", cell.ClassBatch)
	usual := traits("usual", "", cell.ClassInteractive)
	job := func(id int, traits *sim.Traits, arrival, service time.Duration) *sim.Job {
		return &sim.Job{Traits: traits, ID: id, Arrival: arrival, Service: service}
	}
	const second = time.Second
	late := job(4, usual, second, second)
	late.Deadline = 2 * second
	taken := job(1, odd, 0, 3*second)
	return &sim.Run{
		Scenario: "mixed & odd", Policy: "a/path/<policy>.yaml", Seed: 18446744073709551615, Unit: "slot_us", Slots: 2, End: 7 * second,
		Records: []sim.Record{
			{Job: job(0, usual, 0, 2*second), Start: 0, End: 2 * second, Slot: 0, State: sim.StateCompleted, Charged: 2_000_000},
			{Job: taken, Start: 4*second + time.Microsecond/2, End: 7*second + time.Microsecond/2, Slot: 1, State: sim.StateCompleted, Charged: 4_000_000, Preempted: 1},
			{Job: job(2, odd, second, second), Slot: -1, State: sim.StateRejected},
			{Job: job(3, usual, second, 20*second), Start: 6 * second, Slot: 0, State: sim.StateRunning},
			{Job: late, Slot: -1, State: sim.StateExpired},
			{Job: job(5, odd, 5*second, second), Slot: -1, State: sim.StateWaiting},
		},
		Revoked: []sim.Attempt{{Job: taken, Start: 0, End: second, Slot: 1}},
		Notes:   []string{"the trace names no tenants"},
	}
}
