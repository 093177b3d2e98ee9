package migrate

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cell"
)

// explorer searches all worlds that can be reached within limits, breadth first, so that what it finds is as short as it can be.
type explorer struct {
	limits   limits
	mutation mutation
	seen     map[[16]byte]int32 // to nodes
	nodes    []node
	queue    []*world
	most     int
}

type node struct {
	parent int32
	step   string
}

type finding struct {
	what string
	path []string
}

func (f *finding) String() string { return f.what + "\n  " + strings.Join(f.path, "\n  ") }

// explore searches from where a migration begins a state, when nothing went wrong until then.
func explore(begin State, l limits, x mutation, most int) (*explorer, *finding) {
	e := &explorer{limits: l, mutation: x, seen: map[[16]byte]int32{}, most: most}
	w := newWorld(l)
	w.blind = x == noDigest
	w.driveTo(begin)
	e.seen[w.key()] = 0
	e.nodes = append(e.nodes, node{parent: -1})
	e.queue = append(e.queue, &w)
	for at := 0; at < len(e.queue); at++ {
		if f := e.expand(int32(at)); f != nil {
			return e, f
		}
	}
	return e, nil
}

// expand adds every world that is one step from another.
func (e *explorer) expand(at int32) (found *finding) {
	w := *e.queue[at]
	add := func(next world, step string) {
		if found != nil {
			return
		}
		next.check()
		if next.bad != "" {
			found = &finding{next.bad, append(e.path(at), step+"   "+next.String())}
			return
		}
		k := next.key()
		if _, known := e.seen[k]; known || len(e.queue) >= e.most {
			return
		}
		e.seen[k] = int32(len(e.queue))
		e.nodes = append(e.nodes, node{at, step})
		e.queue = append(e.queue, &next)
	}
	e.driver(w, add)
	e.network(w, add)
	e.callers(w, add)
	e.operator(w, add)
	e.crashes(w, add)
	e.mutate(w, add)
	return found
}

func (e *explorer) path(at int32) []string {
	var steps []string
	for i := at; i > 0; i = e.nodes[i].parent {
		steps = append(steps, e.nodes[i].step+"   "+e.queue[i].String())
	}
	for i, j := 0, len(steps)-1; i < j; i, j = i+1, j-1 {
		steps[i], steps[j] = steps[j], steps[i]
	}
	return steps
}

func (w *world) String() string {
	return fmt.Sprintf("[%s %s/%s a%d e%d,%d held=%q | a: %v, %v | b: %v, %v]", w.r.State, w.r.Lanes[0].Phase, w.r.Lanes[1].Phase, w.r.Attempt,
		w.r.Lanes[0].Epoch, w.r.Lanes[1].Epoch, w.r.Held, &w.cells[0][0], &w.cells[0][1], &w.cells[1][0], &w.cells[1][1])
}

// driver does what is to be done, one thing after the other in the order that Next gives it; what goes wrong is that a call is not answered, or late. Other orders
// are those in which some are late. That time passes is tried where nothing else is to be done, and where it decides something.
func (e *explorer) driver(w world, add func(world, string)) {
	due := e.drive(w, soon, add)
	switch _, switching := w.r.switching(); {
	case switching && w.faults > 0: // it takes too long: somebody was slow
		for _, m := range w.next(late, e.mutation) {
			if p, ok := m.effect.(Propose); ok && p.Event.Kind == EventUnfence {
				n := w
				n.faults--
				n.deliver(m, e.mutation, true)
				add(n, "too slow: "+describe(m.effect))
			}
		}
	case !due || w.r.State == CutOver && w.faults > 0:
		e.drive(w, late, add)
	}
}

// drive reports whether there was anything to be done.
func (e *explorer) drive(w world, now cell.Instant, add func(world, string)) bool {
	base := w
	before := w.key()
	done := false
	for _, m := range base.next(now, e.mutation) {
		step := describe(m.effect)
		n := base
		n.deliver(m, e.mutation, true)
		if !done && n.key() != before {
			done = true
			add(n, step)
		}
		if w.faults == 0 {
			continue
		}
		switch m.effect.(type) {
		case Look, Prove, Digest:
			continue
		case Propose:
		default:
			n = base
			n.faults--
			n.deliver(m, e.mutation, false)
			add(n, "without an answer: "+step)
		}
		if c, ok := m.effect.(Copy); ok && c.To == modelTarget {
			n = base
			n.faults--
			dropped := m
			dropped.chunk.content = jobs{}
			n.deliver(dropped, e.mutation, true)
			add(n, "a record is dropped: "+step)
		}
		if len(w.late) < e.limits.late {
			n = base
			n.faults--
			n.late = append(append([]message(nil), w.late...), m)
			add(n, "late: "+step)
		}
	}
	return done
}

// describe is an effect as a finding shows it.
func describe(e Effect) string {
	if p, ok := e.(Propose); ok {
		return fmt.Sprintf("propose %s %s at %d, change %d", p.Event.Kind, p.Event.Class, p.Event.Position, p.Event.Change)
	}
	return fmt.Sprintf("%T%+v", e, e)
}

// network has a late call arrive, and perhaps arrive again.
func (e *explorer) network(w world, add func(world, string)) {
	for i, m := range w.late {
		n := w
		n.late = append(append([]message(nil), w.late[:i]...), w.late[i+1:]...)
		n.deliver(m, e.mutation, false)
		step := "arrives: " + describe(m.effect)
		add(n, step)
		if w.faults > 0 {
			n.faults--
			n.late = w.late
			add(n, "once: "+step)
		}
	}
}

func (e *explorer) callers(w world, add func(world, string)) {
	for i, c := range w.r.Order {
		if i >= e.limits.classes {
			break
		}
		for _, id := range []cell.ID{modelSource, modelTarget} {
			for job := range e.limits.jobs {
				for to := uint8(1); to <= 2; to++ {
					n := w
					if n.write(id, c, job, to) {
						add(n, fmt.Sprintf("job %d of %s becomes %d at %s", job, c, to, id))
					}
				}
			}
		}
	}
}

func (e *explorer) operator(w world, add func(world, string)) {
	if w.operators == 0 {
		return
	}
	kinds := []Event{{Kind: EventResume}, {Kind: EventAbort}, {Kind: EventReverse}, {Kind: EventHold, Why: "operator"}, {Kind: EventComplete}}
	for _, o := range kinds {
		n := w
		o.Attempt = w.r.Attempt
		n.propose(w.r.Generation, o, correct)
		if n.r.Generation == w.r.Generation {
			continue
		}
		n.operators--
		add(n, "operator: "+o.Kind.String())
	}
}

// crashes: the driver forgets what it saw, a cell what it keeps in memory, or what follows a cursor.
func (e *explorer) crashes(w world, add func(world, string)) {
	if w.faults == 0 {
		return
	}
	if w.seen != [2]bool{} {
		n := w
		n.faults--
		n.seen, n.view, n.prove = [2]bool{}, [2][2]modelLane{}, [2]uint32{}
		add(n, "the driver crashes")
	}
	for s := range w.cells {
		for i := range w.cells[s] {
			l := &w.cells[s][i]
			if i != w.r.Order[0].Index() {
				continue
			}
			if e.mutation == fenceInMemory && l.mode == cell.ModeFenced {
				n := w
				n.faults--
				f := &n.cells[s][i]
				f.mode, f.epoch, f.fence = cell.ModeOpen, f.before, 0
				add(n, fmt.Sprintf("cell %d crashes", s))
			}
			if l.tracker != 0 && s == 0 { // without the target's there is no way back, which people decide on
				n := w
				n.faults--
				n.cells[s][i].tracker = 0
				add(n, fmt.Sprintf("cell %d loses its tracking", s))
			}
		}
	}
}

// mutate has happen what a mutation makes possible at any time.
func (e *explorer) mutate(w world, add func(world, string)) {
	for s := range w.cells {
		for _, c := range cell.Classes() {
			i := c.Index()
			l := &w.cells[s][i]
			if e.mutation == unfenceByTimer && l.mode == cell.ModeFenced {
				n := w
				n.cells[s][i].mode = cell.ModeOpen
				add(n, fmt.Sprintf("cell %d un-fences by itself", s))
			}
			if e.mutation == activateFirst && s == 1 && w.r.Lanes[i].Phase == Fencing && l.mode == cell.ModeStaged && l.cursor.Seeded == SeededAll {
				n := w
				n.cells[s][i].setMode(cell.ModeOpen, w.r.Lanes[i].Epoch+1, w.r.Attempt, false)
				add(n, "the target is opened")
			}
		}
	}
}

// settles returns why a world does not come to an end when nothing else goes wrong, or nothing. Worlds that are known to do so are in good.
func settles(w world, x mutation, good map[[16]byte]bool) string {
	w.late, w.faults, w.operators = nil, 0, 0
	var path [][16]byte
	now := soon
	for range 500 {
		k := w.key()
		if w.r.Done() || now == soon && good[k] {
			for _, p := range path {
				good[p] = true
			}
			return ""
		}
		if now == soon {
			path = append(path, k)
		}
		if w.r.Held != "" {
			w.propose(w.r.Generation, Event{Kind: EventResume, Attempt: w.r.Attempt}, x)
		}
		w.look(modelSource)
		w.look(modelTarget)
		for _, m := range w.next(now, x) {
			w.deliver(m, x, true)
			if w.check(); w.bad != "" {
				return w.bad
			}
		}
		after := w.key()
		switch {
		case after != k:
			now = soon
		case now == soon:
			now = late
		case w.r.State == Ramping && w.r.committed(): // held for good: an operator reverses it
			w.propose(w.r.Generation, Event{Kind: EventReverse, Attempt: w.r.Attempt}, x)
		default:
			return fmt.Sprintf("nothing happens any more in %s: %v", w.String(), Next(w.r, w.observed(), late, explorerConfig()))
		}
	}
	return "it does not end: " + w.String()
}

// driveTo does what is to be done, one thing after the other, until a state begins.
func (w *world) driveTo(s State) {
	for now := soon; w.r.State != s; {
		before := w.key()
		for _, m := range w.next(now, correct) {
			if n := *w; w.key() == before {
				n.deliver(m, correct, true)
				*w = n
			}
		}
		now = soon
		if w.key() == before {
			now = late
		}
	}
}

var deep = flag.Bool("deep", false, "search with one fault more than a test has time for")

func TestExplore(t *testing.T) {
	for name, c := range map[string]struct {
		begin  State
		limits limits
		slow   bool // not with -short
	}{
		"from the beginning, a fault":           {Declared, limits{faults: 1, late: 1}, false},
		"from the beginning, with a job":        {Declared, limits{classes: 1, jobs: 1, faults: 1, late: 1}, true},
		"two attempts, a fault and an operator": {Provisioned, limits{faults: 1, operators: 1, late: 1}, true},
		"the switch, with a job":                {Ramping, limits{classes: 1, jobs: 1, faults: 1, late: 1}, false},
		"the switch, two faults":                {Ramping, limits{faults: 2, late: 1}, true},
		"the switch, a fault and an operator":   {Ramping, limits{faults: 1, operators: 1, late: 1}, false},
		"the way back":                          {CutOver, limits{classes: 1, jobs: 1, faults: 1, operators: 1, late: 1}, false},
		"a job in each class, and an operator":  {Ramping, limits{classes: 2, jobs: 1, operators: 1}, true},
		"two jobs":                              {Ramping, limits{classes: 1, jobs: 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.slow && testing.Short() {
				t.Skip("takes seconds")
			}
			if *deep {
				c.limits.faults++
			}
			e, f := explore(c.begin, c.limits, correct, worldsMax)
			if f != nil {
				t.Fatal(f)
			}
			if len(e.queue) >= worldsMax {
				t.Fatal("the search was cut off")
			}
			t.Logf("%d worlds", len(e.queue))
			good := map[[16]byte]bool{}
			for i := range e.queue {
				if why := settles(*e.queue[i], correct, good); why != "" {
					t.Fatalf("%s\n  %s", why, strings.Join(e.path(int32(i)), "\n  "))
				}
			}
		})
	}
}

// worldsMax bounds a search: one that comes so far was given limits that are too wide.
const worldsMax = 1_000_000

func TestExploreFindsEveryMutation(t *testing.T) {
	for name, c := range map[string]struct {
		mutation mutation
		limits   limits
	}{
		"a timer un-fences":                      {unfenceByTimer, limits{classes: 1, jobs: 1}},
		"the fence is only in memory":            {fenceInMemory, limits{classes: 1, jobs: 1, faults: 1}},
		"the position is taken before the fence": {positionFirst, limits{classes: 1, jobs: 1}},
		"an attempt leaves the epoch":            {noEpochBump, limits{classes: 1, jobs: 1, faults: 2, late: 1}},
		"the target opens before the commit":     {activateFirst, limits{}},
		"control looks at no generation":         {noGeneration, limits{faults: 3, late: 1}},
		"the commit does not compare":            {noDigest, limits{classes: 1, jobs: 1, faults: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			e, f := explore(Ramping, c.limits, c.mutation, worldsMax)
			if f == nil {
				t.Fatalf("%d worlds, and nothing was found", len(e.queue))
			}
			t.Logf("%d worlds: %s", len(e.queue), f.what)
		})
	}
}
