package report

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
)

// Areas are drawn in steps of so many pixels: slots in longer ones, so that short jobs do not make an edge of teeth.
const (
	heldStep    = 4
	waitingStep = 2
)

// stepsOf is how many steps of some pixels a plot has.
func stepsOf(step int) int { return int(plotWidth/pixel) / step }

// held draws how many slots each place of the cast holds, on top of each other: the mean over each step.
func (t *timeline) held(run *sim.Run) {
	t.rect(marginLeft, t.y, plotWidth, slotsHeight, "panel")
	// In slot-time within each step, by place.
	sums := make([][]int64, t.cast.places())
	for i := range sums {
		sums[i] = make([]int64, stepsOf(heldStep)+1)
	}
	gather := newSpread(t, heldStep, sums)
	for i := range run.Records {
		r := &run.Records[i]
		switch r.State {
		case sim.StateCompleted:
			gather.add(t.cast.of(r.Job), r.Start, r.End)
		case sim.StateRunning:
			gather.add(t.cast.of(r.Job), r.Start, t.to)
		case sim.StateWaiting, sim.StateRejected, sim.StateExpired:
		}
	}
	for _, a := range run.Revoked {
		gather.add(t.cast.of(a.Job), a.Start, a.End)
	}
	gather.finish()
	bottom := make([]px, gather.steps)
	for place := range sums {
		top := make([]px, gather.steps)
		for c := range top {
			whole := int64(gather.edge(c+1)-gather.edge(c)) * int64(run.Slots)
			top[c] = min(slotsHeight, bottom[c]+scaled(sums[place][c], whole, slotsHeight))
		}
		t.path(t.cast.class("f", place), t.between(heldStep, bottom, top), t.cast.label(place))
		bottom = top
	}
	t.text(marginLeft-10*pixel, t.y+5*pixel, "soft small", anchorEnd, count(run.Slots, "slot"))
	t.text(marginLeft-10*pixel, t.y+slotsHeight+4*pixel, "soft small", anchorEnd, "0")
	t.grid(slotsHeight)
	t.y += slotsHeight
}

// between is the path of the area between two heights above the panel's floor, in steps of some pixels.
func (t *timeline) between(pixels int, bottom, top []px) string {
	var b strings.Builder
	floor := t.y + slotsHeight
	step := px(pixels) * pixel
	for c := 0; c < len(top); {
		if top[c] == bottom[c] {
			c++
			continue
		}
		first := c
		b.WriteString("M" + (marginLeft + px(c)*step).String() + " " + (floor - bottom[c]).String())
		for ; c < len(top) && top[c] > bottom[c]; c++ {
			if c == first || top[c] != top[c-1] {
				b.WriteString("V" + (floor - top[c]).String())
			}
			if c+1 == len(top) || top[c+1] != top[c] || top[c+1] <= bottom[c+1] {
				b.WriteString("H" + (marginLeft + px(c+1)*step).String())
			}
		}
		for k := c - 1; k >= first; k-- {
			if k == c-1 || bottom[k] != bottom[k+1] {
				b.WriteString("V" + (floor - bottom[k]).String())
			}
			if k == first || bottom[k-1] != bottom[k] {
				b.WriteString("H" + (marginLeft + px(k)*step).String())
			}
		}
		b.WriteByte('z')
	}
	return b.String()
}

// spread adds up stretches of time within steps of the window. A stretch costs the same however many steps it covers: whole steps are counted at
// their first and taken back after their last.
type spread struct {
	t     *timeline
	steps int
	sums  [][]int64
	whole [][]int64 // change in the number of stretches that cover a step wholly
}

func newSpread(t *timeline, step int, sums [][]int64) *spread {
	s := &spread{t: t, steps: stepsOf(step), sums: sums, whole: make([][]int64, len(sums))}
	for i := range s.whole {
		s.whole[i] = make([]int64, s.steps+1)
	}
	return s
}

// edge returns when step c begins.
func (s *spread) edge(c int) time.Duration {
	return s.t.from + time.Duration(scaled(int64(c), int64(s.steps), px(s.t.to-s.t.from)))
}

// column returns the step that an instant of the window is in.
func (s *spread) column(d time.Duration) int {
	c := int(scaled(int64(d-s.t.from), int64(s.t.to-s.t.from), px(s.steps)))
	for c > 0 && s.edge(c) > d {
		c--
	}
	for c < s.steps && s.edge(c+1) <= d {
		c++
	}
	return c
}

func (s *spread) add(place int, start, end time.Duration) {
	start, end = max(start, s.t.from), min(end, s.t.to)
	if start >= end {
		return
	}
	first, last := s.column(start), s.column(end)
	if first == last {
		s.sums[place][first] += int64(end - start)
		return
	}
	s.sums[place][first] += int64(s.edge(first+1) - start)
	s.whole[place][first+1]++
	s.whole[place][last]--
	s.sums[place][last] += int64(end - s.edge(last))
}

func (s *spread) finish() {
	for place := range s.sums {
		covering := int64(0)
		for c := range s.steps {
			covering += s.whole[place][c]
			s.sums[place][c] += covering * int64(s.edge(c+1)-s.edge(c))
		}
	}
}

// stripRunesMax is how much of a name there is room for beside a strip.
const stripRunesMax = 12

// everybody stands for all places of a cast together.
const everybody = -1

// waiting draws how many jobs of a place wait: the most within each step.
func (t *timeline) waiting(run *sim.Run, place int) {
	t.y += stripGap
	t.rect(marginLeft, t.y, plotWidth, stripHeight, "panel")
	most, peak := t.queue(run, place)
	top := make([]px, len(most))
	for c, n := range most {
		top[c] = scaled(n, peak, stripHeight-2*pixel)
		if n > 0 {
			top[c] = max(top[c], pixel)
		}
	}
	name, class := "jobs", "f8"
	if place != everybody {
		name, class = cut(t.cast.label(place), stripRunesMax), t.cast.class("f", place)
	}
	saved := t.y
	t.y += stripHeight - slotsHeight // between draws from the floor of the slots
	d := t.between(waitingStep, make([]px, len(top)), top)
	t.y = saved
	t.path(class, d, name+" waiting")
	t.text(marginLeft-10*pixel, t.y+11*pixel, "soft small", anchorEnd, name)
	t.text(marginLeft-10*pixel, t.y+24*pixel, "soft small", anchorEnd, "waiting")
	t.text(marginLeft+plotWidth+8*pixel, t.y+17*pixel, "soft small", anchorStart, "max "+short(peak))
	t.grid(stripHeight)
	t.y += stripHeight
}

// queue returns the most jobs that wait at once within each step, and over all.
func (t *timeline) queue(run *sim.Run, place int) (most []int64, peak int64) {
	come, gone := t.comings(run, place)
	s := newSpread(t, waitingStep, nil)
	most = make([]int64, s.steps)
	waiting, i, k := int64(0), 0, 0
	for c := range most {
		until := s.edge(c + 1)
		most[c] = waiting
		for i < len(come) && (come[i] < until || c == s.steps-1) {
			for k < len(gone) && gone[k] <= come[i] { // at an instant, whoever starts does so before the next who waits is counted
				waiting--
				k++
			}
			waiting++
			i++
			most[c] = max(most[c], waiting)
		}
		for k < len(gone) && gone[k] < until {
			waiting--
			k++
		}
		peak = max(peak, most[c])
	}
	return most, peak
}

// comings returns, each in order, when jobs of a place began to wait within the window and when they ceased to.
func (t *timeline) comings(run *sim.Run, place int) (come, gone []time.Duration) {
	wait := func(j *sim.Job, from, to time.Duration) {
		from = max(from, t.from)
		if place != everybody && t.cast.of(j) != place || from >= to || from >= t.to {
			return
		}
		come, gone = append(come, from), append(gone, to)
	}
	for i := range run.Records {
		r := &run.Records[i]
		switch r.State {
		case sim.StateCompleted, sim.StateRunning:
			wait(r.Job, r.Job.Arrival, r.Start)
		case sim.StateExpired:
			wait(r.Job, r.Job.Arrival, r.Job.Deadline)
		case sim.StateWaiting:
			wait(r.Job, r.Job.Arrival, t.to+1)
		case sim.StateRejected:
		}
	}
	for _, a := range run.Revoked { // it did not wait while it ran in vain
		if place == everybody || t.cast.of(a.Job) == place {
			gone, come = append(gone, max(a.Start, t.from)), append(come, max(a.End, t.from))
		}
	}
	slices.Sort(come)
	slices.Sort(gone)
	return come, gone
}
