package sched

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// key is a tenant's concurrency key, as long as a job that carries it waits or is held.
type key struct {
	owner *tenant
	name  string
	max   int64
	seq   uint64 // of the job that max is from: the one accepted last
	held  int64  // leases that carry it; above max after max was lowered
	refs  int    // strands and leases that carry it

	tops  []*strand // those that are the top of their queue
	waits []*wait   // where strands sleep until it has room, one for each queue
	// opening says that it is in pending.keys: it has got room, and the waits at places up to cursor have not been woken yet.
	opening bool
	cursor  int
}

func (k *key) room() bool { return k.held < k.max }

// keySet is the concurrency keys of a job or a lease by their names; nil after the last.
type keySet [cell.ConcurrencyKeysMax]*key

// full returns the first of the keys that has no room, and nil when all have.
func (ks *keySet) full() *key {
	for _, k := range ks {
		if k == nil {
			return nil
		}
		if !k.room() {
			return k
		}
	}
	return nil
}

func (ks *keySet) has(k *key) bool { return slices.Contains(ks[:], k) }

// wait is the strands of one queue that sleep until one key has room, best first.
type wait struct {
	key     *key
	queue   *queue
	strands heap[*strand, headOrder]
	at      int // in key.waits
}

// waitID names a wait.
type waitID struct {
	key   *key
	queue *queue
}

// keysOf returns the tenant's keys of those names, and makes those that it does not have. Each counts one more reference.
func (s *Scheduler) keysOf(t *tenant, keys []cell.ConcurrencyKey, seq uint64) keySet {
	var ks keySet
	n := 0
	for _, ck := range keys {
		if n == len(ks) {
			break // the door refuses more
		}
		k := t.keys[ck.Key]
		if k == nil {
			k = s.spareKeys.get()
			k.owner, k.name, k.max, k.seq = t, ck.Key, max(1, ck.Max), seq
			if t.keys == nil {
				t.keys = map[string]*key{}
			}
			t.keys[ck.Key] = k
		} else if ks.has(k) {
			continue
		}
		k.refs++
		ks[n] = k
		n++
		s.rebound(k, ck.Max, seq)
	}
	slices.SortFunc(ks[:n], func(a, b *key) int { return cmp.Compare(a.name, b.name) })
	return ks
}

// rebound makes the bound of the job accepted last the key's.
func (s *Scheduler) rebound(k *key, most int64, seq uint64) {
	if seq < k.seq || k.max == most {
		k.seq = max(k.seq, seq)
		return
	}
	had := k.room()
	k.max, k.seq = max(1, most), seq
	switch {
	case had && !k.room():
		s.fill(k)
	case !had && k.room():
		s.open(k)
	}
}

// hold counts a lease of the keys; see filled.
func (s *Scheduler) hold(ks *keySet) {
	for _, k := range ks {
		if k == nil {
			return
		}
		k.held++
	}
}

// filled blocks what stands at the top of a queue and carries one of the keys that is full.
func (s *Scheduler) filled(ks *keySet) {
	for _, k := range ks {
		if k == nil {
			return
		}
		if !k.room() {
			s.fill(k)
		}
	}
}

// fill puts a new top on every queue whose top carries the key, which has no room any more. Each of them was woken or added before, once
// for each time that this can happen to it.
func (s *Scheduler) fill(k *key) {
	for len(k.tops) > 0 {
		s.settle(k.tops[len(k.tops)-1].queue)
	}
}

// vacate ends a lease of the keys, which whoever held it carries until unref.
func (s *Scheduler) vacate(ks *keySet) {
	for _, k := range ks {
		if k == nil {
			break
		}
		had := k.room()
		k.held--
		if !had && k.room() {
			s.open(k)
		}
	}
}

// unref lets go of keys; one that nobody carries is forgotten.
func (s *Scheduler) unref(ks *keySet) {
	for _, k := range ks {
		if k == nil {
			return
		}
		if k.refs--; k.refs > 0 {
			continue
		}
		delete(k.owner.keys, k.name)
		*k = key{tops: k.tops[:0], waits: k.waits[:0]}
		s.spareKeys.put(k)
	}
}

// open wakes, in each queue that waits for the key, the best strand: the key has got room.
func (s *Scheduler) open(k *key) {
	k.opening, k.cursor = false, len(k.waits)-1
	s.continueOpening(k)
}

// continueOpening goes on with open, as far as this call's moves reach. It goes backwards, because a wait that is over is replaced by the
// last.
func (s *Scheduler) continueOpening(k *key) {
	for ; k.cursor >= 0 && k.room(); k.cursor-- {
		if k.cursor >= len(k.waits) {
			continue
		}
		if s.pending.moves == 0 {
			s.pending.addKey(k)
			return
		}
		s.pending.moves--
		q := k.waits[k.cursor].queue
		s.wake(k, q)
		s.settle(q)
	}
}

// wake lets the best strand of the queue that sleeps until the key has room compete again. Whether its other keys have room is found out
// when it comes to the top.
func (s *Scheduler) wake(k *key, q *queue) {
	w := s.waits[waitID{k, q}]
	if w == nil {
		return
	}
	st := w.strands.first()
	s.unsleep(st)
	q.awake.push(st)
}

// wakeBehind wakes at each key that has room whoever waits behind a strand that has got worse, or is gone.
func (s *Scheduler) wakeBehind(ks *keySet, q *queue) {
	for _, k := range ks {
		if k == nil {
			return
		}
		if k.room() {
			s.wake(k, q)
		}
	}
}

// sleep files a strand that is in no heap under a key of its own that is full.
func (s *Scheduler) sleep(st *strand, k *key) {
	id := waitID{k, st.queue}
	w := s.waits[id]
	if w == nil {
		w = s.spareWaits.get()
		w.key, w.queue, w.at = k, st.queue, len(k.waits)
		k.waits = append(k.waits, w)
		s.waits[id] = w
	}
	st.asleep = w
	w.strands.push(st)
}

// unsleep takes a strand out of where it sleeps.
func (s *Scheduler) unsleep(st *strand) {
	w := st.asleep
	w.strands.remove(st)
	st.asleep = nil
	if w.strands.len() > 0 {
		return
	}
	k := w.key
	last := k.waits[len(k.waits)-1]
	k.waits[w.at], last.at = last, w.at
	k.waits[len(k.waits)-1] = nil
	k.waits = k.waits[:len(k.waits)-1]
	delete(s.waits, waitID{k, w.queue})
	w.key, w.queue = nil, nil
	w.strands.clear()
	s.spareWaits.put(w)
}

// Rebound makes most a concurrency key's bound, whatever job brought it, where jobs were accepted elsewhere and their order says nothing. It does
// nothing to a key that nobody carries.
func (s *Scheduler) Rebound(id cell.TenantID, name string, most int64) {
	if t := s.tenantOf(id); t != nil && t.keys[name] != nil {
		s.goOn()
		k := t.keys[name]
		s.rebound(k, most, k.seq)
	}
}

// Bounds calls yield for every concurrency key of a tenant's that a job carries which waits or is held, with its bound, in no particular order, until
// it returns false.
func (s *Scheduler) Bounds(id cell.TenantID, yield func(name string, most int64) bool) {
	t := s.tenantOf(id)
	if t == nil {
		return
	}
	for _, k := range t.keys { // order-free: as it says
		if !yield(k.name, k.max) {
			return
		}
	}
}

// Bound says what a job that was accepted last gives a concurrency key as its bound, where the job itself does not wait for its turn yet.
// seq is its order of acceptance.
func (s *Scheduler) Bound(id cell.TenantID, ck cell.ConcurrencyKey, seq uint64) {
	t := s.tenantOf(id)
	if t == nil || t.keys[ck.Key] == nil {
		return // whoever carries it first brings the bound that holds then
	}
	s.goOn()
	s.rebound(t.keys[ck.Key], ck.Max, seq)
}
