package cell

import "time"

// TenantPolicy is what control's record promises one tenant; a cell opens the tenant's lanes by it and by nothing else. Two policies are
// equal when == says so.
type TenantPolicy struct {
	Tenant TenantID
	// Organization is the tenant's parent, empty for none. Its own policy must be known before.
	Organization OrganizationID
	Weight       Weight
	// Reservation is what each class protects for the tenant, by Class.Index; 0 is none.
	Reservation [2]Rate
	// Limit is what both classes together may be charged, even while everything else is idle; 0 is none.
	Limit Rate
	// Credit lifts the tenant above its reservation for a while.
	Credit Credit
	// RunningMax bounds the jobs that the tenant's lanes hold together; 0 is none.
	RunningMax int64
	// Starts bounds how often jobs start.
	Starts StartRate
	// Bounds on what may wait in each of its lanes; 0 leaves it to the cell's own.
	BacklogJobsMax  int64
	BacklogBytesMax int64
	// Groups is its hand: the worker groups that may run its jobs, bit i for group i+1. 0 is no hand: workers without a group.
	Groups uint64
	// Epoch rises with every change of the record and of the assignment that makes this cell the lanes' home; at least 1.
	Epoch Epoch
}

// OrganizationPolicy is what control's record promises the tenants of an organization together.
type OrganizationPolicy struct {
	Organization OrganizationID
	Weight       Weight
	// Reservation of each class, by Class.Index: 0, or no less than the sum of the tenants'.
	Reservation [2]Rate
	// Limit of both classes together: 0 for none, or more than the sum of the tenants' reservations, or those without one starve.
	Limit Rate
	// Epoch rises with every change of the record; at least 1.
	Epoch Epoch
}

// Rate is cost per second, in micro-units of the cell's cost unit: a slot that runs all the time is charged 1,000,000 a second.
type Rate int64

// RateMax bounds a rate: a million slots.
const RateMax Rate = 1e12

// Credit is permission for temporary extra. The zero value is none.
type Credit struct {
	Max    Cost // what the bucket holds, and starts with
	Refill Rate // how fast it fills while it is not being spent
	Extra  Rate // how fast it may be spent
}

// StartRate bounds how many jobs start in any period of a length. The zero value is no bound.
type StartRate struct {
	Jobs int64 // 1 to StartsMax
	Per  time.Duration
}

// StartsMax bounds StartRate.Jobs: each start of a period is remembered. For more, give a part of the period.
const StartsMax = 1000

// ConcurrencyKey bounds how many of a tenant's jobs that carry the same key are held at once, in both classes together. When jobs of one
// key give different bounds, that of the job accepted last holds for all of them.
type ConcurrencyKey struct {
	Key string // 1 to IDBytesMax bytes
	Max int64  // 1 to ConcurrencyMax
}

// Bounds of concurrency keys.
const (
	ConcurrencyKeysMax = 4       // of one job
	ConcurrencyMax     = 100_000 // of ConcurrencyKey.Max
)

// LaneAccount is where a lane stands with what it was charged, as a fact that outlives the process.
type LaneAccount struct {
	Rounds  int64         // rounds behind the current one, in its parent's rotation; 0 when it is not in debt
	Deficit int64         // micro-units of cost in that round; negative is debt
	Ahead   time.Duration // how far its reservation's tag is before the class's virtual time; negative is behind
}

// TenantAccount is where a tenant stands with its limit and its credit.
type TenantAccount struct {
	LimitTag  Instant // it may not run before; 0 when it was never charged
	CreditTag Instant // it may spend no credit before
	Credit    Cost    // what was left in the bucket at CreditAt
	CreditAt  Instant // 0 when it was never spent: the bucket is full
}

// OrganizationAccount is where an organization stands: its share of each class, by Class.Index, and its limit.
type OrganizationAccount struct {
	Lanes    [2]LaneAccount
	LimitTag Instant
}
