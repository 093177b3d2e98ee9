package state

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
)

// Assignment is a row of the table of assignments: which cell a lane is at home in.
type Assignment struct {
	Lane   cell.Lane
	Cell   cell.ID
	Epoch  cell.Epoch // rises with every change; that of the tenant's policy is the larger one of its lanes'
	Since  cell.Instant
	Groups uint64 // the tenant's hand of the cell's worker groups: bit i for group i+1
}

// AssignmentOf returns where the lane is at home, if it is anywhere.
func (v View) AssignmentOf(lane cell.Lane) (Assignment, bool) {
	return get[Assignment](v.db, tableAssignments, byID, string(lane.Tenant), classText(lane.Class))
}

// Homes returns where the tenant's lanes are at home, by Class.Index; the zero value for one that is nowhere. They are apart only while the tenant is
// moving.
func (v View) Homes(tenant cell.TenantID) (of [2]Assignment) {
	for i, class := range cell.Classes() {
		of[i], _ = v.AssignmentOf(cell.Lane{Tenant: tenant, Class: class})
	}
	return of
}

// Assignments returns the assignments of the tenants whose id is above after, in the order of their ids and then of their classes.
func (v View) Assignments(after cell.TenantID) iter.Seq[Assignment] {
	return above(v.db, tableAssignments, byID, func(a Assignment) bool { return a.Lane.Tenant > after }, string(after))
}

// AssignmentsIn returns the assignments to a cell of the tenants whose id is above after, in the order of their ids and then of their classes.
func (v View) AssignmentsIn(id cell.ID, after cell.TenantID) iter.Seq[Assignment] {
	rows := above(v.db, tableAssignments, byCell, func(a Assignment) bool { return a.Cell != id || a.Lane.Tenant > after }, string(id), string(after))
	return func(yield func(Assignment) bool) {
		for a := range rows {
			if a.Cell != id || !yield(a) {
				return
			}
		}
	}
}

// TenantsIn returns the tenants that a cell must know, in the order of their ids: those with a lane at home there, and those that are moving from it
// or to it.
func (v View) TenantsIn(id cell.ID) []cell.TenantID {
	var tenants []cell.TenantID
	for a := range v.AssignmentsIn(id, "") {
		tenants = append(tenants, a.Lane.Tenant)
	}
	for m := range v.LiveMigrations() {
		if m.Names(id) {
			tenants = append(tenants, m.Tenant)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// PolicyIn returns what the tenant is promised, with its hand of that cell's worker groups, if the cell must know it.
func (v View) PolicyIn(tenant cell.TenantID, id cell.ID) (cell.TenantPolicy, bool) {
	t, _ := v.Tenant(tenant)
	for _, a := range v.Homes(tenant) {
		if a.Cell == id && id != "" {
			t.Policy.Groups = a.Groups
			return t.Policy, true
		}
	}
	m, moving := v.liveOf(tenant)
	if !moving || !m.Names(id) {
		return cell.TenantPolicy{}, false
	}
	t.Policy.Groups = m.Groups[m.side(id)]
	return t.Policy, true
}

// Unplaced returns the tenants that are at home nowhere and whose id is above after, in the order of their ids.
func (v View) Unplaced(after cell.TenantID) iter.Seq[Tenant] {
	rows := above(v.db, tableUnplaced, byID, func(u unplaced) bool { return u.tenant > after }, string(after))
	return func(yield func(Tenant) bool) {
		for u := range rows {
			t, ok := v.Tenant(u.tenant)
			if !ok {
				panic("state: a tenant without a home is missing: " + string(u.tenant))
			}
			if !yield(t) {
				return
			}
		}
	}
}

// Decision returns the score table of the decision that made the tenant's cell its home, and when it took effect. It returns nothing for a tenant
// without one, and for one whose was forgotten.
func (v View) Decision(id cell.TenantID) (text string, at cell.Instant) {
	d, _ := get[decision](v.db, tableDecisions, byID, string(id))
	return d.text, d.at
}

// unplaced is a row for each tenant without an assignment. The table is made from the others and in no snapshot.
type unplaced struct{ tenant cell.TenantID }

// decision is a row of the table of decisions.
type decision struct {
	tenant cell.TenantID
	text   string
	at     cell.Instant
	index  uint64 // of the entry that it came with, which orders decisions by age
}

// classText orders lanes of a tenant by their class.
func classText(c cell.Class) string { return string(rune('0' + c)) }

func (s *State) assign(index uint64, c command.Assign) Result {
	v := s.View()
	t, ok := v.Tenant(c.Tenant)
	if !ok {
		return Result{Refused: &NotFoundError{KindTenant, string(c.Tenant)}}
	}
	home, ok := v.Cell(c.Cell)
	if !ok {
		return Result{Refused: &NotFoundError{KindCell, string(c.Cell)}}
	}
	of := v.Homes(c.Tenant)
	epoch := max(of[0].Epoch, of[1].Epoch)
	if assigned(of[0], c) && assigned(of[1], c) && epoch != c.Expect { // the same command again, as of a tenant
		return Result{Assignment: of[0], Tenant: t, Repeated: true}
	}
	if m, moving := v.liveOf(c.Tenant); moving {
		return Result{Refused: existsError(m)}
	}
	switch {
	case home.Phase != placement.PhaseOpen:
		return Result{Refused: &PhaseError{c.Cell, home.Phase, "place the tenant in an open cell"}}
	case epoch != c.Expect:
		return Result{Refused: &StaleError{KindAssignment, string(c.Tenant), uint64(c.Expect), uint64(epoch)}}
	case c.CellGeneration != 0 && c.CellGeneration != home.Generation:
		return Result{Refused: &StaleError{KindCell, string(c.Cell), c.CellGeneration, home.Generation}}
	}
	if err := mayHold(home, t, c.Groups); err != nil {
		return Result{Refused: err}
	}
	t.Policy.Epoch++
	t.Policy.Groups = c.Groups
	s.put(tableTenants, &t)
	var lanes [2]Assignment // by Class.Index
	for i, class := range cell.Classes() {
		lanes[i] = Assignment{
			Lane: cell.Lane{Tenant: c.Tenant, Class: class}, Cell: c.Cell, Epoch: t.Policy.Epoch, Since: s.head.clock, Groups: c.Groups,
		}
	}
	s.putAssignments(c.Tenant, lanes[:]...)
	s.putDecision(decision{c.Tenant, c.Decision, s.head.clock, index})
	return Result{Assignment: lanes[0], Tenant: t}
}

// assigned reports whether a lane is where c has put it.
func assigned(a Assignment, c command.Assign) bool {
	return a.Cell == c.Cell && a.Groups == c.Groups && a.Since == c.Time
}

// mayHold returns a *[cell.FieldError] when what the tenant asks of its cell, or the hand it was dealt, is not in the cell's record. Whoever
// decided knew that; the rules may have changed since, and residency is a promise.
func mayHold(home Cell, t Tenant, groups uint64) error {
	if t.Rules.Cell != "" && t.Rules.Cell != home.ID {
		return &cell.FieldError{
			Field: "cell", Problem: fmt.Sprintf("is %s, and the tenant may be in %s only", home.ID, t.Rules.Cell), Remedy: "change its rules first",
		}
	}
	for _, l := range t.Rules.Require {
		if !slices.Contains(home.Labels, l) {
			return &cell.FieldError{
				Field: "cell", Problem: fmt.Sprintf("is %s, without the label %s=%s that the tenant requires", home.ID, l.Key, l.Value),
				Remedy: "choose a cell that has it, or change the tenant's rules first",
			}
		}
	}
	if bits.Len64(groups) > home.Groups || (groups == 0) != (home.Groups == 0) {
		return &cell.FieldError{
			Field: "groups", Problem: fmt.Sprintf("is %b, of a cell with %d worker groups", groups, home.Groups), Remedy: "deal a hand of the cell's groups",
		}
	}
	return nil
}

// putAssignments replaces lanes of one tenant, and keeps what is counted and listed of where tenants are.
func (s *State) putAssignments(tenant cell.TenantID, lanes ...Assignment) {
	before := s.homes(tenant)
	after := before
	for _, a := range lanes {
		i := a.Lane.Class.Index()
		if before[i] == "" {
			s.head.assignments++
		}
		after[i] = a.Cell
		s.put(tableAssignments, &a)
	}
	if before == after {
		return
	}
	if before == (homes{}) {
		s.drop(tableUnplaced, &unplaced{tenant})
	}
	s.countTenant(before, -1)
	s.countTenant(after, 1)
}

// homes are the cells of a tenant's lanes, by Class.Index; empty for none.
type homes [2]cell.ID

func (s *State) homes(tenant cell.TenantID) (of homes) {
	for i, a := range s.View().Homes(tenant) {
		of[i] = a.Cell
	}
	return of
}

// countTenant adds n to the count of tenants of each cell that the tenant has lanes in.
func (s *State) countTenant(of homes, n int) {
	for i, id := range of {
		if id == "" || i > 0 && id == of[0] {
			continue
		}
		row, ok := s.View().Cell(id)
		if !ok {
			panic("state: a lane's cell is missing: " + string(id))
		}
		row.Tenants += n
		s.put(tableCells, &row)
	}
}

// putDecision keeps d in place of the tenant's last one, and forgets the oldest of all while their texts have more bytes than they may.
func (s *State) putDecision(d decision) {
	if old, ok := get[decision](s.View().db, tableDecisions, byID, string(d.tenant)); ok {
		s.dropDecision(old)
	}
	if d.text == "" {
		return
	}
	s.put(tableDecisions, &d)
	s.head.decisions++
	s.head.decisionBytes += len(d.text)
	for oldest := range above(s.View().db, tableDecisions, byAge, func(decision) bool { return true }, "") {
		if s.head.decisionBytes <= s.decisionsBytesMax {
			return
		}
		s.dropDecision(oldest)
	}
}

func (s *State) dropDecision(d decision) {
	s.drop(tableDecisions, &d)
	s.head.decisions--
	s.head.decisionBytes -= len(d.text)
}

func appendAssignment(b []byte, a Assignment) []byte {
	b = text(b, 1, string(a.Lane.Tenant))
	b = number(b, 2, uint64(a.Lane.Class))
	b = text(b, 3, string(a.Cell))
	b = number(b, 4, uint64(a.Epoch))
	b = number(b, 5, uint64(a.Since))
	return number(b, 6, a.Groups)
}

func (s *State) restoreAssignment(body []byte) error {
	var a Assignment
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			a.Lane.Tenant = cell.TenantID(b)
		case 2:
			a.Lane.Class = cell.Class(n)
			return n <= uint64(cell.ClassBatch)
		case 3:
			a.Cell = cell.ID(b)
		case 4:
			a.Epoch = cell.Epoch(n)
		case 5:
			a.Since = cell.Instant(n)
		case 6:
			a.Groups = n
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	v := s.View()
	_, twice := v.AssignmentOf(a.Lane)
	_, tenant := v.Tenant(a.Lane.Tenant)
	_, home := v.Cell(a.Cell)
	if twice || !tenant || !home || !a.Lane.Class.Valid() {
		return fmt.Errorf("%w: the lane %v is assigned twice or is none, or its cell %q is missing", ErrSnapshot, a.Lane, a.Cell)
	}
	s.putAssignments(a.Lane.Tenant, a)
	return nil
}

func appendDecision(b []byte, d decision) []byte {
	b = text(b, 1, string(d.tenant))
	b = text(b, 2, d.text)
	b = number(b, 3, uint64(d.at))
	return number(b, 4, d.index)
}

func (s *State) restoreDecision(body []byte) error {
	var d decision
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			d.tenant = cell.TenantID(b)
		case 2:
			d.text = string(b)
		case 3:
			d.at = cell.Instant(n)
		case 4:
			d.index = n
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	v := s.View()
	_, tenant := v.Tenant(d.tenant)
	_, twice := get[decision](v.db, tableDecisions, byID, string(d.tenant))
	_, same := get[decision](v.db, tableDecisions, byAge, number8(d.index))
	if twice || same || !tenant || d.text == "" {
		return fmt.Errorf("%w: the decision on tenant %q is there twice or empty, or the tenant is missing", ErrSnapshot, d.tenant)
	}
	s.putDecision(d)
	return nil
}
