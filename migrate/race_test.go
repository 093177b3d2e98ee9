package migrate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cell"
)

// racer is a driver of its own: with the record and with the cells as it saw them last, which another may have changed since.
type racer struct {
	r     Record
	view  [2][2]modelLane
	seen  [2]bool
	prove [2]uint32
}

// race is one run: two drivers that both believe to lead, an operator, callers, and calls that get lost, come late and come twice.
type race struct {
	world
	rng     *rand.Rand
	drivers [2]racer
	log     []string
	aborted bool // the abort was applied
	moved   bool // a commit was
}

func (g *race) say(format string, args ...any) { g.log = append(g.log, fmt.Sprintf(format, args...)) }

// as runs f with a driver's knowledge in place of the world's.
func (g *race) as(i int, f func()) {
	d := &g.drivers[i]
	g.view, g.seen, g.prove = d.view, d.seen, d.prove
	f()
	d.view, d.seen, d.prove = g.view, g.seen, g.prove
}

func (g *race) drive(i int, calm bool) {
	d := &g.drivers[i]
	if calm || g.rng.IntN(3) > 0 {
		d.r = g.r
	}
	now := soon
	if g.rng.IntN(8) == 0 {
		now = late
	}
	g.as(i, func() {
		truth := g.r
		g.r = d.r // what it goes by
		messages := g.next(now, correct)
		g.r = truth
		for _, m := range messages {
			m.attempt, m.generation = d.r.Attempt, d.r.Generation
			switch n := g.rng.IntN(20); {
			case calm || n < 14:
				g.say("%d: %s", i, describe(m.effect))
				g.arrive(m, true)
			case n < 16:
				g.say("%d, not answered: %s", i, describe(m.effect))
				g.arrive(m, false)
			case n < 19 && len(g.late) < 8:
				g.late = append(g.late, m)
			}
		}
	})
	switch g.rng.IntN(40) {
	case 0:
		*d = racer{r: g.r}
	case 1, 2:
		g.as(i, func() { g.look(modelSource) })
	case 3, 4:
		g.as(i, func() { g.look(modelTarget) })
	}
}

func (g *race) arrive(m message, answered bool) {
	before := g.r
	g.deliver(m, correct, answered)
	g.note(&before)
}

// note sees which of abort and commit has come first.
func (g *race) note(before *Record) {
	g.aborted = g.aborted || g.r.State == Aborting && before.State != Aborting
	g.moved = g.moved || g.r.committed() && !before.committed()
	if g.aborted && g.moved {
		g.fail("it was aborted and committed")
	}
}

func (g *race) step() {
	switch n := g.rng.IntN(12); {
	case n < 7:
		g.drive(g.rng.IntN(2), false)
	case n < 8 && len(g.late) > 0:
		i := g.rng.IntN(len(g.late))
		m := g.late[i]
		if g.rng.IntN(3) > 0 {
			g.late = append(append([]message(nil), g.late[:i]...), g.late[i+1:]...)
		}
		g.say("arrives: %s of attempt %d", describe(m.effect), m.attempt)
		g.arrive(m, false)
	case n < 10:
		id := [2]cell.ID{modelSource, modelTarget}[g.rng.IntN(2)]
		g.write(id, cell.Classes()[g.rng.IntN(2)], g.rng.IntN(modelJobs), uint8(1+g.rng.IntN(2)))
	case g.rng.IntN(12) == 0:
		g.operate()
	case g.rng.IntN(60) == 0 && !g.r.committed():
		g.cells[0][g.rng.IntN(2)].tracker = 0
		g.say("the source loses its tracking")
	}
}

// operate has the operator do something, as of the record now or one before: what comes too late is refused by its generation.
func (g *race) operate() {
	kinds := []Event{
		{Kind: EventAbort}, {Kind: EventReverse}, {Kind: EventHold, Why: "operator"}, {Kind: EventResume}, {Kind: EventComplete},
	}
	e := kinds[g.rng.IntN(len(kinds))]
	e.Attempt = g.r.Attempt
	m := message{effect: Propose{Event: e}, attempt: g.r.Attempt, generation: g.r.Generation}
	g.say("operator: %s", e.Kind)
	if g.rng.IntN(2) == 0 && len(g.late) < 8 {
		g.late = append(g.late, m)
		return
	}
	g.arrive(m, false)
}

// TestRace: whatever two drivers, an operator and the network do, one of abort and commit wins, nothing is lost or done twice, and it comes to an end.
func TestRace(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 300
	}
	ends := map[State]int{}
	for seed := range seeds {
		g := &race{world: newWorld(limits{}), rng: rand.New(rand.NewPCG(seed, 4))}
		if seed%3 == 0 { // the way back, with what each driver saw on the way there
			g.driveTo(Ready)
			g.drivers[1] = racer{view: g.view, seen: g.seen, prove: g.prove}
			g.driveTo(CutOver)
			for _, c := range cell.Classes() {
				g.write(modelTarget, c, 0, 1)
			}
			g.look(modelTarget)
			g.drivers[0] = racer{view: g.view, seen: g.seen, prove: g.prove}
			g.propose(g.r.Generation, Event{Kind: EventReverse, Attempt: g.r.Attempt}, correct)
			g.moved = true
		}
		g.drivers[0].r, g.drivers[1].r = g.r, g.r
		for range 50 + g.rng.IntN(250) {
			if g.step(); g.bad != "" {
				break
			}
			if g.check(); g.bad != "" || g.r.Done() && len(g.late) == 0 {
				break
			}
		}
		if g.bad == "" {
			g.bad = settles(g.world, correct, map[[16]byte]bool{})
		}
		if g.bad != "" {
			t.Fatalf("seed %d: %s\n%s\n  %s", seed, g.bad, g.String(), strings.Join(g.log[max(0, len(g.log)-60):], "\n  "))
		}
		ends[g.r.State]++
	}
	t.Log(ends)
	for _, s := range []State{Aborted, Released, RolledBack} {
		if ends[s] == 0 && !testing.Short() {
			t.Errorf("no run ended %s: the test does not try it", s)
		}
	}
}
