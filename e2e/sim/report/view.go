package report

import (
	"cmp"
	"slices"
	"time"
)

// ObjectivePercent is the part of jobs that an objective is about.
const ObjectivePercent = 99

// View is both views of one objective in a run: whether [ObjectivePercent] of jobs are done within Objective of their arrival, of all work
// together, where every job counts the same, and of each tenant, where every tenant does. The first answers what the machines delivered, the
// second whom it hurt: a tenant with 1 % of the jobs can miss its objective by any amount while the work as a whole meets it.
type View struct {
	Objective time.Duration
	Work      Standing
	// Tenants is how many have jobs, and Breaches are those that miss the objective, the worst first.
	Tenants  int
	Breaches []Standing
}

// Standing is how some jobs stand to the objective. A job that was not completed counts as late.
type Standing struct {
	Name   string
	Jobs   int
	Within int           // jobs that were done in time
	P99    time.Duration // of completed jobs; 0 when there are none
	Late   bool          // the objective is missed
}

// Met reports whether the tenants' view is met: that of every one.
func (v *View) Met() bool { return len(v.Breaches) == 0 }

// Look returns both views of an objective in a run. Jobs that were rejected are left out: they were refused, not delayed.
func Look(s *Summary, objective time.Duration) *View {
	v := &View{Objective: objective, Work: s.All.standing(objective), Tenants: len(s.Tenants)}
	for i := range s.Tenants {
		if st := s.Tenants[i].standing(objective); st.Late {
			v.Breaches = append(v.Breaches, st)
		}
	}
	slices.SortStableFunc(v.Breaches, func(a, b Standing) int {
		if a.P99 == 0 || b.P99 == 0 { // nothing done is worse than anything late
			return cmp.Compare(a.P99, b.P99)
		}
		return cmp.Compare(b.P99, a.P99)
	})
	return v
}

func (g *Group) standing(objective time.Duration) Standing {
	st := Standing{Name: g.Name, Jobs: g.Jobs - g.Rejected, P99: g.Latency.P99}
	st.Within, _ = slices.BinarySearch(g.latencies, objective+1)
	st.Late = st.Within < rank(ObjectivePercent, st.Jobs)
	return st
}

// The JSON form of a view.
type (
	jsonObjective struct {
		Latency millis      `json:"latency_ms"`
		Percent int         `json:"percent"`
		Work    jsonWork    `json:"work"`
		Tenants jsonTenants `json:"tenants"`
	}
	jsonWork struct {
		Jobs   int        `json:"jobs"`
		Within hundredths `json:"within_percent"`
		P99    millis     `json:"p99_ms"`
		Met    bool       `json:"met"`
	}
	jsonTenants struct {
		Total    int          `json:"total"`
		Met      bool         `json:"met"`
		Breaches []jsonBreach `json:"breaches"`
	}
	jsonBreach struct {
		Name   string     `json:"name"`
		Jobs   int        `json:"jobs"`
		Within hundredths `json:"within_percent"`
		P99    millis     `json:"p99_ms"`
	}
)

func jsonView(v *View) *jsonObjective {
	j := &jsonObjective{
		Latency: millis(v.Objective), Percent: ObjectivePercent,
		Work:    jsonWork{Jobs: v.Work.Jobs, Within: v.Work.percent(), P99: millis(v.Work.P99), Met: !v.Work.Late},
		Tenants: jsonTenants{Total: v.Tenants, Met: v.Met(), Breaches: []jsonBreach{}},
	}
	for i := range v.Breaches {
		b := &v.Breaches[i]
		j.Tenants.Breaches = append(j.Tenants.Breaches, jsonBreach{Name: b.Name, Jobs: b.Jobs, Within: b.percent(), P99: millis(b.P99)})
	}
	return j
}

// percent returns how many of the jobs were in time.
func (s *Standing) percent() hundredths {
	if s.Jobs == 0 {
		return 100
	}
	return hundredths(100 * float64(s.Within) / float64(s.Jobs))
}
