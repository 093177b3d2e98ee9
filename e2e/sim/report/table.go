package report

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/e2e/sim"
)

// rowsMax is how many groups a table lists unless it is wide: what fits on a screen.
const rowsMax = 20

// Table returns the report for people: one table that compares the policies, the groups behind it where two columns cannot hold them, the
// objective's two views, and what all of that says in words.
func (r *Report) Table() string {
	if len(r.runs) == 0 {
		return ""
	}
	var parts []string
	if r.o.About != "" {
		parts = append(parts, wrap(plain(r.o.About), r.width())+"\n")
	}
	parts = append(parts, r.overview().String())
	_, _, told := r.runs[0].story()
	labelled := r.labelled()
	if !told && len(r.runs[0].Cohorts) > 1 && labelled {
		parts = append(parts, r.groups("COHORT", cohortsOf, r.o.Wide))
	}
	if r.o.Tenants || !told && len(r.runs[0].Tenants) > 1 && !labelled {
		parts = append(parts, r.groups("TENANT", tenantsOf, r.o.Wide))
	}
	if r.o.Objective > 0 {
		parts = append(parts, r.objective())
	}
	if s := r.reading(); s != "" {
		parts = append(parts, wrap(s, r.width())+"\n")
	}
	var notes strings.Builder
	for _, note := range r.notes() {
		notes.WriteString(wrap("Note: "+plain(note), r.width()) + "\n")
	}
	if notes.Len() > 0 {
		parts = append(parts, notes.String())
	}
	return strings.Join(parts, "\n")
}

// About says in a line what a scenario is: its name, what happens in it, and how large it is.
func About(s *sim.Scenario) string {
	text := s.Name
	if s.Summary != "" {
		text += ": " + s.Summary
	}
	return text + "; " + count(len(s.Jobs), "job") + " on " + count(s.Slots(), "slot")
}

func (r *Report) width() int { return width(r.o) }

func width(o Options) int {
	if o.Width > 0 {
		return o.Width
	}
	return WidthDefault
}

// labelled reports whether the cohorts are anything else than the tenants.
func (r *Report) labelled() bool {
	for _, c := range r.runs[0].Cohorts {
		if c.Tenants > 1 || find(r.runs[0].Tenants, c.Name) == nil {
			return true
		}
	}
	return false
}

func cohortsOf(s *Summary) []Group { return s.Cohorts }
func tenantsOf(s *Summary) []Group { return s.Tenants }

// notes returns every run's notes, each once.
func (r *Report) notes() []string {
	var all []string
	seen := map[string]bool{}
	for _, s := range r.runs {
		for _, n := range s.Notes {
			if !seen[n] {
				seen[n] = true
				all = append(all, n)
			}
		}
	}
	return all
}

// A measure is one figure of a column: of a run, or of a group in it.
type measure[T any] struct {
	head string
	over string
	of   func(T) string
	left bool
}

// overview compares the policies, one in each row.
func (r *Report) overview() *grid {
	measures := r.measures()
	g := &grid{columns: []column{{head: "POLICY", left: true}}}
	for _, m := range measures {
		g.columns = append(g.columns, column{head: m.head, over: m.over, left: m.left})
	}
	for _, s := range r.runs {
		cells := []string{plain(s.Policy)}
		for _, m := range measures {
			cells = append(cells, m.of(s))
		}
		g.add(cells...)
	}
	return g
}

// measures chooses what to say of a run: the light cohort's waits and when the heavy one was done, where the scenario has such; and else the
// waits of all jobs and of the tenant that waits longest.
func (r *Report) measures() []measure[*Summary] {
	var ms []measure[*Summary]
	add := func(over, head string, of func(*Summary) string) {
		ms = append(ms, measure[*Summary]{head: head, over: over, of: of})
	}
	if light, heavy, ok := r.runs[0].story(); ok {
		lightOver, heavyOver := light.heading(), heavy.heading()
		of := func(name string, f func(*Group) string) func(*Summary) string {
			return func(s *Summary) string {
				g := find(s.Cohorts, name)
				if g == nil || g.Completed == 0 {
					return "-"
				}
				return f(g)
			}
		}
		for _, m := range waitMeasures(r.o.Wide) {
			add(lightOver, m.head, of(light.Name, m.of))
		}
		if r.o.Wide {
			add(heavyOver, "WAIT P95", of(heavy.Name, func(g *Group) string { return span(g.Wait.P95) }))
		}
		add(heavyOver, "DONE AFTER", of(heavy.Name, func(g *Group) string { return span(g.Finished) }))
	} else {
		over := fmt.Sprintf("all: %s of %s", count(r.runs[0].All.Jobs, "job"), count(len(r.runs[0].Tenants), "tenant"))
		for _, m := range waitMeasures(r.o.Wide) {
			add(over, m.head, func(s *Summary) string { return m.of(&s.All) })
		}
		if !r.unfinished() {
			add(over, "DONE AFTER", func(s *Summary) string { return span(s.All.Finished) })
		}
		if len(r.runs[0].Tenants) > 1 {
			add("tenant that waits longest", "P95", func(s *Summary) string { return span(worstFirst(s.Tenants)[0].Wait.P95) })
			ms = append(ms, measure[*Summary]{
				head: "TENANT", over: "tenant that waits longest", left: true,
				of: func(s *Summary) string { return cut(plain(worstFirst(s.Tenants)[0].Name), nameRunesMax) },
			})
		}
	}
	return append(ms, r.outcomes()...)
}

// nameRunesMax is how much of a name a table shows.
const nameRunesMax = 32

func waitMeasures(wide bool) []measure[*Group] {
	ms := []measure[*Group]{
		{head: "WAIT P50", of: func(g *Group) string { return span(g.Wait.P50) }},
		{head: "P95", of: func(g *Group) string { return span(g.Wait.P95) }},
		{head: "MAX", of: func(g *Group) string { return span(g.Wait.Max) }},
	}
	if !wide {
		return ms
	}
	return []measure[*Group]{
		ms[0], ms[1],
		{head: "P99", of: func(g *Group) string { return span(g.Wait.P99) }},
		ms[2],
		{head: "LATENCY P50", of: func(g *Group) string { return span(g.Latency.P50) }},
		{head: "P95", of: func(g *Group) string { return span(g.Latency.P95) }},
		{head: "P99", of: func(g *Group) string { return span(g.Latency.P99) }},
		{head: "MAX", of: func(g *Group) string { return span(g.Latency.Max) }},
	}
}

// outcomes are the columns that say what became of the jobs: those that say something, and how busy the slots were.
func (r *Report) outcomes() []measure[*Summary] {
	var ms []measure[*Summary]
	for _, c := range []struct {
		head string
		of   func(*Group) int
	}{
		{"REJECTED", func(g *Group) int { return g.Rejected }},
		{"EXPIRED", func(g *Group) int { return g.Expired }},
		{"NOT DONE", func(g *Group) int { return g.Running + g.Waiting }},
		{"TAKEN BACK", func(g *Group) int { return g.Preempted }},
	} {
		for _, s := range r.runs {
			if c.of(&s.All) > 0 {
				ms = append(ms, measure[*Summary]{head: c.head, of: func(s *Summary) string { return number(c.of(&s.All)) }})
				break
			}
		}
	}
	return append(ms, measure[*Summary]{head: "SLOTS BUSY", of: func(s *Summary) string { return percent(s.Utilisation) }})
}

// heading names a group and what is in it.
func (g *Group) heading() string {
	return fmt.Sprintf("%s: %s of %s", cut(plain(g.Name), nameRunesMax), count(g.Jobs, "job"), count(g.Tenants, "tenant"))
}

// groups lists groups, one in each row, with the figures of each policy side by side.
func (r *Report) groups(head string, of func(*Summary) []Group, wide bool) string {
	g := &grid{columns: []column{{head: head, left: true}, {head: "JOBS"}}}
	measures := r.groupMeasures(wide)
	for _, s := range r.runs {
		over := ""
		if len(r.runs) > 1 {
			over = cut(plain(s.Policy), policyRunesMax)
		}
		for _, m := range measures {
			g.columns = append(g.columns, column{head: m.head, over: over})
		}
	}
	rows := of(r.runs[0])
	if head == "TENANT" {
		rows = worstFirst(rows)
	}
	for i, row := range rows {
		if i == rowsMax && !wide {
			break
		}
		cells := []string{cut(plain(row.Name), nameRunesMax), number(row.Jobs)}
		for _, s := range r.runs {
			group := find(of(s), row.Name)
			for _, m := range measures {
				if group == nil || group.Completed == 0 {
					cells = append(cells, "-")
				} else {
					cells = append(cells, m.of(group))
				}
			}
		}
		g.add(cells...)
	}
	if left := len(rows) - len(g.rows); left > 0 {
		return g.String() + fmt.Sprintf("... and %d more, which wait less: -o wide shows all\n", left)
	}
	return g.String()
}

// groupMeasures is what to say of a group: less where several policies stand side by side.
func (r *Report) groupMeasures(wide bool) []measure[*Group] {
	var ms []measure[*Group]
	if len(r.runs) == 1 || wide {
		ms = waitMeasures(wide && len(r.runs) == 1)
	} else {
		ms = []measure[*Group]{{head: "WAIT P95", of: func(g *Group) string { return span(g.Wait.P95) }}}
	}
	if !r.unfinished() { // or else it is when the simulation was cut short
		ms = append(ms, measure[*Group]{head: "DONE AFTER", of: func(g *Group) string { return span(g.Finished) }})
	}
	if len(r.runs) == 1 || wide || r.unfinished() {
		ms = append(ms, measure[*Group]{head: "SHARE", of: func(g *Group) string { return percent(100 * g.Share) }})
	}
	return ms
}

// unfinished reports whether some run ended before its work: then shares differ between policies.
func (r *Report) unfinished() bool {
	for _, s := range r.runs {
		if s.All.Waiting+s.All.Running > 0 {
			return true
		}
	}
	return false
}
