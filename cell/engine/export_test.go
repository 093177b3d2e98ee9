package engine

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// SetChunk makes Next return smaller pieces, so that a small state takes many of them.
func (n *Snapshot) SetChunk(bytes, steps int) { n.chunkBytes, n.chunkSteps = bytes, steps }

// Unlearn forgets what operations cost, which the state of an older version did not know.
func (s *State) Unlearn() {
	for _, t := range s.Tenants() {
		t.estimates = estimates{}
	}
}

// KeysOf returns what stands under the lane's keys.
func (s *State) KeysOf(lane cell.Lane) []string {
	var all []string
	for _, r := range s.Lane(lane).keys { // order-free: sorted below
		all = append(all, fmt.Sprintf("%x %v %x %d", r.hash, r.job, r.body, r.expires))
	}
	slices.Sort(all)
	return all
}

// LetGoBeyond lowers how many records of a tracked lane may be gone.
func (s *State) LetGoBeyond(n int) { s.goneMax = n }
