package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// pattern is when a tenant's jobs come. One of the first five is set.
type pattern struct {
	at      []time.Duration
	every   time.Duration
	rate    float64 // per second
	poisson float64 // per second
	ramp    []float64

	from, until time.Duration
	jobs        int64 // at a time
}

// rateMax bounds the jobs per second of a pattern.
const rateMax = 1e6

func (l *loader) pattern(n *yaml.Node, path string) pattern {
	p := pattern{jobs: 1}
	kinds := 0
	count := func(read func(n *yaml.Node, path string)) func(n *yaml.Node, path string) {
		return func(n *yaml.Node, path string) {
			kinds++
			read(n, path)
		}
	}
	l.object(
		n, path,
		key{"at", count(func(n *yaml.Node, path string) {
			l.list(n, path, func(n *yaml.Node, path string) { p.at = append(p.at, l.duration(n, path)) })
		})},
		key{"every", count(func(n *yaml.Node, path string) {
			if p.every = l.duration(n, path); p.every == 0 {
				l.fault(n, path, "give a time above 0", "is 0")
			}
		})},
		key{"rate", count(func(n *yaml.Node, path string) { p.rate = l.decimal(n, path, 1e-6, rateMax) })},
		key{"poisson", count(func(n *yaml.Node, path string) { p.poisson = l.decimal(n, path, 1e-6, rateMax) })},
		key{"ramp", count(func(n *yaml.Node, path string) {
			l.list(n, path, func(n *yaml.Node, path string) { p.ramp = append(p.ramp, l.decimal(n, path, 0, rateMax)) })
			if len(p.ramp) != 2 || p.ramp[0]+p.ramp[1] <= 0 {
				l.fault(n, path, "write [10, 100], with one above 0", "is not two rates")
			}
		})},
		key{"from", func(n *yaml.Node, path string) { p.from = l.duration(n, path) }},
		key{"until", func(n *yaml.Node, path string) { p.until = l.duration(n, path) }},
		key{"jobs", func(n *yaml.Node, path string) { p.jobs = l.integer(n, path, 1, trace.JobsMax) }},
	)
	if kinds != 1 {
		l.fault(n, path, "use one of at, every, rate, poisson and ramp", "has %d patterns", kinds)
	}
	if len(p.at) == 0 && p.until <= p.from {
		l.fault(n, path, "give until, and from before it", "ends before it begins")
	}
	return p
}

// expected returns how many jobs the pattern makes on average.
func (p *pattern) expected() float64 {
	span := (p.until - p.from).Seconds()
	times := float64(len(p.at))
	switch {
	case p.every > 0:
		times = span / p.every.Seconds()
	case p.rate > 0:
		times = span * p.rate
	case p.poisson > 0:
		times = span * p.poisson
	case len(p.ramp) == 2:
		times = span * (p.ramp[0] + p.ramp[1]) / 2
	}
	return times * float64(p.jobs)
}

// generate appends when the pattern's jobs come. It returns a *cell.LimitError for more than most in all.
func (p *pattern) generate(out []come, tenant int, rng *rand.Rand, most int) ([]come, error) {
	if n := float64(len(out)) + p.expected(); n > float64(most) {
		return nil, &cell.LimitError{
			Limit: "scenario_jobs_max", Scope: cell.ScopeCell, Value: int64(min(n, math.MaxInt32)), Bound: trace.JobsMax,
			Remedy: "let fewer jobs come",
		}
	}
	add := func(at time.Duration) {
		for range p.jobs {
			out = append(out, come{at: at, tenant: tenant})
		}
	}
	span := p.until - p.from
	switch {
	case p.every > 0:
		for at := p.from; at < p.until; at += p.every {
			add(at)
		}
	case p.rate > 0:
		for i := 0; ; i++ {
			at := time.Duration(math.Round(float64(i) / p.rate * 1e9))
			if at >= span {
				break
			}
			add(p.from + at)
		}
	case p.poisson > 0:
		for at := rng.ExpFloat64() / p.poisson * 1e9; at < float64(span); at += rng.ExpFloat64() / p.poisson * 1e9 {
			add((p.from + time.Duration(at)).Round(time.Microsecond))
		}
	case len(p.ramp) == 2:
		for i := 0; ; i++ {
			at := rampAt(p.ramp[0], p.ramp[1], span.Seconds(), float64(i))
			if !(at < span.Seconds()) {
				break
			}
			add((p.from + time.Duration(at*1e9)).Round(time.Microsecond))
		}
	default:
		for _, at := range p.at {
			add(at)
		}
	}
	return out, nil
}

// rampAt returns the second at which n jobs have come, when the rate changes evenly from a to b over a span of seconds: the solution of
// a t + (b-a)/(2 span) t^2 = n, in the form that is exact for a = b too. It is not a number when so many never come.
func rampAt(a, b, span, n float64) float64 {
	if n == 0 {
		return 0
	}
	slope := (b - a) / span
	return 2 * n / (a + math.Sqrt(a*a+2*slope*n))
}

// value is a number that is fixed, or drawn job by job.
type value interface{ draw(rng *rand.Rand) float64 }

type fixed float64

func (f fixed) draw(*rand.Rand) float64 { return float64(f) }

type uniform struct{ from, to, step float64 }

func (u uniform) draw(rng *rand.Rand) float64 {
	return math.Round((u.from+(u.to-u.from)*rng.Float64())/u.step) * u.step
}

type lognormal struct{ median, sigma, step float64 }

func (l lognormal) draw(rng *rand.Rand) float64 {
	return max(l.step, math.Round(l.median*math.Exp(l.sigma*rng.NormFloat64())/l.step)*l.step)
}

// mix deals out a deck that has each value as often as it should come, and is shuffled whenever it is used up.
type mix struct {
	of     []int
	values []float64
	deck   []int32
}

func (m *mix) draw(rng *rand.Rand) float64 {
	if len(m.deck) == 0 {
		for i, n := range m.of {
			m.deck = append(m.deck, slices.Repeat([]int32{int32(i)}, n)...)
		}
		rng.Shuffle(len(m.deck), func(i, j int) { m.deck[i], m.deck[j] = m.deck[j], m.deck[i] })
	}
	top := m.deck[len(m.deck)-1]
	m.deck = m.deck[:len(m.deck)-1]
	return m.values[top]
}

// scale is how the numbers of a value are written, and to what they are rounded when they are drawn.
type scale struct {
	read func(n *yaml.Node, path string) float64
	step float64
}

// durations are written as times, and rounded to microseconds: then slot time is a whole number of micro-units.
func (l *loader) durations() scale {
	return scale{step: float64(time.Microsecond), read: func(n *yaml.Node, path string) float64 {
		d := l.duration(n, path)
		if d == 0 {
			l.fault(n, path, "give a time above 0", "is 0")
		}
		return float64(d)
	}}
}

func (l *loader) costs() scale {
	return scale{step: 1, read: func(n *yaml.Node, path string) float64 { return float64(l.integer(n, path, 1, int64(cell.CostMax))) }}
}

// value reads a value. other is what an object may say instead, and nil is returned then.
func (l *loader) value(n *yaml.Node, path string, s scale, other ...key) value {
	if n.Kind == yaml.ScalarNode {
		return fixed(s.read(n, path))
	}
	var v value
	l.object(
		n, path,
		append([]key{
			{"uniform", func(n *yaml.Node, path string) {
				var ends []float64
				l.list(n, path, func(n *yaml.Node, path string) { ends = append(ends, s.read(n, path)) })
				if len(ends) != 2 || ends[0] > ends[1] {
					l.fault(n, path, "write the least and the greatest in brackets", "is not two numbers in order")
					return
				}
				v = uniform{ends[0], ends[1], s.step}
			}},
			{"lognormal", func(n *yaml.Node, path string) {
				log := lognormal{step: s.step}
				l.object(
					n, path,
					key{"median", func(n *yaml.Node, path string) { log.median = s.read(n, path) }},
					key{"sigma", func(n *yaml.Node, path string) { log.sigma = l.decimal(n, path, 0, 5) }},
				)
				if log.median == 0 {
					l.fault(n, path, "give the median, and sigma of its logarithm", "has no median")
				}
				v = log
			}},
			{"mix", func(n *yaml.Node, path string) { v = l.mix(n, path, s) }},
		}, other...)...,
	)
	if len(n.Content) != 2 {
		l.fault(n, path, "give one value, or one way to draw it", "is not one value")
	}
	return v
}

func (l *loader) mix(n *yaml.Node, path string, s scale) value {
	m := &mix{}
	cards := int64(0)
	l.list(n, path, func(n *yaml.Node, path string) {
		of, v := int64(0), 0.0
		l.object(
			n, path,
			key{"of", func(n *yaml.Node, path string) { of = l.integer(n, path, 1, 10_000_000) }},
			key{"value", func(n *yaml.Node, path string) { v = s.read(n, path) }},
		)
		if of == 0 || v == 0 {
			l.fault(n, path, "write {of: 9, value: 41ms}", "has no of or no value")
		}
		cards += of
		m.of, m.values = append(m.of, int(of)), append(m.values, v)
	})
	if cards < 1 || cards > trace.JobsMax {
		l.fault(n, path, fmt.Sprintf("let them add up to 1 to %d", trace.JobsMax), "adds up to %d", cards)
	}
	return m
}
