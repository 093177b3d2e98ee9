package fairness

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// want checks a relation between something measured and a bound, and says nothing when it holds.
func (s *script) want(a args) string {
	s.t.Helper()
	if len(a.words) != 5 {
		s.t.Fatalf("%v: want WHAT OF <= BOUND", a.words)
	}
	what, of, relation, bound := a.word(1), a.word(2), a.word(3), a.word(4)
	var got, limit float64
	show := func(v float64) string { return fmt.Sprintf("%.4g", v) }
	switch what {
	case "wait":
		p := s.jobs[of]
		if p == nil {
			s.t.Fatalf("no job %q", of)
		}
		if p.began == 0 {
			return fmt.Sprintf("want wait %s: it has not started", of)
		}
		got, limit = float64(p.began.Sub(p.at)), float64(duration(s.t, bound))
		show = func(v float64) string { return time.Duration(v).String() }
	case "time":
		got, limit = float64(s.time(s.matcher(of))), float64(duration(s.t, bound))
		show = func(v float64) string { return time.Duration(v).String() }
	default:
		got, limit = s.measure(what, of), float64(integer(s.t, bound))
	}
	holds := false
	switch relation {
	case "<=":
		holds = got <= limit
	case ">=":
		holds = got >= limit
	case "is":
		holds = got == limit
	default:
		s.t.Fatalf("no relation %q", relation)
	}
	if holds {
		return ""
	}
	return fmt.Sprintf("want %s %s %s %s: it is %s", what, of, relation, show(limit), show(got))
}

func (s *script) measure(what, of string) float64 {
	s.t.Helper()
	r := s.r
	match := s.matcher(of)
	switch what {
	case "held":
		class, err := cell.ParseClass("class", of)
		if err != nil {
			s.t.Fatal(err)
		}
		return float64(r.lead.Use(class).Used)
	case "running":
		return float64(r.running(match))
	case "waits", "succeeded":
		n := 0
		for _, p := range r.order {
			j := r.state.Job(p.id)
			if j == nil || !match(p) {
				continue
			}
			if what == "succeeded" && j.State == engine.Succeeded || what == "waits" && (j.State == engine.Ready || j.State == engine.Delayed) {
				n++
			}
		}
		return float64(n)
	case "count":
		n := 0
		for _, x := range r.starts[s.shown:] {
			if match(x.plan) {
				n++
			}
		}
		return float64(n)
	case "most":
		return float64(s.most(match))
	case "share":
		return 100 * float64(s.time(match)) / max(1, float64(s.time(func(*plan) bool { return true })))
	default:
		s.t.Fatalf("nothing is called %q", what)
		return 0
	}
}

// matcher tells the jobs of a tenant, or of TENANT/key, or in TENANT:class.
func (s *script) matcher(of string) func(*plan) bool {
	tenant, key, _ := strings.Cut(of, "/")
	id := cell.TenantID(s.name(tenant))
	return func(p *plan) bool {
		return p.tenant == id &&
			(key == "" || slices.ContainsFunc(p.spec.Keys, func(k cell.ConcurrencyKey) bool { return k.Key == key }))
	}
}

// time returns the slot time of the matching attempts in the last run.
func (s *script) time(match func(*plan) bool) time.Duration {
	var sum time.Duration
	for _, x := range s.r.starts {
		if match(x.plan) {
			sum += s.r.ran(x, s.since, s.r.now)
		}
	}
	return sum
}

// ran returns how long an attempt ran between two times.
func (r *rig) ran(x start, from, to cell.Instant) time.Duration {
	end := x.end
	if end == 0 {
		end = r.now
	}
	return max(0, min(end, to).Sub(max(x.at, from)))
}

// most returns how many of the matching attempts ran at once at most, since the last run began.
func (s *script) most(match func(*plan) bool) int {
	type change struct {
		at cell.Instant
		by int
	}
	var changes []change
	for _, x := range s.r.starts {
		if !match(x.plan) || x.end != 0 && x.end <= s.since {
			continue
		}
		changes = append(changes, change{max(x.at, s.since), 1})
		if x.end != 0 {
			changes = append(changes, change{x.end, -1})
		}
	}
	// What ends at a time ends before what begins then.
	slices.SortStableFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(min(1, max(-1, a.at-b.at)))
		}
		return a.by - b.by
	})
	n, most := 0, 0
	for _, c := range changes {
		n += c.by
		most = max(most, n)
	}
	return most
}
