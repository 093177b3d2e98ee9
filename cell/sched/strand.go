package sched

// strand is the jobs of one queue that carry the same concurrency keys, best first. The jobs of a strand are blocked together, so that
// blocking and waking never look at single jobs. It is awake, one of its queue's, or asleep, filed under a key of its own.
type strand struct {
	queue  *queue
	keys   keySet
	jobs   heap[*job, laneOrder]
	asleep *wait // nil while it is awake
	at     int32 // in queue.awake or asleep.strands
	// topAt is its places in its keys' tops while it is the queue's top.
	topAt [len(keySet{})]int32
}

func (st *strand) head() *job { return st.jobs.first() }

// headOrder is the order of strands by their best jobs.
type headOrder struct{}

func (headOrder) before(a, b *strand) bool { return a.head().before(b.head()) }
func (headOrder) place(st *strand) *int32  { return &st.at }

// queue is what waits of one operation in one lane.
//
// Of its strands those are in the heap of the awake that may run as far as it is known. The best of them, the top, certainly may: it is the
// queue's offer, and a queue without one is not in the rotation. Others are found to be blocked when they come to the top, and sleep then.
// Where a key has room but strands still sleep at it, an awake strand that carries it stands before them all, so that they are woken as
// that one goes; keys that are still being opened are the exception (see pending).
type queue struct {
	lane      *lane
	operation *operation
	bare      strand             // its jobs without keys
	keyed     map[keySet]*strand // its jobs with keys
	awake     heap[*strand, headOrder]
	top       *strand
	size      int // jobs
	laneAt    int // in lane.queues
	opAt      int // in operation.queues
	unsettled bool
}

// strandOf returns the queue's strand for the keys, which it takes over.
func (s *Scheduler) strandOf(q *queue, ks keySet) *strand {
	if ks[0] == nil {
		q.bare.queue = q
		return &q.bare
	}
	if st := q.keyed[ks]; st != nil {
		s.unref(&ks) // the strand has its own
		return st
	}
	st := s.spareStrands.get()
	st.queue, st.keys = q, ks
	if q.keyed == nil {
		q.keyed = map[keySet]*strand{}
	}
	q.keyed[ks] = st
	return st
}

// push adds a job to its strand, and lets the queue offer it if it may run.
func (s *Scheduler) push(st *strand, j *job) {
	q := st.queue
	q.size++
	j.strand = st
	st.jobs.push(j)
	switch {
	case st.head() != j: // the strand stays where it is
		return
	case st.jobs.len() > 1 && st.asleep != nil:
		st.asleep.strands.fix(st)
		if k := st.asleep.key; k.room() {
			s.wake(k, q) // it may have come before whoever is awake
		}
	case st.jobs.len() > 1:
		q.awake.fix(st)
	default:
		if k := st.keys.full(); k != nil {
			s.sleep(st, k)
		} else {
			q.awake.push(st)
		}
	}
	s.settle(q)
}

// pull takes a job out of its strand. The caller forgets the strand and the queue if they are empty then.
func (s *Scheduler) pull(j *job) {
	st := j.strand
	q := st.queue
	head := st.head() == j
	st.jobs.remove(j)
	j.strand = nil
	q.size--
	empty := st.jobs.len() == 0
	switch {
	case !head:
		return
	case st.asleep != nil && empty:
		s.unsleep(st)
	case st.asleep != nil:
		st.asleep.strands.fix(st)
	case empty:
		q.awake.remove(st)
		s.wakeBehind(&st.keys, q)
	default:
		q.awake.fix(st)
		s.wakeBehind(&st.keys, q)
	}
	s.settle(q)
	if empty && st != &q.bare {
		delete(q.keyed, st.keys)
		s.unref(&st.keys)
		st.jobs.clear()
		*st = strand{jobs: st.jobs}
		s.spareStrands.put(st)
	}
}

// settle finds the queue's top: it puts to sleep what stands before it and is blocked.
func (s *Scheduler) settle(q *queue) {
	if q.unsettled {
		return
	}
	for {
		top := q.awake.first()
		if top == nil {
			s.crown(q, nil)
			return
		}
		k := top.keys.full()
		if k == nil {
			s.crown(q, top)
			return
		}
		if s.pending.moves == 0 {
			s.crown(q, nil)
			s.pending.addQueue(q)
			return
		}
		s.pending.moves--
		q.awake.remove(top)
		s.sleep(top, k)
		s.wakeBehind(&top.keys, q)
	}
}

// crown makes a strand the queue's top, or nil when it has none, and the lane offer the operation or not accordingly.
func (s *Scheduler) crown(q *queue, top *strand) {
	old := q.top
	if old == top {
		return
	}
	if old != nil {
		old.dethrone()
	}
	if top != nil {
		for i, k := range top.keys {
			if k == nil {
				break
			}
			top.topAt[i] = int32(len(k.tops))
			k.tops = append(k.tops, top)
		}
	}
	q.top = top
	if (old == nil) != (top == nil) {
		s.offer(q, top != nil)
	}
}

// dethrone takes the strand out of its keys' tops.
func (st *strand) dethrone() {
	for i, k := range st.keys {
		if k == nil {
			return
		}
		last := k.tops[len(k.tops)-1]
		k.tops[st.topAt[i]] = last
		for j, lk := range last.keys {
			if lk == k {
				last.topAt[j] = st.topAt[i]
			}
		}
		k.tops[len(k.tops)-1] = nil
		k.tops = k.tops[:len(k.tops)-1]
	}
}
