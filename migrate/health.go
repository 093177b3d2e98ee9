package migrate

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/cell"
)

const (
	// errorsLeast is how many more attempts than at the source have to end badly in a window to count: of few attempts one is many points.
	errorsLeast = 5
	// errorsChance is how many standard deviations above the source's share that of the target has to be: a tenant whose jobs often fail has more of them
	// fail now, and fewer then, wherever it is.
	errorsChance = 3
	// busierPercent is how many jobs may start at the target, in hundredths of those at the source: where there are more, waiting longer is what the
	// tenant does and not the cell.
	busierPercent = 125
	percentAll    = 100
)

// compared is what the target does with a class, and what the source did with it.
type compared struct {
	class          cell.Class
	source, target cell.ID
	before, now    Health
	// part is how much of what it is promised the tenant has at the target, in thousandths: while its classes are apart half of it, and then a class may do
	// so much worse than before.
	part int64
}

// healthGates compares how the target does with a class with how the source did before it was fenced. What is not known, or known of too little, warns: it is
// neither good nor bad.
func (d *turn) healthGates(c cell.Class) []Gate {
	part, _ := Shares(d.r)
	x := compared{
		class: c, source: d.r.Source, target: d.r.Target, before: d.seen(d.r.Source, c).Health, now: d.seen(d.r.Target, c).Health, part: int64(max(part, 1)),
	}
	return []Gate{x.errors(d.cfg), x.start(d.cfg), x.rate(d.cfg)}
}

// unknown returns a gate that does not judge, because one of the two cells does not know what it did in enough windows; false where both do.
func (x *compared) unknown(name string) (Gate, bool) {
	for _, t := range x.told() {
		if t.of.Known < HealthWindows {
			return warn(name, "too few windows of %s to judge (%d of %d at %s)", x.class, t.of.Known, HealthWindows, t.by), true
		}
	}
	if x.before.Window != x.now.Window {
		return warn(name, "%s and %s tell of windows of %s and %s, which are not compared", x.source, x.target, x.before.Window, x.now.Window), true
	}
	return Gate{}, false
}

// few is unknown for what has to be counted often enough in each window.
func (x *compared) few(name, what string, need int64, count func(HealthWindow) int64) (Gate, bool) {
	if g, unknown := x.unknown(name); unknown {
		return g, true
	}
	for _, t := range x.told() {
		for _, w := range t.of.Windows {
			if n := count(w); n < need {
				return warn(name, "too few %s of %s to judge (%d of %d in %s at %s)", what, x.class, n, need, t.of.Window, t.by), true
			}
		}
	}
	return Gate{}, false
}

// told is what a cell says of a class.
type told struct {
	by cell.ID
	of *Health
}

func (x *compared) told() [2]told { return [2]told{{x.target, &x.now}, {x.source, &x.before}} }

// sum adds up what was counted in both windows.
func (h *Health) sum(count func(HealthWindow) int64) int64 {
	var n int64
	for _, w := range h.Windows {
		n += count(w)
	}
	return n
}

// all reports whether it is so in every window.
func (h *Health) all(is func(HealthWindow) bool) bool {
	for _, w := range h.Windows {
		if !is(w) {
			return false
		}
	}
	return true
}

// errors compares how many attempts ended badly.
func (x *compared) errors(cfg Config) Gate {
	ended := func(w HealthWindow) int64 { return w.Ended }
	if g, few := x.few(GateErrors, "attempts", cfg.AttemptsMin, ended); few {
		return g
	}
	attempts := float64(x.before.sum(ended))
	share := float64(x.before.sum(func(w HealthWindow) int64 { return w.EndedBadly })) / attempts
	worse := x.now.all(func(w HealthWindow) bool {
		n := float64(w.Ended)
		chance := errorsChance * math.Sqrt(share*(1-share)*(1/n+1/attempts))
		more := float64(w.EndedBadly) - share*n
		return more > n*max(float64(cfg.ErrorsMax)/Whole, chance) && more >= errorsLeast
	})
	percent := func(w HealthWindow) float64 { return percentAll * float64(w.EndedBadly) / float64(w.Ended) }
	w := x.now.Windows
	return gate(GateErrors, !worse, "%.1f and %.1f %% of the attempts of %s ended badly at %s in its last two windows of %s; it was %.1f %%",
		percent(w[1]), percent(w[0]), x.class, x.target, x.now.Window, percentAll*share)
}

// start compares how long jobs were ready until they started. Where some waited all the time in both cells that says how many were submitted.
func (x *compared) start(cfg Config) Gate {
	if g, unknown := x.unknown(GateStart); unknown {
		return g
	}
	if x.waited(cfg) {
		return gate(GateStart, true, "jobs of %s waited all the time in both cells: how often they are granted is compared", x.class)
	}
	if g, few := x.few(GateStart, "starts", cfg.StartsMin, func(w HealthWindow) int64 { return w.Waits }); few {
		return g
	}
	before := max(x.before.Windows[0].WaitP99, x.before.Windows[1].WaitP99)
	worse := x.now.all(func(w HealthWindow) bool {
		return w.WaitP99 > before+cfg.StartSlack && float64(w.WaitP99)*float64(x.part)/Whole > float64(before)*float64(cfg.StartPercentMax)/percentAll
	})
	w := x.now.Windows
	g := gate(GateStart, !worse, "jobs of %s waited %s and %s (p99) for their start at %s in its last two windows of %s; it was %s",
		x.class, seconds(w[1].WaitP99), seconds(w[0].WaitP99), x.target, x.now.Window, seconds(before))
	if then, now := x.before.sum(started), x.now.sum(started); worse && now*percentAll > then*busierPercent {
		g.Verdict = Warn
		g.Evidence += fmt.Sprintf(", with %d starts instead of %d", now, then)
	}
	return g
}

func started(w HealthWindow) int64 { return w.Started }

// waited reports whether jobs were ready all the time in both cells: then how often they are granted is the cells' doing.
func (x *compared) waited(cfg Config) bool {
	waiting := func(w HealthWindow) bool { return w.ReadyLeast >= cfg.ReadyMin }
	return x.before.all(waiting) && x.now.all(waiting)
}

// rate compares how often jobs were granted.
func (x *compared) rate(cfg Config) Gate {
	if g, unknown := x.unknown(GateRate); unknown {
		return g
	}
	if !x.waited(cfg) {
		return gate(GateRate, true, "jobs of %s did not wait all the time in both cells: they are granted as often as they come", x.class)
	}
	if then := x.before.sum(started); then < HealthWindows*cfg.StartsMin {
		return warn(GateRate, "too few starts of %s to judge (%d of %d at %s)", x.class, then, HealthWindows*cfg.StartsMin, x.source)
	}
	before := perSecond(x.before.sum(started), HealthWindows*x.before.Window.Seconds())
	rate := func(w HealthWindow) float64 { return perSecond(w.Started, x.now.Window.Seconds()) }
	slower := x.now.all(func(w HealthWindow) bool {
		return rate(w) < before*float64(cfg.RatePercentMin)/percentAll*float64(x.part)/Whole
	})
	w := x.now.Windows
	return gate(GateRate, !slower, "%s was granted %.1f and %.1f times a second at %s in its last two windows of %s; it was %.1f",
		x.class, rate(w[1]), rate(w[0]), x.target, x.now.Window, before)
}

func perSecond(n int64, seconds float64) float64 { return float64(n) / seconds }
