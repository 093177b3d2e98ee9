package sim

// pool has the free slots, by the group of workers that they belong to.
type pool struct {
	groups []heap[slot]
	first  []slot // the first slot of each group
	left   int
	dry    []bool // scratch of dispatch: groups that nothing can be found for
}

// newPool numbers the slots of all groups through.
func newPool(workers []Workers) pool {
	var p pool
	n := slot(0)
	for _, w := range workers {
		p.first = append(p.first, n)
		var h heap[slot]
		for range w.Slots {
			h.push(n)
			n++
		}
		p.groups = append(p.groups, h)
	}
	p.left = int(n)
	return p
}

// take returns the group's free slot of the lowest number. There must be one.
func (p *pool) take(group int) slot {
	p.left--
	return p.groups[group].pop()
}

// give makes a slot free.
func (p *pool) give(s slot) {
	group := len(p.first) - 1
	for p.first[group] > s {
		group--
	}
	p.left++
	p.groups[group].push(s)
}
