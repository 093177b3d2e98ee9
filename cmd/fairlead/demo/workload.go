package demo

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
)

// The operations of the demo's jobs.
const (
	operationWork = "demo.work" // takes the time that its payload states
	operationFile = "demo.file" // works on the file that its payload names
)

// workload is what both policies get.
type workload struct {
	tenants []tenant // the bulk one first
	jobs    []job    // each tenant's in the order in which it submits them
	// folder is what the files of jobs are relative to; empty when the jobs are not files.
	folder string
	// expected is about how long the bulk's jobs take, for the scale of the view; 0 when nobody knows.
	expected time.Duration
	// timeout bounds each policy's run.
	timeout time.Duration
}

// tenant is one of those who share the workers.
type tenant struct {
	id   cell.TenantID
	name string // for people
}

// job is one job of a workload.
type job struct {
	tenant int           // its place in workload.tenants
	at     time.Duration // when it is submitted, from the start
	order  order
	bytes  int64 // of its file
}

// bulkTenant is the place of the noisy one.
const bulkTenant = 0

// order is the payload of a job.
type order struct {
	// N is the job's place in the workload: how workers and the parent name it to each other.
	N int `json:"n"`
	// ServiceUS is how long the job takes, in microseconds.
	ServiceUS int64 `json:"service_us,omitempty"`
	// Data is what the receipt must have the checksum of.
	Data string `json:"data,omitempty"`
	// Path is the job's file, below the folder.
	Path string `json:"path,omitempty"`
}

// receipt is the result of a job. Times are in microseconds of Unix time, by the clock of the worker.
type receipt struct {
	N       int    `json:"n"`
	StartUS int64  `json:"start_us"`
	EndUS   int64  `json:"end_us"`
	Sum     uint32 `json:"sum"` // of the order's data, or of its path
	// Output is the beginning of what the program printed.
	Output string `json:"output,omitempty"`
}

// sum is the checksum that the order's receipt has.
func (o order) sum() uint32 { return crc32.ChecksumIEEE([]byte(o.Data + o.Path)) }

// submission is the job as the SDK submits it. A job that its handler fails stays failed: a demo that repeats what fails is not comparable.
func (j job) submission() client.Job {
	operation := operationWork
	if j.order.Path != "" {
		operation = operationFile
	}
	return client.Job{
		Operation: operation, Payload: client.JSON(j.order), IdempotencyKey: fmt.Sprintf("demo-%d", j.order.N),
		Retry: client.RetryPolicy{AttemptsMax: 1},
	}
}

// The shape of the workload, in parts of the time that the bulk's jobs take: quiet tenants' first jobs come within the first period after
// the lead, and the last ones while the bulk's are still running.
const (
	dataBytes    = 64
	serviceParts = 4 // a service time is within one of so many parts of what was asked for
)

// plan returns the workload that c describes. It depends on c alone.
func plan(c Config) *workload {
	random := rand.New(rand.NewPCG(c.Seed, 0x6661_6972))
	w := &workload{expected: c.bulkTime(), timeout: runTimeout(c.work())}
	add := func(tenant int, at time.Duration) {
		var data [dataBytes / 2]byte
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		spread := int64(c.Service / serviceParts)
		service := int64(c.Service) + random.Int64N(2*spread+1) - spread
		w.jobs = append(w.jobs, job{tenant: tenant, at: at, order: order{
			N: len(w.jobs), ServiceUS: max(1, time.Duration(service).Microseconds()), Data: hex.EncodeToString(data[:]),
		}})
	}
	w.tenants = append(w.tenants, tenant{id: "bulk", name: "bulk"})
	for range c.BulkJobs {
		add(bulkTenant, 0)
	}
	lead := c.bulkTime() / 25
	period := (c.bulkTime() - 2*lead) / (QuietJobsEach + 1)
	for i := range c.QuietTenants {
		name := fmt.Sprintf("quiet-%d", i+1)
		w.tenants = append(w.tenants, tenant{id: cell.TenantID(name), name: name})
		phase := lead + time.Duration(random.Int64N(int64(period)+1))
		for k := range QuietJobsEach {
			add(i+1, phase+time.Duration(k)*period)
		}
	}
	return w
}

// runTimeout bounds the run of a workload that takes about the given time on a machine that keeps up: one that takes ten times as long
// has jobs that are lost.
func runTimeout(work time.Duration) time.Duration { return time.Minute + 10*work }

// of returns the jobs of a tenant.
func (w *workload) of(tenant int) []job {
	// Each tenant's jobs stand together.
	from := slices.IndexFunc(w.jobs, func(j job) bool { return j.tenant == tenant })
	if from < 0 {
		return nil
	}
	to := from
	for to < len(w.jobs) && w.jobs[to].tenant == tenant {
		to++
	}
	return w.jobs[from:to]
}

// bulkJobs is how many jobs the bulk tenant has.
func (w *workload) bulkJobs() int { return len(w.of(bulkTenant)) }

// bulkName and restName are what the view calls the bulk tenant and the others.
func (w *workload) bulkName() string { return w.tenants[bulkTenant].name }

func (w *workload) restName() string {
	if w.folder != "" {
		return "others"
	}
	return "quiet"
}
