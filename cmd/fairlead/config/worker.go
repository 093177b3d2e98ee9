package config

import (
	"runtime"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/worker"
)

// Worker says what fairlead worker runs and how much of it.
type Worker struct {
	// Operations are the kinds of jobs to lease, 1 to 64.
	Operations []string `mapstructure:"operation"`
	// Exec is a shell command to run for each job; what follows -- on the command line goes without a shell.
	Exec string `mapstructure:"exec"`
	// HTTP is a URL to post each job to.
	HTTP string `mapstructure:"http"`
	// Echo answers each job with its payload, in this process. One of Exec, HTTP and Echo.
	Echo bool `mapstructure:"echo"`
	// EchoDelay is how long a job takes before it is answered so, up to an hour. Default 0.
	EchoDelay time.Duration `mapstructure:"echo-delay"`
	// Slots is how many jobs run at once. Default: one for each CPU that the process may use.
	Slots int `mapstructure:"slots"`
	// Prefetch is how many more may be held, not started yet. Default 2.
	Prefetch int `mapstructure:"prefetch"`
	// Classes are the classes to serve; both when empty.
	Classes []string `mapstructure:"class"`
	// Cell is the cell to work for; the tenant's, or the only one, when empty.
	Cell string `mapstructure:"cell"`
	// Group is the worker group that it belongs to, 1 to 64, in a cell whose tenants are dealt hands of groups. Default 0, none.
	Group int `mapstructure:"group"`
	// Name is shown to people. Default: the host's name.
	Name string `mapstructure:"name"`
	// Lease is how long a lease lasts without an extension. Default 30 s.
	Lease time.Duration `mapstructure:"lease"`
	// DrainTimeout is how long running jobs may take to finish after SIGTERM; then they are handed back. Default 30 s.
	DrainTimeout time.Duration `mapstructure:"drain-timeout"`
	// AllowPlainHTTP lets HTTP be a URL without TLS.
	AllowPlainHTTP bool `mapstructure:"allow-plain-http"`
	// AllowPrivateAddress lets HTTP reach loopback, private and link-local addresses.
	AllowPrivateAddress bool `mapstructure:"allow-private-address"`
	// LogLevel is the least level that is logged. Default info.
	LogLevel string `mapstructure:"log-level"`
	// LogFormat is text or json. Default text.
	LogFormat string `mapstructure:"log-format"`
}

// The bounds of a worker that are not the SDK's own.
const (
	operationsMax   = 64
	drainTimeoutMax = 24 * time.Hour
	echoDelayMax    = time.Hour
)

// DefaultWorker returns the defaults.
func DefaultWorker() Worker {
	return Worker{
		Slots: runtime.GOMAXPROCS(0), Prefetch: worker.PrefetchDefault, Lease: worker.LeaseDurationDefault, DrainTimeout: worker.DrainTimeoutDefault,
		LogLevel: DefaultLogLevel, LogFormat: DefaultLogFormat,
	}
}

// ClassNames lists the classes of jobs.
func ClassNames() []string {
	var names []string
	for _, c := range cell.Classes() {
		names = append(names, c.String())
	}
	return names
}

// Validate returns every fault of what is set. What a worker cannot do without is [Worker.Missing]'s to say.
func (w Worker) Validate() []Fault {
	var faults []Fault
	add := func(f Fault) { faults = append(faults, f) }
	for _, op := range w.Operations {
		if _, err := cell.ParseOperation("worker.operation", op); err != nil {
			add(fieldFault(err))
		}
	}
	if len(w.Operations) > operationsMax {
		add(faultf("worker.operation", "start another worker", "has %d operations, of at most %d", len(w.Operations), operationsMax))
	}
	for _, c := range w.Classes {
		if !slices.Contains(ClassNames(), c) {
			add(enumFault("worker.class", c, ClassNames()))
		}
	}
	if w.Exec != "" && w.HTTP != "" {
		add(faultf("worker.exec", "give one of them", "and worker.http are both set"))
	}
	faults = append(faults, w.validateHTTP()...)
	faults = append(faults, w.validateEcho()...)
	for _, r := range []struct {
		key           string
		value, lo, hi int
	}{{"worker.slots", w.Slots, 1, worker.SlotsMax}, {"worker.prefetch", w.Prefetch, 0, worker.SlotsMax}, {"worker.group", w.Group, 0, cell.WorkerGroupsMax}} {
		if r.value < r.lo || r.value > r.hi {
			add(faultf(r.key, "give a number in that range", "is %d, outside %d to %d", r.value, r.lo, r.hi))
		}
	}
	if w.Lease < worker.LeaseDurationMin || w.Lease > worker.LeaseDurationMax {
		add(faultf("worker.lease", "give a duration such as 30s", "is %v, outside %v to %v", w.Lease, worker.LeaseDurationMin, worker.LeaseDurationMax))
	}
	if w.DrainTimeout < 0 || w.DrainTimeout > drainTimeoutMax {
		add(faultf("worker.drain-timeout", "give a duration such as 30s", "is %v, outside 0s to %v", w.DrainTimeout, drainTimeoutMax))
	}
	if w.Cell != "" {
		if _, err := cell.ParseCellID("worker.cell", w.Cell); err != nil {
			add(fieldFault(err))
		}
	}
	if len(w.Name) > cell.IDBytesMax || !utf8.ValidString(w.Name) {
		add(faultf("worker.name", "give a short text", "%.40q is above %d bytes or not UTF-8", w.Name, cell.IDBytesMax))
	}
	return append(faults, validateLog("worker", w.LogLevel, w.LogFormat)...)
}

func (w Worker) validateHTTP() []Fault {
	if w.HTTP == "" {
		return nil
	}
	u, problem := parseTarget(w.HTTP)
	if problem != "" {
		return []Fault{faultf("worker.http", "give a URL such as https://example.com/jobs", "%.200q %s", w.HTTP, problem)}
	}
	if u.Scheme == "http" && !w.AllowPlainHTTP {
		return []Fault{faultf("worker.http", "use https, or allow it with --allow-plain-http",
			"%.200q is not encrypted: payloads and results could be read and changed on the way", w.HTTP)}
	}
	return nil
}

func (w Worker) validateEcho() []Fault {
	var faults []Fault
	if w.Echo && (w.Exec != "" || w.HTTP != "") {
		faults = append(faults, faultf("worker.echo", "give one of them", "and worker.exec or worker.http are both set"))
	}
	if w.EchoDelay < 0 || w.EchoDelay > echoDelayMax {
		faults = append(faults, faultf("worker.echo-delay", "give a duration such as 100ms", "is %v, outside 0s to %v", w.EchoDelay, echoDelayMax))
	}
	if w.EchoDelay > 0 && !w.Echo {
		faults = append(faults, faultf("worker.echo-delay", "add --echo", "is set without worker.echo"))
	}
	return faults
}

// Missing returns what a worker needs and is not set: operations, and something to run, unless argv holds a command.
func (w Worker) Missing(argv []string) []Fault {
	var faults []Fault
	if len(w.Operations) == 0 {
		faults = append(faults, faultf("worker.operation", "name what it works on: --operation invoice.export", "is empty"))
	}
	switch {
	case len(argv) > 0 && (w.Exec != "" || w.HTTP != "" || w.Echo):
		faults = append(faults, faultf("worker.exec", "give one of --exec, --http, --echo and -- COMMAND",
			"or worker.http or worker.echo is set, and a command stands after --"))
	case len(argv) == 0 && w.Exec == "" && w.HTTP == "" && !w.Echo:
		faults = append(faults, faultf("worker.exec", "say what runs a job: --exec CMD, --http URL, --echo, or -- COMMAND ARGS",
			"and worker.http are empty"))
	}
	return faults
}
