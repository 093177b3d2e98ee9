package cell

// Estimate is what a tenant's jobs of one operation are expected to cost: learned from what they did cost. The zero value knows nothing.
type Estimate struct {
	Mean    Cost  // micro-units; meaningless while Samples is 0
	Samples int64 // at most estimateMemory
}

// estimateMemory is how many of the latest jobs an estimate is about the mean of: few enough to follow a change within a minute's work,
// enough that one odd job does not move it much.
const estimateMemory = 16

// Observe returns the estimate after another job that cost c. While it has few samples it is their mean; then each new one counts a
// sixteenth.
func (e Estimate) Observe(c Cost) Estimate {
	c = max(0, min(c, CostMax))
	if e.Samples < estimateMemory {
		e.Samples++
	}
	e.Mean += (c - e.Mean) / Cost(e.Samples)
	return e
}

// Of returns what to charge a job at dispatch: what was learned, or seed while nothing was. It is at least 1.
func (e Estimate) Of(seed Cost) Cost {
	if e.Samples == 0 {
		return max(1, seed)
	}
	return max(1, e.Mean)
}
