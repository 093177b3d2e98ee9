package placement

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Config is what placement goes by. Shares are parts of one: 0.2 is a fifth.
type Config struct {
	// FillMax is the part of a cell's tested capacity that tenants' demand may fill in any hour; the rest is for what measurements miss. A cell
	// that takes the tenants of a lost one may be filled to its capacity. 0.9.
	FillMax float64
	// FailureReserve keeps room to place the tenants of any one lost cell in the others. True. It is not asked for where no other open cell could
	// take a tenant at all: then there is nothing to keep room in.
	FailureReserve bool
	// DemandMin is what a tenant counts for at least, so that tenants that were not measured yet are spread too. A ten-thousandth of a slot: tens of
	// thousands of idle tenants fit in a small cell.
	DemandMin Load
	// Assumed is what a cell is scored by that was not tested at all; it bounds nothing. Others are scored by what they were tested in. 8 slots,
	// 100,000 jobs, 1 GiB.
	Assumed Load

	// TenantsMax is how many tenants a cell has at most: what is lost with it. 10,000.
	TenantsMax int
	// OrganizationShareMax is the largest part of an organization's tenants in one pooled cell, rounded up, from OrganizationTenantsMin tenants
	// on and where another open cell could take them. 0.5 and 10; a part of 1 turns it off.
	OrganizationShareMax   float64
	OrganizationTenantsMin int

	// Small and Large are the shares of a cell up to which a tenant is placed where it fits best, and from which on where most room is; in between
	// it is something of both. 0.02 and 0.1.
	Small float64
	Large float64
	// Tolerance is how far above the average a cell's share may be before that counts against it. 0.1.
	Tolerance float64
	// Weights of the parts of a score.
	Weights Weights

	// RebalanceOver is how many times the average share a cell must have before tenants are moved out of it. 1.2; more than 1 + Tolerance.
	RebalanceOver float64
	// GainMin is the least that a move must relieve the fuller of its two cells of, as a share of its capacity, whatever it weighs. 0.01.
	GainMin float64
	// GainPerGiBMin is the least of that for each GiB that moves. 0.01. Less than BytesMin counts as that much: a move costs something even when it
	// is small. 64 MiB.
	GainPerGiBMin float64
	BytesMin      int64
	// MovesMax and MoveBytesMax are the budget for moves that begin in any MovePeriod, those under way counted. 20 and 16 GiB in an hour.
	MovesMax     int
	MoveBytesMax int64
	MovePeriod   time.Duration
	// CoolDown is how long a tenant stays where it came to, unless its cell is evacuated. 24 hours.
	CoolDown time.Duration

	// Hour is how long an hour of demand is, 1 s to 1 h. Hours and days below are of such hours; periods and the cool-down are not. 1 h; 0 is as that.
	Hour HourLength
	// WhaleShare is the share of its cell's load that makes a tenant a whale, when it has that in WhaleHours of the last 24 hours, and is
	// WhaleFloor of the cell's capacity besides: the only tenant of an idle cell is no whale. 0.2, 6 and 0.1.
	WhaleShare float64
	WhaleHours int
	WhaleFloor float64
	// WhaleLimitedDays is on how many days in a row a tenant must reach its limits to be a whale. 3; at most [DaysKept].
	WhaleLimitedDays int
	// ReturnShare is the share of the smallest pooled cell that a tenant with a dedicated cell must stay below for ReturnDays days, with no limit
	// reached, before it is proposed to return. 0.1, well below WhaleShare, and 7; at most [DaysKept].
	ReturnShare float64
	ReturnDays  int
}

// Weights say how much each part of a score, from 0 to 1, counts.
type Weights struct {
	Fit       float64 // full cells for small tenants, empty ones for large. 1.
	Balance   float64 // staying below the average share and the tolerance; it is negative above. 10.
	Hours     float64 // peaking when the cell's other tenants do not. 0.5.
	Stability float64 // being there already. 0.25.
	Dedicated float64 // a cell of its own. 20.
}

// DefaultConfig returns what is said with each field.
func DefaultConfig() Config {
	return Config{
		FillMax: 0.9, FailureReserve: true,
		DemandMin: Load{Compute: 100}, Assumed: Load{Compute: 8_000_000, Jobs: 100_000, Bytes: 1 << 30},
		TenantsMax: 10_000, OrganizationShareMax: 0.5, OrganizationTenantsMin: 10,
		Small: 0.02, Large: 0.1, Tolerance: 0.1,
		Weights:       Weights{Fit: 1, Balance: 10, Hours: 0.5, Stability: 0.25, Dedicated: 20},
		RebalanceOver: 1.2, GainMin: 0.01, GainPerGiBMin: 0.01, BytesMin: 64 << 20,
		MovesMax: 20, MoveBytesMax: 16 << 30, MovePeriod: time.Hour, CoolDown: 24 * time.Hour,
		Hour: HourMax, WhaleShare: 0.2, WhaleHours: 6, WhaleFloor: 0.1, WhaleLimitedDays: 3, ReturnShare: 0.1, ReturnDays: 7,
	}
}

// Validate returns every fault of the configuration, each a *[cell.FieldError], joined; nil for none.
func (c Config) Validate() error {
	var faults []error
	fault := func(field string, value any, bound, remedy string) {
		faults = append(faults, &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %v, outside %s", value, bound), Remedy: remedy})
	}
	share := func(field string, f float64, remedy string) {
		if !(f > 0 && f <= 1) {
			fault(field, f, "0 to 1, 0 excluded", remedy)
		}
	}
	positive := func(field string, f float64) {
		if !(f >= 0 && f <= math.MaxFloat32) {
			fault(field, f, "0 to 3e38", "give a number that is not negative")
		}
	}
	count := func(field string, n int64, most int64) {
		if n < 1 || n > most {
			fault(field, n, fmt.Sprintf("1 to %d", most), "give a whole number within")
		}
	}
	share("fill_max", c.FillMax, "give the part of the tested capacity that demand may fill")
	share("organization_share_max", c.OrganizationShareMax, "give the part of an organization that one cell may have, or 1")
	share("large", c.Large, "give the share of a cell from which a tenant is large")
	share("whale_share", c.WhaleShare, "give the share of a cell's load from which a tenant is a whale")
	share("return_share", c.ReturnShare, "give the share of a pooled cell below which a tenant returns")
	positive("small", c.Small)
	positive("tolerance", c.Tolerance)
	positive("whale_floor", c.WhaleFloor)
	positive("gain_min", c.GainMin)
	positive("gain_per_gib_min", c.GainPerGiBMin)
	for _, p := range c.Weights.parts(Weights{1, 1, 1, 1, 1}) {
		positive("weights."+p.Name, p.Value)
	}
	count("tenants_max", int64(c.TenantsMax), 1_000_000)
	count("organization_tenants_min", int64(c.OrganizationTenantsMin), 1_000_000)
	count("moves_max", int64(c.MovesMax), 1_000_000)
	count("bytes_min", c.BytesMin, AmountMax)
	count("move_bytes_max", c.MoveBytesMax, AmountMax)
	count("move_period", int64(c.MovePeriod), int64(365*24*time.Hour))
	count("cool_down", int64(c.CoolDown), int64(365*24*time.Hour))
	if c.Hour != 0 && (c.Hour < HourMin || c.Hour > HourMax) {
		fault("hour", time.Duration(c.Hour), fmt.Sprintf("%v to %v", HourMin.Length(), HourMax.Length()), "leave it at an hour; a demonstration may give seconds")
	}
	count("whale_hours", int64(c.WhaleHours), HoursPerDay)
	count("whale_limited_days", int64(c.WhaleLimitedDays), DaysKept)
	count("return_days", int64(c.ReturnDays), DaysKept)
	if c.DemandMin != c.DemandMin.bounded() {
		fault("demand_min", c.DemandMin, fmt.Sprintf("0 to %d of each", int64(AmountMax)), "give what every tenant counts for at least")
	}
	if a := c.Assumed.bounded(); c.Assumed != a || a.Compute == 0 || a.Jobs == 0 || a.Bytes == 0 {
		fault("assumed", c.Assumed, fmt.Sprintf("1 to %d of each", int64(AmountMax)), "give what an untested cell is scored by")
	}
	if c.Small >= c.Large {
		fault("small", c.Small, fmt.Sprintf("0 to large, %v", c.Large), "let small be less than large")
	}
	if !(c.RebalanceOver >= 1+c.Tolerance) {
		fault("rebalance_over", c.RebalanceOver, "1 + tolerance and more", "let a cell be moved out of only above what placing into it tolerates")
	}
	if c.ReturnShare > c.WhaleShare/2 {
		fault("return_share", c.ReturnShare, "half of whale_share", "let a tenant return only well below what makes it a whale")
	}
	return errors.Join(faults...)
}

// partsOfScore is how many parts a score has.
const partsOfScore = 5

// parts returns the weights times what they weigh, by name, in the order in which scores list them.
func (w *Weights) parts(of Weights) [partsOfScore]Part {
	return [partsOfScore]Part{
		{"fit", w.Fit * of.Fit},
		{"balance", w.Balance * of.Balance},
		{"hours", w.Hours * of.Hours},
		{"stability", w.Stability * of.Stability},
		{"dedicated", w.Dedicated * of.Dedicated},
	}
}
