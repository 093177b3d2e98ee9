package agent

import (
	"log/slog"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/leader"
)

// Config says how a process that has every role is run, as fairlead dev does.
type Config struct {
	// Dir is the state directory; it is made when it is missing. Required.
	Dir string
	// Listen is the loopback address and port of the API; port 0 takes a free one. Required.
	Listen string
	// Organizations and Tenants are promised this at every start, and created when they are missing; others stay as they are. Default none.
	Organizations []cell.OrganizationPolicy
	Tenants       []cell.TenantPolicy
	// SampleTenants are created, each with a key, when they are missing.
	SampleTenants []string
	// SamplePolicy is what a sample tenant is promised that is created and not among Tenants. Default weight 1.
	SamplePolicy cell.TenantPolicy
	// Version of the binary, for people.
	Version string
	// Leader says how the cell schedules and charges, and what it keeps. Default leader.DefaultConfig.
	Leader leader.Config
	// Logger receives everything that is logged. Default slog.Default.
	Logger *slog.Logger
}

// DefaultConfig returns the defaults for a state directory and an address.
func DefaultConfig(dir, listen string) Config {
	return Config{
		Dir: dir, Listen: listen, Version: "unknown", Leader: leader.DefaultConfig(), Logger: slog.Default(),
		SamplePolicy: cell.TenantPolicy{Weight: cell.WeightDefault},
	}
}

// cellName is the name of the one cell of a process with every role.
const cellName = "cell-1"
