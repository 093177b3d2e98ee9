package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The defaults and bounds of [Config].
const (
	PrefetchDefault      = 2
	LeaseDurationDefault = 30 * time.Second
	LeaseDurationMin     = 5 * time.Second
	LeaseDurationMax     = time.Hour
	PollWaitDefault      = 20 * time.Second
	PollWaitMax          = 60 * time.Second
	DrainTimeoutDefault  = 30 * time.Second
	StopGraceDefault     = 10 * time.Second

	// SlotsMax bounds slots and prefetch each: the cell hands out and counts each job of them.
	SlotsMax = 1_000
)

// Service is the part of the cell that a worker calls: the generated client, or a cell in the same process.
type Service interface {
	Lease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error)
	Report(ctx context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error)
}

// Config says where a worker leases from and how much it takes on. The zero value of every field but Client is its default.
type Config struct {
	// Client says how to reach the server; see [client.Config]. Its Addr is required unless Service is set.
	Client client.Config
	// Service is used instead of the server of Client.
	Service Service
	// Name is for people; the host's name by default, at most 128 bytes.
	Name string
	// Cell is the cell to lease from, which a worker of the platform has to say where there are several; a tenant's worker leaves it empty.
	// Client's own Cell when empty.
	Cell string
	// Group is the worker group that it belongs to, 1 to 64, in a cell whose tenants are dealt hands of groups; 0 for none.
	Group int
	// Slots is how many jobs run at once; GOMAXPROCS by default, at most 1,000.
	Slots int
	// Prefetch is how many jobs may be held beyond that, so that a slot that frees does not wait for the network; 2 by default, none when
	// negative, at most 1,000. Jobs held this way count against their tenants' caps.
	Prefetch int
	// Classes are those served; all when empty.
	Classes []cell.Class
	// LeaseDuration is how long the cell waits for a sign of life before it gives the jobs to somebody else; 30 s by default, 5 s to 1 h.
	LeaseDuration time.Duration
	// PollWait is how long one Lease waits for a job; 20 s by default, at most 60 s.
	PollWait time.Duration
	// DrainTimeout is how long running jobs have to end once Run's context has; 30 s by default, none when negative. After it their
	// contexts end.
	DrainTimeout time.Duration
	// StopGrace is how long handlers have to return once their contexts have ended, and how long the last outcomes have to be reported;
	// 10 s by default.
	StopGrace time.Duration
	// Middleware wraps every handler, the first outermost.
	Middleware []Middleware
	// Logger gets what an operator should know; slog's default when nil.
	Logger *slog.Logger
}

func (cfg Config) withDefaults() Config {
	cfg.Client.Cell = cmp.Or(cfg.Cell, cfg.Client.Cell)
	cfg.Slots = cmp.Or(cfg.Slots, runtime.GOMAXPROCS(0))
	cfg.Prefetch = max(0, cmp.Or(cfg.Prefetch, PrefetchDefault))
	cfg.LeaseDuration = cmp.Or(cfg.LeaseDuration, LeaseDurationDefault)
	cfg.PollWait = cmp.Or(cfg.PollWait, PollWaitDefault)
	cfg.DrainTimeout = max(0, cmp.Or(cfg.DrainTimeout, DrainTimeoutDefault))
	cfg.StopGrace = cmp.Or(cfg.StopGrace, StopGraceDefault)
	if cfg.Name == "" {
		cfg.Name = "worker"
		if host, err := os.Hostname(); err == nil && host != "" {
			cfg.Name = host
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

func (cfg Config) check() error {
	between := func(field string, d, low, high time.Duration) error {
		if d >= low && d <= high {
			return nil
		}
		return &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %v, outside %v to %v", d, low, high), Remedy: "leave it 0 for the default"}
	}
	switch {
	case cfg.Slots < 1 || cfg.Slots > SlotsMax:
		return &cell.FieldError{Field: "slots", Problem: fmt.Sprintf("is %d, outside 1 to %d", cfg.Slots, SlotsMax), Remedy: "run more workers"}
	case cfg.Group < 0 || cfg.Group > cell.WorkerGroupsMax:
		return &cell.FieldError{
			Field: "group", Problem: fmt.Sprintf("is %d, outside 1 to %d", cfg.Group, cell.WorkerGroupsMax), Remedy: "leave it 0 for none",
		}
	case cfg.Prefetch > SlotsMax:
		return &cell.FieldError{Field: "prefetch", Problem: fmt.Sprintf("is %d, above %d", cfg.Prefetch, SlotsMax), Remedy: "a few are enough"}
	case len(cfg.Name) > cell.IDBytesMax || !utf8.ValidString(cfg.Name):
		return &cell.FieldError{Field: "name", Problem: "is above 128 bytes or not UTF-8", Remedy: "give a short name"}
	}
	for _, c := range cfg.Classes {
		if !c.Valid() {
			return &cell.FieldError{Field: "classes", Problem: fmt.Sprintf("has %v", c), Remedy: "use interactive or batch"}
		}
	}
	return cmp.Or(
		between("lease_duration", cfg.LeaseDuration, LeaseDurationMin, LeaseDurationMax),
		between("poll_wait", cfg.PollWait, time.Millisecond, PollWaitMax),
		between("stop_grace", cfg.StopGrace, 0, time.Hour),
		between("drain_timeout", cfg.DrainTimeout, 0, 24*time.Hour),
	)
}
