package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
)

// CSV returns a line for each cohort of each run, and with [Options].Tenants one for each tenant: level says which. Times are in milliseconds.
func (r *Report) CSV() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	write := func(cells ...string) { _ = w.Write(cells) } // a buffer takes all
	write("scenario", "policy", "seed", "level", "name", "jobs", "completed", "rejected", "expired", "running", "waiting", "preempted",
		"wait_p50_ms", "wait_p95_ms", "wait_p99_ms", "wait_max_ms", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "latency_max_ms",
		"finished_ms", "share", "utilisation_percent")
	for _, s := range r.runs {
		levels := []struct {
			name   string
			groups []Group
		}{{"cohort", s.Cohorts}}
		if r.o.Tenants {
			levels = append(levels, struct {
				name   string
				groups []Group
			}{"tenant", s.Tenants})
		}
		for _, l := range levels {
			for _, g := range l.groups {
				write(s.Scenario, s.Policy, strconv.FormatUint(s.Seed, 10), l.name, g.Name, decimal(g.Jobs), decimal(g.Completed), decimal(g.Rejected),
					decimal(g.Expired), decimal(g.Running), decimal(g.Waiting), decimal(g.Preempted),
					ms(g.Wait.P50), ms(g.Wait.P95), ms(g.Wait.P99), ms(g.Wait.Max),
					ms(g.Latency.P50), ms(g.Latency.P95), ms(g.Latency.P99), ms(g.Latency.Max),
					ms(g.Finished), millionths(g.Share).String(), hundredths(s.Utilisation).String())
			}
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

func decimal(n int) string      { return strconv.Itoa(n) }
func ms(d time.Duration) string { return millis(d).String() }

// WriteJobs writes a line for each job of each run as CSV to w. Fields that do not apply are empty: the start of a job that never ran, the end of one
// that was not completed.
func WriteJobs(w io.Writer, runs []*sim.Run) error {
	c := csv.NewWriter(w)
	err := c.Write([]string{
		"scenario", "policy", "seed", "job", "tenant", "organization", "cohort", "class", "operation", "priority", "state",
		"arrival_ms", "start_ms", "end_ms", "wait_ms", "latency_ms", "service_ms", "charged", "slot", "preempted",
	})
	for _, run := range runs {
		for i := range run.Records {
			if err != nil {
				break
			}
			err = c.Write(jobCells(run, &run.Records[i]))
		}
	}
	c.Flush()
	if err == nil {
		err = c.Error()
	}
	if err != nil {
		return fmt.Errorf("writing the jobs: %w", err)
	}
	return nil
}

func jobCells(run *sim.Run, r *sim.Record) []string {
	j := r.Job
	var start, end, wait, latency, slot string
	if r.State == sim.StateCompleted || r.State == sim.StateRunning {
		start, wait, slot = ms(r.Start), ms(r.Wait()), strconv.Itoa(int(r.Slot))
	}
	if r.State == sim.StateCompleted {
		end, latency = ms(r.End), ms(r.Latency())
	}
	return []string{
		run.Scenario, run.Policy, strconv.FormatUint(run.Seed, 10), strconv.Itoa(j.ID), j.Tenant, j.Organization, Cohort(j), j.Class.String(),
		string(j.Operation), strconv.Itoa(int(j.Priority)), r.State.String(), ms(j.Arrival), start, end, wait, latency, ms(j.Service),
		strconv.FormatInt(int64(r.Charged), 10), slot, strconv.Itoa(int(r.Preempted)),
	}
}
