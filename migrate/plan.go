package migrate

import (
	"time"

	"github.com/fairlead/fairlead/cell"
)

// PlanInput is what a plan is made of.
type PlanInput struct {
	Record   Record   // as New makes it
	Observed Observed // both cells as they are; Observed.Gates holds control's
	Config   Config
	Now      cell.Instant
}

// Step is one step of a plan.
type Step struct {
	State State
	Class cell.Class // 0 for steps of both
	Text  string
	Undo  string // how it is undone from there
	Time  time.Duration
}

// Plan is what a migration would do.
type Plan struct {
	Gates       []Gate
	Steps       []Step
	Blockers    []string // why it cannot be done now; empty when it can
	Jobs, Bytes int64
	CopyTime    time.Duration
	Pause       time.Duration // of a class, as predicted
}

// MakePlan takes a migration through its steps without doing any: the record and what is next are the real ones, the cells are ideal.
func MakePlan(in PlanInput) Plan { return Plan{} }

// Explain returns, as people read it, what comes next and what an abort or a reverse would do now.
func Explain(r *Record) (next, undo string) { return "", "" }

// Graph returns the machine of states and phases in mermaid's form.
func Graph() string { return "" }
