package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// FindingKind says what is wrong.
type FindingKind string

// The kinds of findings.
const (
	FindingCapacity       FindingKind = "capacity"        // a cell has more than it was tested to carry, or was not tested
	FindingFailureReserve FindingKind = "failure_reserve" // there is no room for a tenant of a lost cell
	FindingResidency      FindingKind = "residency"       // a cell is not one that a tenant's rules allow
	FindingAntiAffinity   FindingKind = "anti_affinity"   // tenants that are to be kept apart are together
	FindingBlastRadius    FindingKind = "blast_radius"    // too many tenants are lost with a cell
	FindingUnplaced       FindingKind = "unplaced"        // a tenant is in no cell
	FindingUnknownCell    FindingKind = "unknown_cell"    // a tenant is in a cell that is not known
)

// Finding is one thing that is wrong with where tenants are.
type Finding struct {
	Kind   FindingKind
	Lost   cell.ID // the cell whose loss shows it; empty when it is wrong already
	Cell   cell.ID
	Tenant cell.TenantID // empty when it is about the cell
	Text   string
}

// Check looks for everything that is wrong already, and then loses each cell in turn and places its tenants in the others, by the filters that
// [Snapshot.Place] asks, but for the failure reserve, which is what is used up then, and an organization's part of the blast radius; cells may be
// filled to their tested capacity. A tenant that a rule binds to its cell, one with a dedicated cell, and one on its way, which has room in two, are
// not placed again.
//
// Without findings each loss is proven to be survivable: a place for every tenant was found. With a finding a place was looked for in three ways, the
// backups that the reserve is made of among them, and then by trying combinations, up to [CheckStepsMax]; with few tenants in a cell that is all of them.
func (s *Snapshot) Check() []Finding {
	var found []Finding
	for i := range s.cells {
		found = s.checkCell(i, found)
	}
	for i := range s.tenants {
		found = s.checkTenant(int32(i), found)
	}
	for x := range s.cells {
		found = s.lose(x, found)
	}
	return found
}

func (s *Snapshot) checkCell(i int, found []Finding) []Finding {
	c := &s.cells[i]
	tenants := 0
	organizations := map[*organization]int{}
	classes := map[*organization]*tenantState{}
	for _, o := range c.tenants {
		t := &s.tenants[o]
		if t.seat() != i {
			continue
		}
		tenants++
		if t.of != nil {
			organizations[t.of]++
			if classes[t.of] == nil || len(s.classes[t.class].open) > len(s.classes[classes[t.of].class].open) {
				classes[t.of] = t
			}
		}
	}
	if tenants > 0 && c.Capacity.Compute <= 0 {
		found = append(found, Finding{Kind: FindingCapacity, Cell: c.ID, Text: "it was not tested how much compute it can carry, so nothing bounds it"})
	}
	if tested := bounding(c.Capacity.bounded(), 1); !c.within(&c.settled, tested) {
		found = append(found, Finding{Kind: FindingCapacity, Cell: c.ID, Text: strings.Replace(
			c.overfull(&Day{}, settling(c), tested), "would be", "is", 1)})
	}
	if tenants > s.cfg.TenantsMax {
		found = append(found, Finding{
			Kind: FindingBlastRadius, Cell: c.ID, Text: fmt.Sprintf("has %d tenants, of at most %d", tenants, s.cfg.TenantsMax),
		})
	}
	var over []Finding
	for of, n := range organizations { // order-free: sorted below
		if most := s.membersMax(classes[of], c); n > most {
			over = append(over, Finding{Kind: FindingBlastRadius, Cell: c.ID, Text: fmt.Sprintf(
				"has %d of the %d tenants of %s, of at most %d", n, of.tenants, of.id, most)})
		}
	}
	slices.SortFunc(over, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	return append(found, over...)
}

// settling is what makes the settled load of the load.
func settling(c *cellState) *Day {
	d := c.settled.Sub(c.load)
	return &d
}

func (c *cellState) within(d *Day, bound Load) bool {
	for h := range d {
		if !within(d[h], bound) {
			return false
		}
	}
	return true
}

func (s *Snapshot) checkTenant(i int32, found []Finding) []Finding {
	t := &s.tenants[i]
	switch {
	case t.unknown && t.going == none:
		return append(found, Finding{Kind: FindingUnknownCell, Cell: t.Home, Tenant: t.ID, Text: "is at home in a cell that is not known"})
	case t.home == none && t.going == none:
		return append(found, Finding{Kind: FindingUnplaced, Tenant: t.ID, Text: "is in no cell"})
	case t.home == none || t.going != none:
		return found // it is about to be mended, or was refused a target that breaks its rules
	}
	if f := s.broken(i); f != feasible && f != apart {
		found = append(found, Finding{Kind: FindingResidency, Cell: s.cells[t.home].ID, Tenant: t.ID, Text: s.because(t, t.home, f)})
	}
	if s.crowds(i) {
		found = append(found, Finding{Kind: FindingAntiAffinity, Cell: s.cells[t.home].ID, Tenant: t.ID, Text: s.because(t, t.home, apart)})
	}
	return found
}

// CheckStepsMax bounds the combinations that are tried for the tenants of one lost cell.
const CheckStepsMax = 20_000

// loss is the placement of a lost cell's tenants.
type loss struct {
	s       *Snapshot
	lost    int
	tenants []int32 // the largest first
	extra   []backed
	steps   int
}

// lose reports the tenants that fit nowhere when a cell is lost.
func (s *Snapshot) lose(x int, found []Finding) []Finding {
	l := &loss{s: s, lost: x, extra: make([]backed, len(s.cells)), tenants: s.bySizeIn(x, func(t *tenantState) bool {
		return t.home == x && t.going == none && !s.exempt(t, x)
	})}
	if len(l.tenants) == 0 {
		return found
	}
	var fewest []int32
	for n, choose := range []func(*tenantState) int{l.backup, l.emptiest, l.fullest} {
		left := l.greedy(choose)
		if len(left) == 0 {
			return found
		}
		if n == 0 || len(left) < len(fewest) {
			fewest = left
		}
	}
	l.clear()
	if l.search(0) {
		return found
	}
	// Once more, with those last that were the trouble: what keeps them out is what they meet then.
	trouble := func(i int32) bool { return slices.Contains(fewest, i) }
	l.tenants = append(slices.DeleteFunc(slices.Clone(l.tenants), trouble), fewest...)
	for _, i := range l.greedy(l.emptiest) {
		found = append(found, l.finding(&s.tenants[i]))
	}
	return found
}

// bySizeIn is bySize of the tenants of one cell.
func (s *Snapshot) bySizeIn(x int, wanted func(*tenantState) bool) []int32 {
	list := slices.DeleteFunc(slices.Clone(s.cells[x].tenants), func(i int32) bool { return !wanted(&s.tenants[i]) })
	slices.SortStableFunc(list, func(a, b int32) int {
		switch {
		case s.tenants[a].size > s.tenants[b].size:
			return -1
		case s.tenants[a].size < s.tenants[b].size:
			return 1
		default:
			return 0
		}
	})
	return list
}

func (b *backed) add(t *tenantState) {
	b.load.add(&t.day)
	b.tenants++
	if t.apart != 0 {
		b.apart = append(b.apart, t.apart)
	}
}

func (b *backed) drop(t *tenantState) {
	b.load.sub(&t.day)
	b.tenants--
	if t.apart != 0 {
		b.apart = b.apart[:len(b.apart)-1]
	}
}

func (l *loss) clear() { clear(l.extra) }

// greedy places one tenant after the other and returns those that find no place.
func (l *loss) greedy(choose func(*tenantState) int) (left []int32) {
	l.clear()
	for _, i := range l.tenants {
		t := &l.s.tenants[i]
		if b := choose(t); b != none {
			l.extra[b].add(t)
		} else {
			left = append(left, i)
		}
	}
	return left
}

// rejects returns what keeps a tenant of the lost cell out of another.
func (l *loss) rejects(t *tenantState, b int) filter {
	c, with := &l.s.cells[b], &l.extra[b]
	switch {
	case t.apart != 0 && (c.apart[t.apart] > 0 || slices.Contains(with.apart, t.apart)):
		return apart
	case len(c.tenants)+with.tenants >= l.s.cfg.TenantsMax:
		return blastRadius
	case !c.takes(&t.day, with):
		return capacity
	default:
		return feasible
	}
}

// backup is the tenant's backup, or else the first cell that can take it, beginning where its name says.
func (l *loss) backup(t *tenantState) int {
	if t.backup != none && t.backup != l.lost && l.rejects(t, t.backup) == feasible {
		return t.backup
	}
	open := l.s.classes[t.class].open
	for n := range open {
		b := int(open[(int(t.hash%uint64(len(open)))+n)%len(open)])
		if b != l.lost && l.rejects(t, b) == feasible {
			return b
		}
	}
	return none
}

func (l *loss) emptiest(t *tenantState) int { return l.choose(t, 1) }
func (l *loss) fullest(t *tenantState) int  { return l.choose(t, -1) }

// choose returns the cell that would have the least, or the most with a sign of -1, of those that can take the tenant.
func (l *loss) choose(t *tenantState, sign float64) int {
	best, least := none, math.Inf(1)
	for _, i := range l.s.classes[t.class].open {
		b := int(i)
		if b == l.lost || l.rejects(t, b) != feasible {
			continue
		}
		c := &l.s.cells[b]
		full := sign * c.dominant(c.load.Add(l.extra[b].load).Add(t.day).Peak())
		if full < least {
			best, least = b, full
		}
	}
	return best
}

// search tries every combination, from a tenant on.
func (l *loss) search(from int) bool {
	if from == len(l.tenants) {
		return true
	}
	t := &l.s.tenants[l.tenants[from]]
	for _, i := range l.s.classes[t.class].open {
		b := int(i)
		if b == l.lost {
			continue
		}
		if l.steps++; l.steps > CheckStepsMax {
			return false
		}
		if l.rejects(t, b) != feasible {
			continue
		}
		l.extra[b].add(t)
		if l.search(from + 1) {
			return true
		}
		l.extra[b].drop(t)
	}
	return false
}

// finding says what keeps a tenant out of all other cells: of the filters that reject it somewhere, the last that is asked.
func (l *loss) finding(t *tenantState) Finding {
	s := l.s
	f := Finding{Kind: FindingFailureReserve, Lost: s.cells[l.lost].ID, Cell: s.cells[l.lost].ID, Tenant: t.ID}
	last, where := feasible, none
	for b := range s.cells {
		if b == l.lost || s.cells[b].Kind != KindPooled {
			continue
		}
		why := s.classes[t.class].static[b]
		if why == feasible {
			why = l.rejects(t, b)
		}
		if why > last {
			last, where = why, b
		}
	}
	switch last {
	case feasible, kind, failureReserve, filters:
		f.Text = "there is no other pooled cell"
	case phase:
		f.Text = "no other pooled cell is open"
	case fixed, labels:
		f.Kind = FindingResidency
		f.Text = "no other open cell is one that its rules allow: " + string(s.cells[where].ID) + ": " + s.because(t, where, last)
	case apart:
		f.Kind = FindingAntiAffinity
		f.Text = "every other cell that could take it has a tenant of the group " + t.Rules.Apart
	case blastRadius:
		f.Kind = FindingBlastRadius
		f.Text = fmt.Sprintf("every other cell that could take it would have more than %d tenants", s.cfg.TenantsMax)
	case capacity:
		c := &s.cells[where]
		f.Text = fmt.Sprintf("no other cell has room for it: in %s %s", c.ID, c.overfull(&t.day, &l.extra[where].load, c.capacity))
	}
	return f
}
