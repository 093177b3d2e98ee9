package demo

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func anyConfig(t *rapid.T) Config {
	return Config{
		BulkJobs: rapid.IntRange(1, 500).Draw(t, "bulk jobs"), QuietTenants: rapid.IntRange(1, 30).Draw(t, "quiet tenants"),
		Service: time.Duration(rapid.Int64Range(int64(ServiceMin), int64(time.Second)).Draw(t, "service")),
		Slots:   rapid.IntRange(1, SlotsMax).Draw(t, "slots"), Seed: rapid.Uint64().Draw(t, "seed"),
	}
}

// TestPlan: the same configuration gives the same jobs, as many as it asks for, each taking about as long as it asks for, and the quiet
// tenants' come while the bulk's are running.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyConfig(t)
		w := plan(c)
		if !reflect.DeepEqual(w, plan(c)) {
			t.Fatal("the same configuration gives another workload")
		}
		if got := len(w.of(bulkTenant)); got != c.BulkJobs || w.bulkJobs() != got {
			t.Fatalf("%d bulk jobs, want %d", got, c.BulkJobs)
		}
		if len(w.tenants) != 1+c.QuietTenants {
			t.Fatalf("%d tenants", len(w.tenants))
		}
		data := make(map[string]bool)
		for n, j := range w.jobs {
			service := time.Duration(j.order.ServiceUS) * time.Microsecond
			if off := (service - c.Service).Abs(); off > c.Service/serviceParts+time.Microsecond {
				t.Fatalf("job %d takes %v, of %v", n, service, c.Service)
			}
			if j.order.N != n || data[j.order.Data] {
				t.Fatalf("job %d has number %d, or the data of another", n, j.order.N)
			}
			data[j.order.Data] = true
			if j.at < 0 || j.at > c.bulkTime() || (j.tenant == bulkTenant) != (j.at == 0) && c.bulkTime() > time.Millisecond {
				t.Fatalf("job %d of tenant %d is due after %v, of %v", n, j.tenant, j.at, c.bulkTime())
			}
		}
		for i := range c.QuietTenants {
			mine := w.of(i + 1)
			if len(mine) != QuietJobsEach {
				t.Fatalf("tenant %d has %d jobs", i+1, len(mine))
			}
			for k, j := range mine {
				if j.tenant != i+1 || k > 0 && j.at < mine[k-1].at {
					t.Fatalf("job %d of tenant %d is tenant %d's, or out of order", k, i+1, j.tenant)
				}
			}
		}
	})
}

func TestSeedChoosesTheWorkload(t *testing.T) {
	a, b := DefaultConfig(), DefaultConfig()
	b.Seed++
	if reflect.DeepEqual(plan(a).jobs, plan(b).jobs) {
		t.Error("another seed gives the same jobs")
	}
}

func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"no bulk":              func(c *Config) { c.BulkJobs = 0 },
		"too many bulk jobs":   func(c *Config) { c.BulkJobs = BulkJobsMax + 1 },
		"no quiet tenant":      func(c *Config) { c.QuietTenants = 0 },
		"too many tenants":     func(c *Config) { c.QuietTenants = QuietTenantsMax + 1 },
		"no slot":              func(c *Config) { c.Slots = 0 },
		"too many slots":       func(c *Config) { c.Slots = SlotsMax + 1 },
		"short service":        func(c *Config) { c.Service = ServiceMin - 1 },
		"long service":         func(c *Config) { c.Service = ServiceMax + 1 },
		"hours of work":        func(c *Config) { c.BulkJobs, c.Service = BulkJobsMax, time.Second },
		"program without file": func(c *Config) { c.Program = "cat" },
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			change(&c)
			if err := c.Validate(); err == nil {
				t.Errorf("%+v is valid", c)
			}
		})
	}
}

func TestWorkerSlots(t *testing.T) {
	for slots := 1; slots <= SlotsMax; slots++ {
		sum := 0
		for _, n := range (Config{Slots: slots}).workerSlots() {
			if n < 1 {
				t.Errorf("%d slots leave a worker without one", slots)
			}
			sum += n
		}
		if sum != slots {
			t.Errorf("the workers have %d slots, of %d", sum, slots)
		}
	}
}
