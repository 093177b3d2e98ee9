package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
)

// Window is a part of a run's time; To of 0 is its end.
type Window struct{ From, To time.Duration }

// The shape of a timeline.
const (
	pictureWidth = 1000 * pixel
	marginLeft   = 108 * pixel
	marginRight  = 80 * pixel
	plotWidth    = pictureWidth - marginLeft - marginRight
	headHeight   = 92 * pixel // title, what it is about, legend
	panelHead    = 26 * pixel
	panelGap     = 22 * pixel
	axisHeight   = 46 * pixel
	slotsHeight  = 128 * pixel
	stripHeight  = 26 * pixel
	stripGap     = 6 * pixel
)

// What is drawn as bars, one for each job: beyond that they could not be told apart, and the slots are drawn as an area.
const (
	barSlotsMax = 32
	barsMax     = 6000
	barWidthMin = 75 // hundredths of a pixel, on average
)

// stripsMax is for how many cohorts there is a strip of jobs that wait.
const stripsMax = 3

// timeline is a picture of several runs, one below the other on the same axis.
type timeline struct {
	*picture
	runs     []*sim.Run
	sums     []*Summary // of runs
	cast     *cast
	from, to time.Duration
	part     bool // not all of the time is shown
	bars     bool // jobs can be told apart as bars
	y        px   // where the next part begins
}

func newTimeline(runs []*sim.Run, name func(*sim.Job) string, w Window) *timeline {
	t := &timeline{picture: &picture{width: pictureWidth}, runs: runs, cast: newCast(runs, name), from: max(0, w.From), to: w.To}
	for _, run := range runs {
		t.sums = append(t.sums, Summarise(run))
	}
	end := t.from + time.Millisecond
	for _, run := range runs {
		end = max(end, run.End)
	}
	if t.to <= t.from {
		t.to = end
	}
	t.part = t.from > 0 || t.to < end
	t.bars = t.apart()
	return t
}

// Timeline draws who held which slot when, and below that how many jobs of each cohort waited: one panel for each run, all on the same axis of time,
// so that policies can be compared by eye. Where jobs are too short or slots too many to be seen, the slots are an area: how many each cohort held.
func Timeline(runs []*sim.Run, w Window) []byte {
	t := newTimeline(runs, Cohort, w)
	title := scenarios(runs) + ": who holds the slots"
	about := "Each bar is a job on its slot; below, the jobs that wait."
	if !t.bars {
		about = "How many slots each holds; below, the jobs that wait."
	}
	t.head(title, about)
	for i, run := range t.runs {
		t.panel(run, t.sums[i])
	}
	t.axis()
	return t.drawing(title, about+" "+strings.Join(t.facts(facts), " "))
}

// Shares draws how much each tenant held over time, as areas on top of each other, one panel for each run.
func Shares(runs []*sim.Run, w Window) []byte {
	t := newTimeline(runs, Tenant, w)
	title := scenarios(runs) + ": how many slots each tenant holds"
	about := "The higher an area, the more slots its tenant holds at that time."
	t.head(title, about)
	for i, run := range t.runs {
		t.panelHead(t.sums[i], shareFacts(t.sums[i]))
		t.held(run)
		t.y += panelGap
	}
	t.axis()
	return t.drawing(title, about+" "+strings.Join(t.facts(shareFacts), " "))
}

// shareFacts says who had the largest shares of a run.
func shareFacts(s *Summary) string {
	groups := slices.Clone(s.Tenants)
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(b.Share, a.Share) })
	var parts []string
	for _, g := range groups[:min(len(groups), sharesMax)] {
		parts = append(parts, cut(plain(g.Name), factRunesMax)+" "+percent(100*g.Share))
	}
	if more := len(groups) - len(parts); more > 0 {
		parts = append(parts, number(more)+" more")
	}
	return strings.Join(parts, " · ")
}

// sharesMax is how many tenants' shares the head of a panel shows.
const sharesMax = 4

// scenarios names what was simulated.
func scenarios(runs []*sim.Run) string {
	var names []string
	for _, run := range runs {
		if n := plain(run.Scenario); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return cut(listed(names), titleRunesMax)
}

// titleRunesMax is how much of names a title shows.
const titleRunesMax = 48

func (t *timeline) head(title, about string) {
	t.text(marginLeft-84*pixel, 32*pixel, "title", anchorStart, title)
	if t.part {
		about += " Figures are of the whole run."
	}
	t.text(marginLeft-84*pixel, 54*pixel, "soft", anchorStart, about)
	t.y = headHeight + t.cast.legend(t.picture, marginLeft-84*pixel, 80*pixel)
}

// facts says in a sentence for each run what its panel shows.
func (t *timeline) facts(of func(*Summary) string) []string {
	var out []string
	for _, s := range t.sums {
		out = append(out, spaced(plain(s.Policy)+": "+of(s)+"."))
	}
	return out
}

// facts are the figures of a run that its picture is about.
func facts(s *Summary) string {
	busy := "slots " + percent(s.Utilisation) + " busy"
	light, heavy, ok := s.story()
	if !ok {
		return fmt.Sprintf("wait %s at p95, %s at most · %s", span(s.All.Wait.P95), span(s.All.Wait.Max), busy)
	}
	return fmt.Sprintf("%s: wait %s at p95, %s at most · %s: done after %s · %s", cut(plain(light.Name), factRunesMax), span(light.Wait.P95),
		span(light.Wait.Max), cut(plain(heavy.Name), factRunesMax), span(heavy.Finished), busy)
}

// factRunesMax is how much of a name the head of a panel shows.
const factRunesMax = 12

func (t *timeline) panelHead(s *Summary, facts string) {
	policy := cut(plain(s.Policy), policyRunesMax)
	t.text(marginLeft, t.y+14*pixel, "head", anchorStart, policy)
	t.text(pictureWidth-marginRight, t.y+14*pixel, "soft", anchorEnd, facts)
	t.y += panelHead
}

func (t *timeline) panel(run *sim.Run, s *Summary) {
	t.panelHead(s, facts(s))
	if t.bars {
		t.slots(run)
	} else {
		t.held(run)
	}
	if t.cast.places() <= stripsMax {
		for place := t.cast.places() - 1; place >= 0; place-- { // those with the least work first: their waits matter most
			t.waiting(run, place)
		}
	} else {
		t.waiting(run, everybody)
	}
	t.y += panelGap
}

// apart reports whether jobs can be told apart as bars, in all runs.
func (t *timeline) apart() bool {
	for _, run := range t.runs {
		n, width := 0, px(0)
		for i := range run.Records {
			if _, w, ok := t.place(&run.Records[i]); ok {
				n++
				width += w
			}
		}
		if run.Slots > barSlotsMax || n > barsMax || n > 0 && width/px(n) < barWidthMin {
			return false
		}
	}
	return true
}

// place returns where a job that ran stands in the window, and how wide it is.
func (t *timeline) place(r *sim.Record) (x, width px, ok bool) {
	if r.State != sim.StateCompleted && r.State != sim.StateRunning {
		return 0, 0, false
	}
	end := r.End
	if r.State == sim.StateRunning {
		end = t.to
	}
	return t.stretch(r.Start, end)
}

// stretch returns where a time stands in the window.
func (t *timeline) stretch(start, end time.Duration) (x, width px, ok bool) {
	start, end = max(start, t.from), min(end, t.to)
	if start >= end {
		return 0, 0, false
	}
	x = t.at(start)
	return x, t.at(end) - x, true
}

// at returns where an instant of the window stands.
func (t *timeline) at(d time.Duration) px {
	return scaled(int64(d-t.from), int64(t.to-t.from), plotWidth)
}

// slots draws a row for each slot and a bar for each job.
func (t *timeline) slots(run *sim.Run) {
	row := min(18*pixel, slotsHeight/px(max(1, run.Slots)))
	height := row * px(run.Slots)
	t.rect(marginLeft, t.y, plotWidth, height, "panel")
	paths := make([]strings.Builder, t.cast.places())
	taken := make([]strings.Builder, t.cast.places())
	draw := func(b []strings.Builder, j *sim.Job, slot int32, x, w px) {
		// A gap of half a pixel tells neighbours apart, where there is room for it.
		w = max(barWidthMin, w-pixel/2)
		b[t.cast.of(j)].WriteString(box(marginLeft+x, t.y+px(slot)*row+pixel/2, w, row-pixel))
	}
	for i := range run.Records {
		if x, w, ok := t.place(&run.Records[i]); ok {
			draw(paths, run.Records[i].Job, run.Records[i].Slot, x, w)
		}
	}
	for _, a := range run.Revoked {
		if x, w, ok := t.stretch(a.Start, a.End); ok {
			draw(taken, a.Job, a.Slot, x, w)
		}
	}
	for i := range paths {
		t.path(t.cast.class("f", i), paths[i].String(), t.cast.label(i))
		t.path(t.cast.class("f", i)+" faint", taken[i].String(), t.cast.label(i)+", taken back")
	}
	t.text(marginLeft-10*pixel, t.y+row/2+4*pixel, "soft small", anchorEnd, "slot 1")
	if run.Slots > 1 {
		t.text(marginLeft-10*pixel, t.y+height-row/2+4*pixel, "soft small", anchorEnd, number(run.Slots))
	}
	t.grid(height)
	t.y += height
}

// grid draws the axis's marks through a part of the picture.
func (t *timeline) grid(height px) {
	marks, _ := ticks(t.from, t.to, ticksMax)
	var d strings.Builder
	for _, m := range marks {
		d.WriteString("M" + (marginLeft + t.at(m.at)).String() + " " + t.y.String() + "v" + height.String())
	}
	t.path("grid", d.String(), "")
}

// ticksMax is how many marks an axis has at most.
const ticksMax = 11

// axis draws the axis of time below all panels, and ends the picture.
func (t *timeline) axis() {
	t.y -= panelGap
	marks, unit := ticks(t.from, t.to, ticksMax)
	t.line(marginLeft, t.y, marginLeft+plotWidth, t.y, "axis")
	for _, m := range marks {
		x := marginLeft + t.at(m.at)
		t.line(x, t.y, x, t.y+5*pixel, "axis")
		t.text(x, t.y+19*pixel, "soft small", anchorMiddle, m.label)
	}
	t.text(marginLeft+plotWidth, t.y+36*pixel, "soft small", anchorEnd, "time since the start, in "+unit)
	t.height = t.y + axisHeight
}
