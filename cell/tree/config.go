package tree

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// Bounds of a [Config].
const (
	// BurstMin and BurstMax bound Config.Burst.
	BurstMin = time.Millisecond
	BurstMax = time.Hour
	// OrganizationsMax is the largest Config.OrganizationsMax.
	OrganizationsMax = 1 << 21
)

// Config is what a [Tree] is made with.
type Config struct {
	// Quantum is what a node of weight 1 may spend per round of its parent's rotation, in micro-units of cost: a multiple of 1,000, see
	// drr.Config. Default 10,000: 10 ms of a slot.
	Quantum int64
	// LanesMax bounds the lanes, of which a tenant has two: SetTenant refuses others. Default 2,000,000.
	LanesMax int
	// OrganizationsMax bounds the organizations: SetOrganization refuses others. Default 100,000.
	OrganizationsMax int
	// Burst is by cell.Class.Index how much of what it was promised a node may make up for at once: reservation that it did not get while it
	// could not run, and limit that it did not use. It should be no shorter than the usual run time in the class, or a reservation is lost
	// while all slots are busy. Defaults: 1 s and 10 s. BurstMin to BurstMax.
	Burst [2]time.Duration
}

// DefaultConfig returns the defaults that the fields' comments name.
func DefaultConfig() Config {
	return Config{
		Quantum: drr.DefaultQuantum, LanesMax: 2_000_000, OrganizationsMax: 100_000, Burst: [2]time.Duration{time.Second, 10 * time.Second},
	}
}

// Validate returns all faults of c together, and nil when there are none.
func (c Config) Validate() error {
	var errs []error
	for i, b := range c.Burst {
		if b < BurstMin || b > BurstMax {
			errs = append(errs, &cell.FieldError{
				Field: cell.Classes()[i].String() + ".burst", Problem: fmt.Sprintf("is %v, outside %v to %v", b, BurstMin, BurstMax),
				Remedy: "give the longest usual run time of the class",
			})
		}
	}
	if c.OrganizationsMax < 1 || c.OrganizationsMax > OrganizationsMax {
		errs = append(errs, &cell.FieldError{
			Field: "organizations_max", Problem: fmt.Sprintf("is %d, outside 1 to %d", c.OrganizationsMax, OrganizationsMax),
			Remedy: "give how many organizations the cell may host",
		})
	}
	if c.LanesMax < 2 || c.LanesMax > drr.FlowsMax {
		errs = append(errs, &cell.FieldError{
			Field: "lanes_max", Problem: fmt.Sprintf("is %d, outside 2 to %d", c.LanesMax, drr.FlowsMax),
			Remedy: "give two for each tenant that the cell may host",
		})
	}
	ring := drr.Config{Quantum: c.Quantum, FlowsMax: 1}
	return errors.Join(errors.Join(errs...), ring.Validate())
}
