package report

import (
	"fmt"
	"strings"
	"time"
)

// reading says in words what the table says.
func (r *Report) reading() string {
	var sentences []string
	if light, heavy, ok := r.runs[0].story(); ok {
		sentences = r.storyReading(light.Name, heavy.Name)
	} else {
		sentences = r.plainReading()
	}
	return strings.Join(append(sentences, r.unfinishedReading()...), " ")
}

// told is a run of a story.
type told struct {
	*Summary
	light, heavy *Group
}

// storyReading is about a light and a heavy cohort: who protects the one, and what the other pays for it.
func (r *Report) storyReading(light, heavy string) []string {
	var runs []told
	for _, s := range r.runs {
		if l, h := find(s.Cohorts, light), find(s.Cohorts, heavy); l != nil && h != nil && l.Completed > 0 && h.Completed > 0 {
			runs = append(runs, told{s, l, h})
		}
	}
	if len(runs) == 0 {
		return nil
	}
	lightName, heavyName := plain(light), plain(heavy)
	if len(runs) == 1 {
		t := runs[0]
		s := fmt.Sprintf("A job of %s waits at most %s", lightName, span(t.light.Wait.Max))
		if t.light.Wait.P95 != t.light.Wait.Max {
			s += fmt.Sprintf(", and %s at p95", span(t.light.Wait.P95))
		}
		return []string{fmt.Sprintf("%s; %s is done after %s, and the slots are busy %s of the time.", s, heavyName, span(t.heavy.Finished),
			percent(t.Utilisation))}
	}
	best, worst := extremes(runs)
	if best.light.Wait.P95 == worst.light.Wait.P95 {
		return []string{fmt.Sprintf("A job of %s waits %s at p95 whatever the policy.", lightName, span(best.light.Wait.P95))}
	}
	s := fmt.Sprintf("Under %s a job of %s waits %s at p95, under %s %s", plain(best.Policy), lightName, span(best.light.Wait.P95), plain(worst.Policy),
		span(worst.light.Wait.P95))
	if best.light.Wait.P95 > 0 && worst.light.Wait.P95 >= 2*best.light.Wait.P95 {
		s += fmt.Sprintf(", %s as long", times(worst.light.Wait.P95, best.light.Wait.P95))
	}
	sentences := []string{s + "; " + heavyPays(heavyName, best.heavy.Finished, worst.heavy.Finished) + "."}
	return append(sentences, wasteful(runs, heavyName)...)
}

// extremes returns the run in which the light cohort waits least, of several the one that is done with the heavy cohort first, and the run in which
// it waits longest.
func extremes(runs []told) (best, worst told) {
	best, worst = runs[0], runs[0]
	for _, t := range runs[1:] {
		b, w := best.light.Wait.P95, t.light.Wait.P95
		if w < b || w == b && t.heavy.Finished < best.heavy.Finished {
			best = t
		}
		if w > worst.light.Wait.P95 {
			worst = t
		}
	}
	return best, worst
}

// heavyPays says what the heavy cohort pays for the light one's waits.
func heavyPays(name string, best, worst time.Duration) string {
	switch {
	case best == worst:
		return fmt.Sprintf("%s is done at the same time, after %s", name, span(best))
	case best < worst:
		return fmt.Sprintf("%s is done sooner as well, after %s instead of %s", name, span(best), span(worst))
	case best >= 2*worst:
		return fmt.Sprintf("for that %s takes %s as long, %s instead of %s", name, times(best, worst), span(best), span(worst))
	default:
		return fmt.Sprintf("for that %s takes %.1f"+nb+"%% longer, %s instead of %s", name, 100*(float64(best)/float64(worst)-1), span(best), span(worst))
	}
}

// wasteMin is from how many percent of the slots' time on a difference between policies is worth a sentence.
const wasteMin = 10

// wasteful names the policies that buy their waits with idle slots.
func wasteful(runs []told, heavy string) []string {
	most := 0.0
	for _, t := range runs {
		most = max(most, t.Utilisation)
	}
	var out []string
	for _, t := range runs {
		if most-t.Utilisation >= wasteMin {
			out = append(out, fmt.Sprintf("%s leaves %.0f"+nb+"%% of the slots' time unused, and %s takes %s.", plain(t.Policy), 100-t.Utilisation,
				heavy, span(t.heavy.Finished)))
		}
	}
	return out
}

// plainReading is about whatever is no story of two cohorts: whom each policy makes wait less than the first does, and whom longer. Tenants are
// counted, not averaged: that is what a policy does to somebody.
func (r *Report) plainReading() []string {
	first := r.runs[0]
	if len(r.runs) == 1 || len(first.Tenants) < 2 || first.All.Completed == 0 {
		return nil
	}
	var out []string
	for _, s := range r.runs[1:] {
		less, longer := 0, 0
		for i := range s.Tenants {
			if before := find(first.Tenants, s.Tenants[i].Name); before != nil {
				switch d := s.Tenants[i].Wait.P95 - before.Wait.P95; {
				case d < 0:
					less++
				case d > 0:
					longer++
				}
			}
		}
		if less+longer == 0 {
			out = append(out, fmt.Sprintf("Under %s every tenant waits as long at p95 as under %s.", plain(s.Policy), plain(first.Policy)))
			continue
		}
		w, before := worstFirst(s.Tenants)[0], worstFirst(first.Tenants)[0]
		out = append(out, fmt.Sprintf(
			"Under %s %s of %s less at p95 than under %s, and %s longer; the longest of these waits is %s (%s) instead of %s (%s).",
			plain(s.Policy), number(less), verb(len(first.Tenants), "tenant", "waits", "wait"), plain(first.Policy), number(longer),
			span(w.Wait.P95), plain(w.Name), span(before.Wait.P95), plain(before.Name),
		))
	}
	return out
}

// unfinishedReading warns of waits that are not in the figures.
func (r *Report) unfinishedReading() []string {
	var which []string
	for _, s := range r.runs {
		if n := s.All.Waiting; n > 0 {
			which = append(which, fmt.Sprintf("%s under %s", number(n), plain(s.Policy)))
		}
	}
	if len(which) == 0 {
		return nil
	}
	return []string{"Jobs that had not started when the simulation ended are in no wait: " + listed(which) + "."}
}

// objective shows both views of the objective.
func (r *Report) objective() string {
	views := make([]*View, len(r.runs))
	g := &grid{columns: []column{
		{head: "POLICY", left: true},
		{head: "P99", over: "all work"},
		{head: "IN TIME", over: "all work"},
		{head: "OBJECTIVE", over: "all work", left: true},
		{head: "IN BREACH", over: "tenants"},
		{head: "OBJECTIVE", over: "tenants", left: true},
		{head: "WORST P99", over: "tenants"},
		{head: "TENANT", over: "tenants", left: true},
	}}
	verdict := map[bool]string{true: "met", false: "MISSED"}
	for i, s := range r.runs {
		v := Look(s, r.o.Objective)
		views[i] = v
		cells := []string{
			plain(s.Policy), span(v.Work.P99), percent(float64(v.Work.percent())), verdict[!v.Work.Late],
			fmt.Sprintf("%s of %s", number(len(v.Breaches)), number(v.Tenants)), verdict[v.Met()], "-", "-",
		}
		if len(v.Breaches) > 0 {
			cells[6], cells[7] = v.Breaches[0].p99(), cut(plain(v.Breaches[0].Name), nameRunesMax)
		}
		g.add(cells...)
	}
	head := fmt.Sprintf("Objective: %d %% of jobs done within %s of their arrival\n\n", ObjectivePercent, span(r.o.Objective))
	return spaced(head) + g.String() + r.breaches(views)
}

func (s *Standing) p99() string {
	if s.P99 == 0 {
		return "-"
	}
	return span(s.P99)
}

// namesMax is how many tenants in breach are named.
const namesMax = 12

// breaches names the tenants in breach under each policy, and says where the view of all work hides them.
func (r *Report) breaches(views []*View) string {
	var b strings.Builder
	for i, v := range views {
		if v.Met() {
			continue
		}
		var names []string
		for k := range v.Breaches {
			if k == namesMax && !r.o.Wide {
				names = append(names, number(len(v.Breaches)-k)+" more")
				break
			}
			s := &v.Breaches[k]
			names = append(names, plain(s.Name)+nb+s.p99())
		}
		lead := "In breach under " + plain(r.runs[i].Policy) + ", worst p99 first"
		if !v.Work.Late {
			lead += ", and hidden by the view of all work"
		}
		b.WriteString("\n" + wrap(lead+": "+listed(names)+".", r.width()) + "\n")
	}
	return b.String()
}
