package demo

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Config says what the demo runs. The fields are those of the command line, and so are the names in its errors.
type Config struct {
	// BulkJobs is how many jobs the bulk tenant submits at once. Default 400.
	BulkJobs int
	// QuietTenants is how many tenants submit [QuietJobsEach] jobs each while the bulk's are running. Default 19.
	QuietTenants int
	// Service is how long a job takes; each job's own time is within a quarter of it. Default 100 ms.
	Service time.Duration
	// Slots is how many jobs run at once, in two worker processes unless it is 1. Default 8.
	Slots int
	// Seed chooses service times, payloads and moments. Default 1.
	Seed uint64
	// Keep leaves the state directory behind.
	Keep bool

	// Folder holds a sub-folder for each tenant, whose files are the jobs. BulkJobs, QuietTenants, Service and Seed say nothing then.
	Folder string
	// Program is a shell command that is run for each file, with the file as its standard input. Lines and bytes are counted when it is
	// empty.
	Program string
}

// The bounds of a demo. It is to be looked at: what takes longer than a few minutes is a benchmark.
const (
	QuietJobsEach = 4

	BulkJobsMax     = 20_000
	QuietTenantsMax = 500
	ServiceMin      = time.Millisecond
	ServiceMax      = time.Minute
	SlotsMax        = 256
	workMax         = 10 * time.Minute // for each policy, with every slot busy
)

// DefaultConfig returns the defaults: about six seconds for each policy.
func DefaultConfig() Config {
	return Config{BulkJobs: 400, QuietTenants: 19, Service: 100 * time.Millisecond, Slots: 8, Seed: 1}
}

// Validate returns every fault, each as a *[cell.FieldError], and nil when there is none.
func (c Config) Validate() error {
	var errs []error
	fault := func(field, remedy, format string, args ...any) {
		errs = append(errs, &cell.FieldError{Field: field, Problem: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	for _, r := range []struct {
		field     string
		value, hi int
	}{{"--bulk-jobs", c.BulkJobs, BulkJobsMax}, {"--quiet-tenants", c.QuietTenants, QuietTenantsMax}, {"--slots", c.Slots, SlotsMax}} {
		if r.value < 1 || r.value > r.hi {
			fault(r.field, "give a number in that range", "is %d, outside 1 to %d", r.value, r.hi)
		}
	}
	if c.Service < ServiceMin || c.Service > ServiceMax {
		fault("--service", "give a duration such as 100ms", "is %v, outside %v to %v", c.Service, ServiceMin, ServiceMax)
	}
	if c.Program != "" && c.Folder == "" {
		fault("--exec", "name the folder with the tenants' files with --dir", "has no files to run on")
	}
	if len(errs) == 0 && c.Folder == "" && c.work() > workMax {
		fault("--bulk-jobs", "give fewer jobs, a shorter --service or more --slots", "means %v of work for each policy, of at most %v",
			c.work().Round(time.Second), workMax)
	}
	return errors.Join(errs...)
}

// bulkTime is how long the bulk's jobs take with every slot busy.
func (c Config) bulkTime() time.Duration {
	return time.Duration(c.BulkJobs) * c.Service / time.Duration(c.Slots)
}

// work is how long all jobs take with every slot busy.
func (c Config) work() time.Duration {
	return time.Duration(c.BulkJobs+c.QuietTenants*QuietJobsEach) * c.Service / time.Duration(c.Slots)
}

// workerSlots returns how many jobs each worker process runs at once.
func (c Config) workerSlots() []int {
	if c.Slots == 1 {
		return []int{1}
	}
	return []int{c.Slots - c.Slots/2, c.Slots / 2}
}
