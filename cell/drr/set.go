package drr

// offer is one offer set's rings. Flows of weight zero have a ring of their own, served when the main one is empty.
type offer[T any] struct {
	life uint32 // odd while open; counts so that accounts from before a closing are known as such
	mark int64  // how much of the shared free time has been taken into account
	main wheel[T]
	zero wheel[T]
}

func (o *offer[T]) open() bool { return o.life&1 == 1 }

// wheel returns the wheel that flows of the weight belong to.
func (o *offer[T]) wheel(weight Weight) *wheel[T] {
	if weight > 0 {
		return &o.main
	}
	return &o.zero
}

func (o *offer[T]) waiting() int { return o.main.active + o.zero.active }

// pass lets free time turn the rounds of what is empty.
func (o *offer[T]) pass(time, quantum int64) {
	o.main.pass(time, quantum)
	if o.main.active == 0 {
		o.zero.pass(time, quantum)
	}
}

// elapse takes shared free time into account, given how much has passed in all. It comes before anything else that is done to the set, so
// what is active now has been so ever since the last time, and what is empty has been empty.
func (o *offer[T]) elapse(passed, quantum int64) {
	if passed != o.mark {
		o.pass(passed-o.mark, quantum)
		o.mark = passed
	}
}
