package command

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// Bounds of the cluster's record.
const (
	// FeatureLevelFirst is the level of a cluster that has just been made.
	FeatureLevelFirst = 1
	// featureLevelBound is above every level there will be: what an agent says beyond it is damage.
	featureLevelBound = 10_000
)

// FeatureLevelMax returns the highest feature level that this release understands. A build with the tag fairlead_next, which tests of upgrades use,
// understands one more.
func FeatureLevelMax() int { return featureLevelMax }

// CreateCluster makes the cluster's record, once. An id is random, so that two clusters never take one another's agents for their own.
type CreateCluster struct {
	ID   string
	Time cell.Instant
}

// SetFeatureLevel allows commands, fields and messages that only releases from a level on understand. There is no way back. A release that
// does not reach the level cannot decode it, for it could not apply what follows.
type SetFeatureLevel struct {
	Level int
	Time  cell.Instant
}

// Restored says that the state was replaced by one saved earlier: every epoch rises by so much that nothing given out in the meantime, which the
// restored state knows nothing of, is taken for current.
type Restored struct {
	Time cell.Instant
}

// Type implements [Command].
func (CreateCluster) Type() Type { return TypeCreateCluster }

// Type implements [Command].
func (SetFeatureLevel) Type() Type { return TypeSetFeatureLevel }

// Type implements [Command].
func (Restored) Type() Type { return TypeRestored }

// At implements [Command].
func (c CreateCluster) At() cell.Instant { return c.Time }

// At implements [Command].
func (c SetFeatureLevel) At() cell.Instant { return c.Time }

// At implements [Command].
func (c Restored) At() cell.Instant { return c.Time }

func (c CreateCluster) check() error {
	return first(cell.CheckID("cluster_id", c.ID), checkTime(c.Time))
}

func (c SetFeatureLevel) check() error {
	if c.Level < FeatureLevelFirst || c.Level > featureLevelMax {
		return &cell.FieldError{
			Field: "level", Problem: fmt.Sprintf("is %d, outside %d to %d", c.Level, FeatureLevelFirst, featureLevelMax),
			Remedy: "give the level that this release's notes name, or run a later one",
		}
	}
	return checkTime(c.Time)
}

func (c Restored) check() error { return checkTime(c.Time) }

func (c CreateCluster) body() []byte {
	return appendNumber(appendText(nil, 1, c.ID), 2, c.Time)
}

func (c SetFeatureLevel) body() []byte {
	return appendNumber(appendNumber(nil, 1, int64(c.Level)), 2, c.Time)
}

func (c Restored) body() []byte { return appendNumber(nil, 1, c.Time) }

func setCreateCluster(c *CreateCluster, f field) bool {
	switch {
	case f.is(1, bytes):
		c.ID = string(f.b)
	case f.is(2, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func setSetFeatureLevel(c *SetFeatureLevel, f field) bool {
	switch {
	// Above what this release understands it is as unknown as a field: whoever applied it would apply the rest without understanding it.
	case f.is(1, varint) && f.n <= featureLevelMax:
		c.Level = int(f.n)
	case f.is(2, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func setRestored(c *Restored, f field) bool {
	if f.is(1, varint) {
		c.Time = cell.Instant(f.n)
		return true
	}
	return false
}
