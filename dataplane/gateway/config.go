package gateway

import (
	"errors"
	"fmt"
	"log/slog"
)

// RequestBytesMax bounds the body of one request, as it is sent and once it is decompressed. A batch of 500 ordinary jobs is far below
// it; a caller with more splits the batch. Beyond it the answer is resource_exhausted, naming request_bytes_max.
const RequestBytesMax = 4 << 20

// The bounds of Join, which asks nobody who they are: a cluster is joined by few agents at a time, and a request for a certificate has some
// hundred bytes.
const (
	joinsMax           = 16
	joinBytesMax int64 = 64 << 10
)

// The names of this package's limits, as refusals and logs give them.
const (
	LimitRequestBytes      = "request_bytes_max"
	LimitRequestsPerKey    = "requests_per_key_max"
	LimitJoins             = "joins_max"
	LimitConnections       = "connections_max"
	LimitConnectionsPerIP  = "connections_per_ip_max"
	LimitAuthorizationSize = "authorization_bytes_max"
)

// Config is how a gateway behaves. Use [DefaultConfig] and change what differs.
type Config struct {
	// RequestsPerKeyMax bounds how many requests one tenant's key may have in flight, long polls included. Default 1,000: a parked request
	// costs some 20 KiB. Beyond it the answer is resource_exhausted.
	RequestsPerKeyMax int
	// RequestsPerPlatformKeyMax is the same for a key of the platform, which a whole fleet of workers may share. Default 10,000.
	RequestsPerPlatformKeyMax int
	// ConnectionsMax bounds the open connections of [Gateway.Listener] in all. Default 10,000. One more is closed as it arrives: without
	// a key nobody is known well enough to be given an answer.
	ConnectionsMax int
	// ConnectionsPerIPMax bounds those from one address, or one /64 of IPv6; loopback is exempt. Default 100.
	ConnectionsPerIPMax int
	// Log receives the access log, at debug. Default [slog.Default].
	Log *slog.Logger
}

// DefaultConfig returns the defaults that the fields of [Config] state.
func DefaultConfig() Config {
	return Config{
		RequestsPerKeyMax:         1000,
		RequestsPerPlatformKeyMax: 10_000,
		ConnectionsMax:            10_000,
		ConnectionsPerIPMax:       100,
	}
}

// Validate returns an error that names every field outside its bounds, or nil.
func (c Config) Validate() error {
	var errs []error
	atLeastOne := func(field string, n int) {
		if n < 1 {
			errs = append(errs, fmt.Errorf("gateway: %s is %d: give 1 or more", field, n))
		}
	}
	atLeastOne("RequestsPerKeyMax", c.RequestsPerKeyMax)
	atLeastOne("RequestsPerPlatformKeyMax", c.RequestsPerPlatformKeyMax)
	atLeastOne("ConnectionsMax", c.ConnectionsMax)
	atLeastOne("ConnectionsPerIPMax", c.ConnectionsPerIPMax)
	return errors.Join(errs...)
}
