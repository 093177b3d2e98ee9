package sched

// movesMax bounds how many strands one call puts to sleep or wakes. A job of one key never comes near it. Of jobs with several keys each
// one that is woken may turn out to be blocked by another key, and whoever builds such chains on purpose, of a hundred thousand jobs, must
// not hold up everybody else's next job: what a call leaves undone the next ones go on with, and Wake says that there is something left. No
// order of filing avoids the chains: with two keys to a job, whether any job may run as keys fill and empty is the vector-matrix-vector
// question of Henzinger et al., "Unifying and Strengthening Hardness for Dynamic Problems" (STOC 2015), which is conjectured to take time
// that grows with the number of keys.
const movesMax = 64

// pending is what calls have left undone.
type pending struct {
	most   int          // movesMax, but in tests
	moves  int          // strands that this call may still move
	queues line[*queue] // whose top is not known: they offer nothing until it is
	keys   line[*key]   // that have got room, which not every queue that waits for it knows
}

func (p *pending) empty() bool { return p.queues.len() == 0 && p.keys.len() == 0 }

func (p *pending) addQueue(q *queue) {
	if !q.unsettled {
		q.unsettled = true
		p.queues.push(q)
	}
}

func (p *pending) addKey(k *key) {
	if !k.opening {
		k.opening = true
		p.keys.push(k)
	}
}

// goOn begins a call: it may move strands again, and first moves those that earlier calls have left.
func (s *Scheduler) goOn() {
	p := &s.pending
	p.moves = p.most
	if p.empty() {
		return
	}
	for p.keys.len() > 0 && p.moves > 0 {
		if k := p.keys.pop(); k.opening {
			k.opening = false
			s.continueOpening(k)
		}
	}
	for p.queues.len() > 0 && p.moves > 0 {
		if q := p.queues.pop(); q.unsettled {
			q.unsettled = false
			s.settle(q)
		}
	}
}

// line is what waits in the order of its coming. What has left it otherwise stays in it: whoever pops it sees by a mark of its own whether
// it still counts.
type line[T any] struct {
	items []T
	from  int
}

func (l *line[T]) len() int { return len(l.items) - l.from }

func (l *line[T]) push(x T) { l.items = append(l.items, x) }

func (l *line[T]) pop() T {
	var none T
	x := l.items[l.from]
	l.items[l.from] = none
	if l.from++; l.from == len(l.items) {
		l.items, l.from = l.items[:0], 0
	} else if l.from > spareRoomMax && 2*l.from > len(l.items) {
		n := copy(l.items, l.items[l.from:])
		clear(l.items[n:])
		l.items, l.from = l.items[:n], 0
	}
	return x
}
