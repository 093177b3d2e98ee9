package engine

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"sort"
)

// Hash returns a digest of everything that the log determines: equal for two replicas that applied the same entries, and for a state and its
// restored snapshot. It walks everything: for tests and for comparing replicas.
func (s *State) Hash() [32]byte {
	sum := sha256.New()
	w := &writer{}
	flush := func() {
		sum.Write(w.b)
		w.b = w.b[:0]
	}
	w.limits(&s.limits)
	w.instant(s.time)
	w.uint(s.index)
	w.uint(s.accepted)
	w.uint(s.ended)
	jobs := slices.Clone(s.all)
	sort.Slice(jobs, func(a, b int) bool {
		if jobs[a].Seq != jobs[b].Seq {
			return jobs[a].Seq < jobs[b].Seq
		}
		return jobs[a].Lane.before(jobs[b].Lane)
	})
	for _, j := range jobs {
		w.job(j)
		flush()
	}
	for _, l := range s.Lanes() {
		record := l.record()
		w.lane(&record)
		if record.move != (laneMove{}) {
			w.lanesMove(&record)
		}
		if k := l.tracker; k != nil {
			for _, p := range k.changes.places {
				if p.item != nil {
					c := p.item.record()
					w.change(&c)
				}
			}
		}
		hashes := make([]keyHash, 0, len(l.keys))
		for h := range l.keys { // order-free: sorted below
			hashes = append(hashes, h)
		}
		slices.SortFunc(hashes, func(a, b keyHash) int { return bytes.Compare(a[:], b[:]) })
		for _, h := range hashes {
			w.key(l.keys[h])
			flush()
		}
	}
	for _, o := range s.Organizations() {
		w.organization(o)
	}
	for _, t := range s.Tenants() {
		record := t.record()
		w.tenant(&record)
		for _, key := range slices.Sorted(maps.Keys(t.concurrency)) {
			w.concurrency(t.concurrency[key])
		}
		flush()
	}
	flush()
	return [32]byte(sum.Sum(nil))
}
