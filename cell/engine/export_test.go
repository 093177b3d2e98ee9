package engine

// SetChunk makes Next return smaller pieces, so that a small state takes many of them.
func (n *Snapshot) SetChunk(bytes, steps int) { n.chunkBytes, n.chunkSteps = bytes, steps }

// Unlearn forgets what operations cost, which the state of an older version did not know.
func (s *State) Unlearn() {
	for _, t := range s.Tenants() {
		t.estimates = estimates{}
	}
}
