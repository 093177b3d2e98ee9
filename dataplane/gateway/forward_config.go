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
)

// ForwardConfig says how a [Forwarder] finds the agents behind the door. Use [DefaultForwardConfig] and change what differs.
type ForwardConfig struct {
	// Routes returns the present routes. It is called for every request and must not block. Required.
	Routes func() *route.Table
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
		ParkMax:              5 * time.Second,
		ProbeEvery:           300 * time.Millisecond,
		ProbeSilence:         2 * time.Second,
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
	positive("ParkMax", int64(c.ParkMax))
	positive("ProbeEvery", int64(c.ProbeEvery))
	if c.BytesPerCellMax < RequestBytesMax {
		errs = append(errs, fmt.Errorf("gateway: BytesPerCellMax is %d: give at least the %d that one request may have",
			c.BytesPerCellMax, RequestBytesMax))
	}
	if c.ProbeSilence < c.ProbeEvery {
		errs = append(errs, fmt.Errorf("gateway: ProbeSilence is %v, below ProbeEvery, %v: give a multiple of it", c.ProbeSilence, c.ProbeEvery))
	}
	return errors.Join(errs...)
}
