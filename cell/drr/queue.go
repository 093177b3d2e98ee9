package drr

// Queue is a Ring of one set with a first-in first-out queue per flow: deficit round robin for who wants no more. Flows
// are made by their first use, with a weight of one. It bounds the number of flows (Config.FlowsMax) but not that of
// items, which is the caller's to refuse. Pushing and popping allocate only when a flow's queue grows beyond what it has
// been before.
type Queue[K comparable, T any] struct {
	ring  *Ring[*line[K, T]]
	flows map[K]*Flow[*line[K, T]]
	items int
}

// line is one flow's items: a ring buffer whose size is a power of two.
type line[K comparable, T any] struct {
	key   K
	items []queued[T]
	head  int
	n     int
}

type queued[T any] struct {
	item T
	cost int64
}

// NewQueue makes an empty Queue. It returns the errors of Config.Validate.
func NewQueue[K comparable, T any](cfg Config) (*Queue[K, T], error) {
	r, err := New[*line[K, T]](cfg)
	if err != nil {
		return nil, err
	}
	if err := r.OpenSet(0); err != nil {
		return nil, err
	}
	return &Queue[K, T]{ring: r, flows: make(map[K]*Flow[*line[K, T]])}, nil
}

// Push adds an item at the end of the flow's queue; its cost, in micro-units, is charged when it is popped. It returns
// ErrFull if the flow would be one too many.
func (q *Queue[K, T]) Push(flow K, item T, cost int64) error {
	f, err := q.flow(flow)
	if err != nil {
		return err
	}
	f.Value.push(queued[T]{item: item, cost: cost})
	q.items++
	q.ring.Activate(f, 0)
	return nil
}

// Pop takes the item that is next and charges its cost, or returns false if there is none.
func (q *Queue[K, T]) Pop() (T, bool) {
	f, ok := q.ring.Next(0)
	if !ok {
		var none T
		return none, false
	}
	it := f.Value.pop()
	q.items--
	q.ring.Charge(f, 0, it.cost)
	if f.Value.n == 0 {
		q.ring.Deactivate(f, 0)
	}
	return it.item, true
}

// SetWeight gives the flow a weight, also before its first item. It returns a *WeightError or ErrFull.
func (q *Queue[K, T]) SetWeight(flow K, weight Weight) error {
	if err := weight.Validate(); err != nil {
		return err
	}
	f, err := q.flow(flow)
	if err != nil {
		return err
	}
	return q.ring.SetWeight(f, weight)
}

// Settle corrects what was charged to a flow, as [Ring.Settle] does. It does nothing to a flow that is not known.
func (q *Queue[K, T]) Settle(flow K, delta int64) {
	if f := q.flows[flow]; f != nil {
		q.ring.Settle(f, 0, delta)
	}
}

// Idle says that a server was free for the time, as [Ring.Idle] does.
func (q *Queue[K, T]) Idle(time int64) { q.ring.Idle(0, time) }

// Account returns the flow's standing; that of a flow that is not known has a Behind of NoStanding.
func (q *Queue[K, T]) Account(flow K) Account {
	if f := q.flows[flow]; f != nil {
		return f.Account(0)
	}
	return Account{Behind: NoStanding}
}

// Remove forgets a flow with its items and its debt, and returns how many items it had.
func (q *Queue[K, T]) Remove(flow K) int {
	f := q.flows[flow]
	if f == nil {
		return 0
	}
	q.ring.Remove(f)
	delete(q.flows, flow)
	q.items -= f.Value.n
	return f.Value.n
}

// Len returns the number of items of all flows.
func (q *Queue[K, T]) Len() int { return q.items }

// Waiting returns the number of items of one flow.
func (q *Queue[K, T]) Waiting(flow K) int {
	if f := q.flows[flow]; f != nil {
		return f.Value.n
	}
	return 0
}

// Round returns the current round number.
func (q *Queue[K, T]) Round() int64 { return q.ring.Round(0) }

func (q *Queue[K, T]) flow(key K) (*Flow[*line[K, T]], error) {
	if f := q.flows[key]; f != nil {
		return f, nil
	}
	f, err := q.ring.NewFlow(&line[K, T]{key: key}, WeightUnit)
	if err != nil {
		return nil, err
	}
	q.flows[key] = f
	return f, nil
}

func (l *line[K, T]) push(it queued[T]) {
	if l.n == len(l.items) {
		grown := make([]queued[T], max(4, 2*len(l.items)))
		for i := range l.n {
			grown[i] = l.items[(l.head+i)&(len(l.items)-1)]
		}
		l.items, l.head = grown, 0
	}
	l.items[(l.head+l.n)&(len(l.items)-1)] = it
	l.n++
}

func (l *line[K, T]) pop() queued[T] {
	it := l.items[l.head]
	l.items[l.head] = queued[T]{}
	l.head = (l.head + 1) & (len(l.items) - 1)
	l.n--
	return it
}
