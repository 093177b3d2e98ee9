package report

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
)

// The shape of a curve's panel.
const (
	curveLeft   = 76 * pixel
	curveWidth  = 572 * pixel
	curveHeight = 190 * pixel
	curveZero   = 44 * pixel // from the place of 0 to where ratios begin
	curveTable  = curveLeft + curveWidth + 30*pixel
	curveHead   = 72 * pixel
)

// panelsMax is how many cohorts have a panel of their own.
const panelsMax = 4

// curvePanel is one cumulative distribution for each run.
type curvePanel struct {
	head  string
	about string
	waits [][]time.Duration // sorted, by run
}

// Waits draws how long jobs waited: for each cohort, which part of its jobs had started within which time, a curve for each run. The higher and
// the further left a curve is, the shorter the waits. Where there are too many cohorts for that, it draws all jobs, and all tenants by their p95.
func Waits(runs []*sim.Run) []byte {
	p := &picture{width: pictureWidth}
	title := scenarios(runs) + ": how long jobs wait"
	about := "The further left a curve, the shorter the waits. The dot is the 95th percentile."
	p.text(curveLeft-52*pixel, 32*pixel, "title", anchorStart, title)
	p.text(curveLeft-52*pixel, 54*pixel, "soft", anchorStart, about)
	y := curveHead
	panels := curvePanels(runs)
	axis := waitAxis(panels)
	var facts []string
	for i := range panels {
		y = p.curves(&panels[i], runs, axis, y)
		for k, run := range runs {
			q := ofSorted(panels[i].waits[k])
			facts = append(facts, panels[i].head+" under "+plain(run.Policy)+": "+span(q.P50)+" at p50, "+span(q.P95)+" at p95, "+span(q.Max)+" at most.")
		}
	}
	p.height = y
	return p.drawing(title, spaced(about+" "+strings.Join(facts, " ")))
}

// curvePanels chooses the panels.
func curvePanels(runs []*sim.Run) []curvePanel {
	c := newCast(runs, Cohort)
	if c.others > 0 || len(c.names) > panelsMax {
		all := curvePanel{head: "all jobs", about: "part of all jobs that had started within the time"}
		worst := curvePanel{head: "tenants by their p95 wait", about: "part of the tenants whose p95 is within the time"}
		for _, run := range runs {
			all.waits = append(all.waits, waitsOf(run, func(*sim.Job) bool { return true }))
			worst.waits = append(worst.waits, tenantWaits(run))
		}
		return []curvePanel{all, worst}
	}
	var out []curvePanel
	for _, name := range slices.Backward(c.names) { // those with the least work first: their waits matter most
		panel := curvePanel{head: cut(plain(name), legendRunesMax), about: "part of its jobs that had started within the time"}
		for _, run := range runs {
			panel.waits = append(panel.waits, waitsOf(run, func(j *sim.Job) bool { return Cohort(j) == name }))
		}
		out = append(out, panel)
	}
	return out
}

func waitsOf(run *sim.Run, in func(*sim.Job) bool) []time.Duration {
	var waits []time.Duration
	for i := range run.Records {
		if r := &run.Records[i]; r.State == sim.StateCompleted && in(r.Job) {
			waits = append(waits, r.Wait())
		}
	}
	slices.Sort(waits)
	return waits
}

func tenantWaits(run *sim.Run) []time.Duration {
	var waits []time.Duration
	for _, g := range groups(run.Records, Tenant) {
		if g.Completed > 0 {
			waits = append(waits, g.Wait.P95)
		}
	}
	slices.Sort(waits)
	return waits
}

// waitAxis returns an axis that all waits of all panels fit on.
func waitAxis(panels []curvePanel) *logAxis {
	a := &logAxis{lo: time.Millisecond, hi: 10 * time.Millisecond, length: curveWidth}
	least, most := time.Duration(0), time.Duration(0)
	for _, p := range panels {
		for _, waits := range p.waits {
			at, _ := slices.BinarySearch(waits, 1)
			if at > 0 {
				a.zero = curveZero
			}
			if at < len(waits) && (least == 0 || waits[at] < least) {
				least = waits[at]
			}
			if len(waits) > 0 {
				most = max(most, waits[len(waits)-1])
			}
		}
	}
	if most > 0 {
		a.lo, a.hi = roundDown(least), roundUp(most+1)
	}
	return a
}

// pen is how a policy's line looks, the same in every picture.
type pen struct {
	colour int
	dash   string // tells it apart without colour
}

func penOf(policy string, i int) pen {
	base, _, _ := strings.Cut(policy, ":")
	switch base {
	case sim.PolicyFairlead:
		return pen{colour: 1}
	case sim.PolicyFIFO:
		return pen{6, "10 4"}
	case sim.PolicyRR:
		return pen{5, "6 3 2 3"}
	case sim.PolicyCappedRR:
		return pen{0, "2 4"}
	case sim.PolicyDRR:
		return pen{2, "4 3"}
	default:
		return []pen{{colour: 3}, {4, "8 3"}, {7, "3 3"}}[i%3]
	}
}

// curves draws one panel from y on and returns where it ends.
func (p *picture) curves(panel *curvePanel, runs []*sim.Run, axis *logAxis, y px) px {
	p.text(curveLeft, y+14*pixel, "head", anchorStart, panel.head)
	p.text(curveLeft+curveWidth, y+14*pixel, "soft small", anchorEnd, panel.about)
	y += panelHead
	p.rect(curveLeft, y, curveWidth, curveHeight, "panel")
	p.curveGrid(axis, y)
	for i, run := range runs {
		p.curve(panel.waits[i], axis, y, penOf(run.Policy, i))
	}
	for i, head := range []string{"p50", "p95", "max"} {
		p.text(curveTable+px(164+i*66)*pixel, y+14*pixel, "soft small", anchorEnd, head)
	}
	for i, run := range runs {
		at := y + px(36+i*24)*pixel
		q := ofSorted(panel.waits[i])
		pen := penOf(run.Policy, i)
		p.stroke("line l"+number(pen.colour), "M"+curveTable.String()+" "+(at-4*pixel).String()+"h"+(24*pixel).String(), pen.dash)
		p.text(curveTable+30*pixel, at, "small", anchorStart, cut(plain(run.Policy), 13))
		for k, d := range []time.Duration{q.P50, q.P95, q.Max} {
			class := "small"
			if k == 1 {
				class = "small bold"
			}
			p.text(curveTable+px(164+k*66)*pixel, at, class, anchorEnd, span(d))
		}
	}
	return y + curveHeight + 44*pixel
}

// ofSorted returns the percentiles of sorted durations.
func ofSorted(sorted []time.Duration) Quantiles {
	return Quantiles{P50: percentile(sorted, 50), P95: percentile(sorted, 95), P99: percentile(sorted, 99), Max: percentile(sorted, 100)}
}

// curveGrid draws the axes of a panel whose top is at y.
func (p *picture) curveGrid(axis *logAxis, y px) {
	floor := y + curveHeight
	for part := range 5 {
		at := floor - scaled(int64(part), 4, curveHeight)
		p.line(curveLeft, at, curveLeft+curveWidth, at, "grid")
		p.text(curveLeft-8*pixel, at+4*pixel, "soft small", anchorEnd, number(part*25)+" %")
	}
	var minor strings.Builder
	for _, m := range axis.marks() {
		x := curveLeft + axis.place(m.at)
		minor.WriteString("M" + x.String() + " " + y.String() + "v" + curveHeight.String())
		if m.label != "" {
			p.text(x, floor+17*pixel, "soft small", anchorMiddle, m.label)
		}
	}
	p.path("grid", minor.String(), "")
	if axis.zero > 0 {
		p.text(curveLeft, floor+17*pixel, "soft small", anchorMiddle, "0")
		// The break of the axis between 0 and where ratios begin.
		gap := curveLeft + axis.zero/2
		p.stroke("axis", "M"+(gap-5*pixel).String()+" "+(floor+4*pixel).String()+"l4 -8M"+(gap+pixel).String()+" "+(floor+4*pixel).String()+"l4 -8", "")
	}
	p.text(curveLeft+curveWidth, floor+33*pixel, "soft small", anchorEnd, "wait, on a logarithmic scale")
}

// curve draws which part of sorted waits is at most how long.
func (p *picture) curve(waits []time.Duration, axis *logAxis, y px, look pen) {
	n := len(waits)
	if n == 0 {
		return
	}
	floor := y + curveHeight
	var d strings.Builder
	d.WriteString("M" + (curveLeft + axis.place(waits[0])).String() + " " + floor.String())
	lastX := px(-1)
	for i := 0; i < n; {
		x := axis.place(waits[i])
		for i < n && axis.place(waits[i])/(pixel/2) == x/(pixel/2) { // what falls together is one step
			i++
		}
		if lastX >= 0 {
			d.WriteString("H" + (curveLeft + x).String())
		}
		d.WriteString("V" + (floor - scaled(int64(i), int64(n), curveHeight)).String())
		lastX = x
	}
	p.stroke("line l"+number(look.colour), d.String(), look.dash)
	at := rank(95, n)
	x, up := curveLeft+axis.place(waits[at-1]), scaled(int64(at), int64(n), curveHeight)
	p.body.WriteString(`<circle class="f` + number(look.colour) + `" cx="` + x.String() + `" cy="` + (floor - up).String() + `" r="5"/>` + "\n")
}

// stroke draws a line with a pattern.
func (p *picture) stroke(class, d, dash string) {
	p.body.WriteString(`<path class="` + class + `" d="` + d + `"`)
	if dash != "" {
		p.body.WriteString(` stroke-dasharray="` + dash + `"`)
	}
	p.body.WriteString("/>\n")
}
