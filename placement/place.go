package placement

import (
	"maps"
	"slices"
)

// Rows of a score table.
const (
	// CandidatesMax is how many cells a score table has at most. Of more cells it has the best, and one for each reason to reject some; the others
	// are counted.
	CandidatesMax = 16
	// candidatesKept is how many feasible cells of a decision are kept when there are more than fit, and candidatesOfMany when it is one of
	// many decisions: ten thousand tables are to be quick, and to fit in memory.
	candidatesKept   = 8
	candidatesOfMany = 4
)

// asked is what a tenant is placed for.
type asked struct {
	except  int  // a cell that is not looked at; none for none
	only    Kind // of cells that are looked at; 0 for all
	reserve bool // whether the failure reserve is asked for
	crowd   bool // whether it may spoil the reserve of tenants of its own group
	keep    int  // how many feasible cells are kept
	stay    int  // the cell that the tenant is in already; none for none
}

// answer is what became of the cells.
type answer struct {
	of     *pool
	best   []choice     // of the feasible ones, best first
	first  [filters]int // that a filter rejects, by the filter
	counts [filters]int // that a filter rejects; of the feasible those that are not among the best
}

// pick tries every cell for a tenant that is in no cell's sums. Its cost for a cell that is not among the best is a few comparisons: scores are
// bounded from above before they are worked out.
func (s *Snapshot) pick(t *tenantState, a asked) answer {
	of := s.poolOf(t, a.stay)
	ans := answer{of: of, best: s.scratch[:0]}
	for f := range ans.first {
		ans.first[f] = none
	}
	for i := range s.cells {
		if i == a.except || a.only != 0 && s.cells[i].kind != a.only {
			continue
		}
		if f := s.filter(t, i, a); f != feasible {
			ans.reject(i, f)
			continue
		}
		if len(ans.best) == a.keep && s.score(t, i, s.cells[i].atLeast(t), of) < ans.best[a.keep-1].score-noise {
			ans.counts[feasible]++
			continue
		}
		ch := choice{cell: i, tie: mix(t.hash ^ s.cells[i].hash), backup: none}
		ch.after = s.cells[i].after(t)
		ch.score = exact(s.score(t, i, ch.after, of))
		if len(ans.best) == a.keep && better(&ch, &ans.best[a.keep-1]) > 0 {
			ans.counts[feasible]++
			continue
		}
		if a.reserve && s.cfg.FailureReserve && !s.exempt(t, i) {
			if ch.backup = s.backupFor(t, i); ch.backup == none && s.elsewhere(t, i) {
				ans.reject(i, failureReserve)
				continue
			}
		}
		ans.insert(ch, a.keep)
	}
	s.scratch = ans.best
	return ans
}

func (a *answer) reject(i int, f filter) {
	a.counts[f]++
	if a.first[f] == none {
		a.first[f] = i
	}
}

// insert puts a choice among the best, one of which it is.
func (a *answer) insert(ch choice, keep int) {
	at := len(a.best)
	for at > 0 && better(&ch, &a.best[at-1]) < 0 {
		at--
	}
	if len(a.best) == keep {
		a.counts[feasible]++
		a.best = a.best[:keep-1]
	}
	a.best = slices.Insert(a.best, at, ch)
}

// Place decides where a tenant goes, in the snapshot without it if it is there: for a tenant at home in a cell, whether it would be placed there
// again. The snapshot stays as it is.
func (s *Snapshot) Place(t Tenant) Decision {
	i := s.tenant(t.ID)
	if i != none {
		was := s.tenants[i]
		s.seatAt(int32(i), none, none, none)
		defer func() { s.seatAt(int32(i), was.home, was.going, was.backup) }()
	}
	classes, groups, of := len(s.classes), len(s.apartOf), s.organizations[t.Organization]
	st := s.newTenantState(&t)
	defer s.forget(classes, groups, st.of, of)
	a := asked{except: none, reserve: true, keep: s.keep(), stay: st.home}
	st.home = none // it is in no sums
	if st.of != nil && (i == none || s.tenants[i].of != st.of) {
		st.of.tenants++ // one more than were counted
		defer func() { st.of.tenants-- }()
	}
	return s.decide(&st, ReasonPlace, a)
}

// forget drops what a tenant brought which is not of the snapshot: a class, a group and an organization, unless they were known before.
func (s *Snapshot) forget(classes, groups int, of, known *organization) {
	maps.DeleteFunc(s.classOf, func(_ string, i int32) bool { return int(i) >= classes })
	maps.DeleteFunc(s.apartOf, func(_ string, i int32) bool { return int(i) > groups })
	s.classes = s.classes[:classes]
	if of != nil && known == nil {
		delete(s.organizations, of.id)
	}
}

// keep returns how many feasible cells a table has room for.
func (s *Snapshot) keep() int {
	if len(s.cells) <= CandidatesMax {
		return CandidatesMax
	}
	return candidatesKept
}

// PlaceAll decides where every tenant without a home goes, the largest first, each with those before it in place. The snapshot stays as it is.
func (s *Snapshot) PlaceAll() Plan {
	plan := Plan{ImbalanceBefore: s.Imbalance()}
	list := s.bySize(func(t *tenantState) bool { return t.home == none && t.going == none })
	plan.Decisions = make([]Decision, 0, len(list))
	keep := s.keep()
	if keep < CandidatesMax && len(list) > CandidatesMax {
		keep = candidatesOfMany
	}
	defer s.save(list)()
	for _, i := range list {
		d := s.decide(&s.tenants[i], ReasonPlace, asked{except: none, reserve: true, keep: keep, stay: none})
		if d.Target != "" {
			s.take(i, s.scratch[0])
		}
		plan.Decisions = append(plan.Decisions, d)
	}
	plan.ImbalanceAfter = s.Imbalance()
	return plan
}

// save returns what brings cells and tenants back to what they are. It costs as much as a copy of the cells, which is less than undoing more than
// a few steps.
func (s *Snapshot) save(moved []int32) (restore func()) {
	cells := slices.Clone(s.cells)
	copies := make([]sums, len(cells))
	for i := range cells {
		c := &cells[i]
		copies[i] = *c.sums
		c.sums = &copies[i]
		c.tenants, c.apart, c.members, c.backing = slices.Clone(c.tenants), maps.Clone(c.apart), maps.Clone(c.members), slices.Clone(c.backing)
		for x, b := range c.backing {
			if b != nil {
				c.backing[x] = &backed{load: b.load, tenants: b.tenants, apart: slices.Clone(b.apart)}
			}
		}
	}
	shares := slices.Clone(s.shares)
	type seat struct{ home, going, backup int }
	seats := make([]seat, len(moved))
	for n, i := range moved {
		t := &s.tenants[i]
		seats[n] = seat{t.home, t.going, t.backup}
	}
	return func() {
		s.cells = cells
		copy(s.shares, shares) // in place: cells point to theirs
		for n, i := range moved {
			t := &s.tenants[i]
			t.home, t.going, t.backup = seats[n].home, seats[n].going, seats[n].backup
		}
	}
}

// take places a tenant that has no home as it was decided.
func (s *Snapshot) take(i int32, ch choice) {
	t := &s.tenants[i]
	t.home = ch.cell
	s.seatIn(i)
	s.measureOf(i)
	s.back(i, ch.backup)
}

// decide places a tenant that is in no cell's sums, and says why. The choice that it made is the first of the scratch.
func (s *Snapshot) decide(t *tenantState, why Reason, a asked) Decision {
	ans := s.pick(t, a)
	if len(ans.best) == 0 && t.apart != 0 && a.reserve {
		// A group may have as many tenants as there are cells. Then their reserve goes, not the placement of the last of them.
		a.crowd = true
		ans = s.pick(t, a)
	}
	d := Decision{Tenant: t.ID, Source: t.Home, Reason: why, Demand: t.top, Bytes: t.Bytes}
	if t.unknown {
		d.Source = ""
	}
	if len(ans.best) > 0 {
		c := s.cells[ans.best[0].cell].Cell
		d.Target, d.Generation = c.ID, c.Generation
		d.Groups = Deal(HandSeed(t.ID, c.ID), c.Groups, c.Hand)
	}
	s.table(t, &ans, a, &d)
	return d
}

// table writes the score table into a decision.
func (s *Snapshot) table(t *tenantState, ans *answer, a asked, d *Decision) {
	rejections := 0
	for f := phase; f < filters; f++ {
		rejections += ans.counts[f]
	}
	all := ans.counts[feasible] == 0 && len(ans.best)+rejections <= CandidatesMax
	rows := len(ans.best)
	for f := phase; f < filters; f++ {
		rows += min(ans.counts[f], 1)
	}
	if all {
		rows = len(ans.best) + rejections
	}
	d.Candidates = make([]Candidate, 0, rows)
	parts := make([]Part, 0, len(ans.best)*partsOfScore)
	for _, ch := range ans.best {
		from := len(parts)
		weighed := s.cfg.Weights.parts(s.weigh(t, ch.cell, ch.after, ans.of))
		parts = append(parts, weighed[:]...)
		d.Candidates = append(d.Candidates, Candidate{Cell: s.cells[ch.cell].ID, Score: ch.score, Parts: parts[from:len(parts):len(parts)]})
	}
	d.Others = nil
	if n := ans.counts[feasible]; n > 0 {
		d.Others = append(d.Others, Count{Name: "scored lower", Cells: n})
	}
	if all {
		s.everyRejection(t, ans, a, d)
		return
	}
	for f := phase; f < filters; f++ {
		if ans.counts[f] == 0 {
			continue
		}
		i := ans.first[f]
		d.Candidates = append(d.Candidates, Candidate{Cell: s.cells[i].ID, Rejected: s.rejected(t, i, f)})
		if more := ans.counts[f] - 1; more > 0 {
			d.Others = append(d.Others, Count{Name: f.String(), Cells: more})
		}
	}
}

// everyRejection lists the rejected cells in the order of their names.
func (s *Snapshot) everyRejection(t *tenantState, ans *answer, a asked, d *Decision) {
	for i := range s.cells {
		if i == a.except || a.only != 0 && s.cells[i].kind != a.only ||
			slices.ContainsFunc(ans.best, func(ch choice) bool { return ch.cell == i }) {
			continue
		}
		f := s.filter(t, i, a)
		if f == feasible { // then it was for want of a backup
			f = failureReserve
		}
		d.Candidates = append(d.Candidates, Candidate{Cell: s.cells[i].ID, Rejected: s.rejected(t, i, f)})
	}
}
