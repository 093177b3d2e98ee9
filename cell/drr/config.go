package drr

import (
	"errors"
	"fmt"
)

// Limits of a [Config], and the limits that are not configurable. Each says what happens at it.
const (
	// QuantumMin is the smallest quantum, so that the smallest weight still earns one micro-unit per round.
	QuantumMin int64 = int64(WeightUnit)
	// QuantumMax is the largest quantum: quantum x the largest weight must fit in an int64.
	QuantumMax int64 = 400_000_000_000
	// FlowsMax is the largest Config.FlowsMax: it bounds the height of the heap of far flows.
	FlowsMax = 1 << 22
	// MaxSets is the number of offer sets a Ring can have. OpenSet refuses others.
	MaxSets = 64
	// RoundsAheadMax is how far ahead of the current round a flow can be filed. Debt beyond it is forgiven. It
	// keeps the round number itself from overflowing: 2^30 such debts in a row would be needed.
	RoundsAheadMax int64 = 1 << 32
	// RefilesMax is how many flows one poll files further on because other rings have charged them. After that
	// the head is granted as it is, and what it has not seen stays on its account.
	RefilesMax = 4
	// ForeignRoundsMin is how many rounds charges from other rings can put a flow back in this one, or
	// ForeignDebtMax of its largest charges if that is more. The rest is forgiven, or the loss of one offer set
	// could leave a flow waiting in another one without end.
	ForeignRoundsMin int64 = 256
	// ForeignDebtMax is in largest charges of the flow. See ForeignRoundsMin.
	ForeignDebtMax int64 = 5
	// LoneDebtMax is how much debt, in largest charges of its own, a flow keeps when it is granted while no other
	// waits. None, and a flow that declares a tenth of its cost gets 3.2 of four servers beside a rival whose six short
	// jobs are sometimes all running. Without a bound, two such flows that take turns waiting pile up debt that they
	// owe to nobody, and stop for seconds when a third one comes.
	LoneDebtMax int64 = 8
	// RoundsMin is the smallest Config.Rounds, and RoundsMax the largest and the default.
	RoundsMin = 64
	RoundsMax = 4096
)

// DefaultQuantum is Config.Quantum's default: 10 ms of a slot when costs are slot-microseconds.
const DefaultQuantum int64 = 10_000

// DefaultFlowsMax is Config.FlowsMax's default.
const DefaultFlowsMax = 1 << 21

// Config is what a [Ring] is made of.
type Config struct {
	// Quantum is the cost, in micro-units, that a flow of weight one may spend per round. It must be a multiple of
	// 1,000, so that quantum x weight is exact, from QuantumMin to QuantumMax. A smaller quantum is fairer over
	// short intervals and costs nothing; below 1/Rounds of a usual cost the heap of far flows comes into use.
	// Default DefaultQuantum.
	Quantum int64
	// FlowsMax is the number of flows the Ring accepts, from 1 to the constant FlowsMax. NewFlow returns ErrFull
	// beyond it. Default DefaultFlowsMax.
	FlowsMax int
	// Rounds is how many rounds from the current one on have a list of flows each; flows filed further ahead wait in a heap. It must be
	// a power of two from RoundsMin to RoundsMax. It changes what a dispatch costs, never who is next: a list takes 16 bytes per offer
	// set, and the heap some tens of nanoseconds per flow served from it. Few rounds are for rings of few flows, of which there are
	// many. Default RoundsMax, which 0 means too.
	Rounds int
	// Idle is the free time that this Ring shares with others, as if each were told of it by Ring.Idle. Default nil: there is none but
	// the Ring's own.
	Idle *IdleClock
}

// DefaultConfig returns the defaults that the fields of Config name.
func DefaultConfig() Config {
	return Config{Quantum: DefaultQuantum, FlowsMax: DefaultFlowsMax, Rounds: RoundsMax}
}

// Validate returns nil or an error that joins a *ConfigError for every fault.
func (c Config) Validate() error {
	var errs []error
	switch {
	case c.Quantum < QuantumMin || c.Quantum > QuantumMax:
		errs = append(errs, &ConfigError{
			Field: "quantum", Value: c.Quantum, Min: QuantumMin, Max: QuantumMax,
			Remedy: "set it near a tenth of a usual cost",
		})
	case c.Quantum%int64(WeightUnit) != 0:
		errs = append(errs, &ConfigError{
			Field: "quantum", Value: c.Quantum, Min: QuantumMin, Max: QuantumMax,
			Remedy: "round it to a multiple of 1000",
		})
	}
	if c.FlowsMax < 1 || c.FlowsMax > FlowsMax {
		errs = append(errs, &ConfigError{
			Field: "flows_max", Value: int64(c.FlowsMax), Min: 1, Max: FlowsMax,
			Remedy: "set it to the number of tenants the cell may host",
		})
	}
	if c.Rounds != 0 && (c.Rounds < RoundsMin || c.Rounds > RoundsMax || c.Rounds&(c.Rounds-1) != 0) {
		errs = append(errs, &ConfigError{
			Field: "rounds", Value: int64(c.Rounds), Min: RoundsMin, Max: RoundsMax,
			Remedy: "set a power of two, or 0 for the largest",
		})
	}
	return errors.Join(errs...)
}

// quantumOf is Qw. Flows of weight zero have a ring of their own, where each has the weight of one.
func (c Config) quantumOf(w Weight) int64 {
	if w == 0 {
		w = WeightUnit
	}
	return c.Quantum / int64(WeightUnit) * int64(w)
}

// ConfigError is returned when a field of Config is out of its bounds.
type ConfigError struct {
	Field    string // as in configuration files
	Value    int64
	Min, Max int64 // inclusive
	Remedy   string
}

// Error names the field, the bounds and the remedy.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("drr: %s is %d, must be from %d to %d: %s", e.Field, e.Value, e.Min, e.Max, e.Remedy)
}
