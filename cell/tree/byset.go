package tree

import (
	"math/bits"

	"github.com/fairlead/fairlead/cell/drr"
)

// bySet has something for each of some offer sets. That of the first one lies within, because most nodes are in one set only and a dispatch then
// reads memory that is together. What it returns stays where it is, if the bySet does.
type bySet[E any] struct {
	one   E
	first drr.SetID // the set that one is of
	sets  uint64
	more  []*E // of the others, in set order
}

// get returns what is there for a set, or nil.
func (m *bySet[E]) get(set drr.SetID) *E {
	switch {
	case m.sets>>set&1 == 0:
		return nil
	case m.first == set:
		return &m.one
	default:
		return m.more[m.index(set)]
	}
}

// open returns what is there for a set, made if there is nothing, and whether it was.
func (m *bySet[E]) open(set drr.SetID) (e *E, made bool) {
	if e = m.get(set); e != nil {
		return e, false
	}
	if m.sets == 0 {
		m.sets, m.first = 1<<set, set
		return &m.one, true
	}
	e = new(E)
	i := m.index(set)
	m.more = append(m.more, nil)
	copy(m.more[i+1:], m.more[i:])
	m.more[i] = e
	m.sets |= 1 << set
	return e, true
}

func (m *bySet[E]) index(set drr.SetID) int {
	return bits.OnesCount64(m.sets &^ (1 << m.first) & (1<<set - 1))
}
