package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/dataplane/route"
)

// The names of the limits of forwarding, as refusals and logs give them.
const (
	LimitInFlightPerCell   = "in_flight_per_cell_max"
	LimitInFlightPerTenant = "in_flight_per_tenant_max"
	LimitParkedPerCell     = "parked_per_cell_max"
	LimitBytesPerCell      = "buffered_bytes_per_cell_max"

	LimitWaiting               = "waiting_requests_max"
	LimitWaitingPerTenant      = "waiting_requests_per_tenant_max"
	LimitWaitingBytes          = "waiting_bytes_max"
	LimitWaitingBytesPerTenant = "waiting_bytes_per_tenant_max"
)

// waitingShare is the part of the room for requests of tenants that move which one tenant's may be at most.
const waitingShare = 4

// ForwardConfig says how a [Forwarder] finds the agents behind the door. Use [DefaultForwardConfig] and change what differs.
type ForwardConfig struct {
	// Routes returns the present routes. It is called for every request and must not block. Required.
	Routes func() *route.Table
	// Changed returns a channel that is closed once the routes are others than Routes returned before the call, such as Watcher.Changed. Nil
	// makes requests that wait for a change look again and again.
	Changed func() <-chan struct{}
	// Transport returns a way to the one agent: it must refuse another agent's certificate, and share no connections with any other that it
	// has returned. It is called twice for each agent, since probes must not queue behind calls. Required.
	Transport func(to Peer) http.RoundTripper
	// InFlightPerCellMax bounds the requests under way to one cell, and to control, long polls included. Default 8,192: one that hangs costs
	// some 20 KiB. Beyond it the answer is unavailable, CELL_OVERLOADED.
	InFlightPerCellMax int
	// InFlightPerTenantMax bounds those of one tenant. Default 2,048, so that one alone does not fill its cell's. Beyond it the answer
	// is resource_exhausted.
	InFlightPerTenantMax int
	// ParkedPerCellMax bounds those that wait for a leader. Default 1,024. Beyond it the answer is unavailable, CELL_OVERLOADED.
	ParkedPerCellMax int
	// BytesPerCellMax bounds the bodies that are held until they are answered. Default 64 MiB. Beyond it the answer is unavailable,
	// CELL_OVERLOADED.
	BytesPerCellMax int64
	// WaitingMax bounds the requests that wait because their tenant moves from one cell to another, of all tenants. Default 4,096: one costs
	// some 20 KiB. Beyond it, and beyond the three bounds that follow, the answer is unavailable, NOT_APPLIED, with the limit's name.
	WaitingMax int
	// WaitingPerTenantMax bounds those of one tenant. Default 512; a quarter of WaitingMax at most, so that none has all of it.
	WaitingPerTenantMax int
	// WaitingBytesMax bounds the bodies of those that wait, of all tenants. Default 64 MiB.
	WaitingBytesMax int64
	// WaitingBytesPerTenantMax bounds those of one tenant. Default 16 MiB; at least what one request may have, twice, since its buffer grows by
	// doubling; a quarter of WaitingBytesMax at most.
	WaitingBytesPerTenantMax int64
	// ParkMax bounds how long a request is tried while nobody takes it. Default 5 s. Then the answer is unavailable, NOT_APPLIED.
	ParkMax time.Duration
	// ProbeEvery is how often a leader is asked whether it still leads, while it has requests. Default 300 ms.
	ProbeEvery time.Duration
	// ProbeSilence is how long an agent may leave probes unanswered before the requests that it has are given up. Default 2 s.
	ProbeSilence time.Duration
	// Log receives what an operator should know. Default [slog.Default].
	Log *slog.Logger
}

// DefaultForwardConfig returns the defaults that the fields of [ForwardConfig] state.
func DefaultForwardConfig() ForwardConfig {
	return ForwardConfig{
		InFlightPerCellMax:   8192,
		InFlightPerTenantMax: 2048,
		ParkedPerCellMax:     1024,
		BytesPerCellMax:      64 << 20,

		WaitingMax:               4096,
		WaitingPerTenantMax:      512,
		WaitingBytesMax:          64 << 20,
		WaitingBytesPerTenantMax: 16 << 20,

		ParkMax:      5 * time.Second,
		ProbeEvery:   300 * time.Millisecond,
		ProbeSilence: 2 * time.Second,
	}
}

// Validate returns an error that names every field outside its bounds, or nil.
func (c ForwardConfig) Validate() error {
	var errs []error
	if c.Routes == nil {
		errs = append(errs, errors.New("gateway: Routes is nil: give where the routes are kept, such as Watcher.Table"))
	}
	if c.Transport == nil {
		errs = append(errs, errors.New("gateway: Transport is nil: give a way to the other agents"))
	}
	positive := func(field string, n int64) {
		if n < 1 {
			errs = append(errs, fmt.Errorf("gateway: %s is %d: give 1 or more", field, n))
		}
	}
	positive("InFlightPerCellMax", int64(c.InFlightPerCellMax))
	positive("InFlightPerTenantMax", int64(c.InFlightPerTenantMax))
	positive("ParkedPerCellMax", int64(c.ParkedPerCellMax))
	positive("WaitingMax", int64(c.WaitingMax))
	positive("WaitingPerTenantMax", int64(c.WaitingPerTenantMax))
	positive("ParkMax", int64(c.ParkMax))
	positive("ProbeEvery", int64(c.ProbeEvery))
	if c.BytesPerCellMax < RequestBytesMax {
		errs = append(errs, fmt.Errorf("gateway: BytesPerCellMax is %d: give at least the %d that one request may have",
			c.BytesPerCellMax, RequestBytesMax))
	}
	errs = append(errs, c.validateWaiting()...)
	if c.ProbeSilence < c.ProbeEvery {
		errs = append(errs, fmt.Errorf("gateway: ProbeSilence is %v, below ProbeEvery, %v: give a multiple of it", c.ProbeSilence, c.ProbeEvery))
	}
	return errors.Join(errs...)
}

// validateWaiting checks the relations of the bounds on what waits.
func (c ForwardConfig) validateWaiting() []error {
	var errs []error
	if c.WaitingPerTenantMax > c.WaitingMax/waitingShare {
		errs = append(errs, fmt.Errorf("gateway: WaitingPerTenantMax is %d: give at most a quarter of WaitingMax, %d",
			c.WaitingPerTenantMax, c.WaitingMax/waitingShare))
	}
	if c.WaitingBytesPerTenantMax < 2*RequestBytesMax {
		errs = append(errs, fmt.Errorf("gateway: WaitingBytesPerTenantMax is %d: give at least the %d that one request's buffer may have",
			c.WaitingBytesPerTenantMax, 2*RequestBytesMax))
	}
	if c.WaitingBytesPerTenantMax > c.WaitingBytesMax/waitingShare {
		errs = append(errs, fmt.Errorf("gateway: WaitingBytesPerTenantMax is %d: give at most a quarter of WaitingBytesMax, %d",
			c.WaitingBytesPerTenantMax, c.WaitingBytesMax/waitingShare))
	}
	return errs
}
