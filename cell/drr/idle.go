package drr

// IdleClock is free time that many Rings share: those of all organizations of a class, which wait for the same servers. Telling it takes the
// same time however many they are; each takes into account what has passed when it is next used, exactly as if [Ring.Idle] had told it at
// the time. The zero value is ready for use. It stands still after 2^63 micro-units.
//
// It is not safe for concurrent use, nor are the Rings that share it.
type IdleClock struct {
	all  int64
	sets [MaxSets]int64
}

// Pass says that a server with the set's offer was free for the time, in micro-units of cost, because nobody waited for it.
func (c *IdleClock) Pass(set SetID, microunits int64) {
	if set < MaxSets {
		c.sets[set] = add(c.sets[set], max(microunits, 0))
	}
}

// PassAll is Pass for every set.
func (c *IdleClock) PassAll(microunits int64) { c.all = add(c.all, max(microunits, 0)) }

// passed is all the free time of a set so far.
func (c *IdleClock) passed(set SetID) int64 { return add(c.all, c.sets[set]) }
