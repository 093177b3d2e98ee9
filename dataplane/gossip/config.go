package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/fairlead/fairlead/cell"
)

// MetaBytesMax bounds what an agent says of itself. It goes along with every change of it.
const MetaBytesMax = 200

// The defaults of [Config].
const (
	RejoinIntervalDefault = 15 * time.Second
	LeaveTimeoutDefault   = 3 * time.Second

	// reclaimTime is how long an agent must have been dead before another address may have its name.
	reclaimTime = 30 * time.Second
)

// Config says who this agent is and how it finds the others. The zero value of every field that is not required is its default.
type Config struct {
	// Cluster is the cluster's id, at most 128 bytes. Required.
	Cluster string
	// Name is the agent's, unique in the cluster. Required.
	Name string
	// Role is control, cell or gateway; Cell is the cell of one of the role cell. Role is required.
	Role, Cell string
	// APIAddress is the host and port of the agent's API.
	APIAddress string
	// ListenAddress is the host and port to listen on, over UDP and TCP. Required without Transport.
	ListenAddress string
	// AdvertiseAddress is the host and port by which others reach it; what it listens on by default.
	AdvertiseAddress string
	// Keys are the secrets of 16, 24 or 32 bytes; the first encrypts, all decrypt. Required: gossip in the clear is refused.
	Keys [][]byte
	// Seeds returns the gossip addresses of agents to find the others by, this agent's own perhaps among them. It is called again and again.
	Seeds func() []string
	// RejoinInterval is how often seeds that are not alive are asked. Default 15 s.
	RejoinInterval time.Duration
	// Transport is what gossip travels on instead of UDP and TCP.
	Transport memberlist.Transport
	// Logger receives what an operator should know. Default [slog.Default].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.RejoinInterval == 0 {
		c.RejoinInterval = RejoinIntervalDefault
	}
	if c.Seeds == nil {
		c.Seeds = func() []string { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns an error that names every field that is missing or outside its bounds, or nil.
func (c Config) Validate() error {
	errs := []error{cell.CheckID("gossip cluster", c.Cluster), cell.CheckID("gossip name", c.Name)}
	switch c.Role {
	case "control", "gateway":
	case "cell":
		errs = append(errs, cell.CheckID("gossip cell", c.Cell))
	default:
		errs = append(errs, fmt.Errorf("gossip role is %.40q: use control, cell or gateway", c.Role))
	}
	if c.ListenAddress == "" && c.Transport == nil {
		errs = append(errs, errors.New("gossip listen address is empty: give a host and port"))
	}
	if len(c.Keys) == 0 {
		errs = append(errs, errors.New("gossip keys are missing: give at least one, of 32 bytes"))
	}
	errs = append(errs, checkKeys(c.Keys))
	if c.RejoinInterval < 0 {
		errs = append(errs, fmt.Errorf("gossip rejoin interval is %v: leave it 0 for the default", c.RejoinInterval))
	}
	return errors.Join(errs...)
}

func checkKeys(keys [][]byte) error {
	for i, k := range keys {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("gossip key %d has %d bytes: give 16, 24 or 32", i, len(k))
		}
	}
	return nil
}
