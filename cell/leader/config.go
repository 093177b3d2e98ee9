package leader

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// Config is what a Leader is made with.
type Config struct {
	Sched sched.Config
	// Costing turns what attempts took into what they are charged. Default slot time. Where cost is of a resource, how long an attempt runs says
	// nothing of what it will have cost: give Sched.OverrunMin as 0 then, as cell/policy does.
	Costing cell.Costing
	// Limits are logged when the state has others, so that every replica bounds by the same. Default engine.DefaultLimits.
	Limits engine.Limits
	// EntryBytesMax is about how large an entry may get, so that a bulk of submissions does not hold up what comes behind it. Default
	// 256 KiB.
	EntryBytesMax int
	// CallBytesPerEntry is how much of it one call may fill while others wait. Default 32 KiB.
	CallBytesPerEntry int
	// GrantsPerEntryMax bounds the grants of one entry. Default 512.
	GrantsPerEntryMax int
	// AnswerBytesMax bounds the payloads that one answer carries to a worker. Default 2 MiB.
	AnswerBytesMax int64
	// SessionsMax bounds the worker sessions; a poll of one more is refused. Default 10,000.
	SessionsMax int
	// TenantSessionsMax bounds those of one tenant's own workers, so that no tenant takes every place. Default 200.
	TenantSessionsMax int
	// RoomMax bounds what one session may hold; a poll that says more is taken at it. Default 10,000.
	RoomMax int64
	// SessionGrace is how long a session without a poll and without leases counts as live after it was heard of. Default 15 s.
	SessionGrace time.Duration
	// PauseMin is how late a tick must come for the leader to conclude that it stood still, and to give every lease a full grace. Default
	// 5 s.
	PauseMin time.Duration
	// RetryShare is how many retries each fresh job earns its lane. While anybody waits, retries beyond that back off as long as they
	// might, RetryHold at least. Defaults 0.2 and 30 s.
	RetryShare float64
	RetryHold  time.Duration
}

// DefaultConfig returns the defaults that the fields' comments name.
func DefaultConfig() Config {
	return Config{
		Sched:         sched.DefaultConfig(),
		Limits:        engine.DefaultLimits(),
		EntryBytesMax: 256 << 10, CallBytesPerEntry: 32 << 10, GrantsPerEntryMax: 512, AnswerBytesMax: 2 << 20,
		SessionsMax: 10_000, TenantSessionsMax: 200, RoomMax: 10_000,
		SessionGrace: 15 * time.Second, PauseMin: 5 * time.Second,
		RetryShare: 0.2, RetryHold: 30 * time.Second,
	}
}

// Validate returns all faults of c together, and nil when there are none.
func (c Config) Validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d: it must be above 0", name, v))
		}
	}
	positive("entry_bytes_max", int64(c.EntryBytesMax))
	positive("call_bytes_per_entry", int64(c.CallBytesPerEntry))
	positive("grants_per_entry_max", int64(c.GrantsPerEntryMax))
	positive("answer_bytes_max", c.AnswerBytesMax)
	positive("sessions_max", int64(c.SessionsMax))
	positive("tenant_sessions_max", int64(c.TenantSessionsMax))
	positive("room_max", c.RoomMax)
	positive("session_grace", int64(c.SessionGrace))
	positive("pause_min", int64(c.PauseMin))
	positive("retry_hold", int64(c.RetryHold))
	if c.RetryShare < 0 || c.RetryShare > 1 {
		errs = append(errs, fmt.Errorf("retry_share is %v: give 0 to 1", c.RetryShare))
	}
	return errors.Join(errors.Join(errs...), c.Sched.Validate(), c.Costing.Validate("cost"), c.Limits.Validate())
}
