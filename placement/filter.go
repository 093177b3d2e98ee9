package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// filter is why a cell cannot have a tenant. Filters are asked in this order, and the first that says no is the reason.
type filter uint8

const (
	feasible       filter = iota
	phase                 // it takes no new tenants
	kind                  // it is another's
	fixed                 // the tenant's rules name another
	labels                // it lacks one that the tenant requires
	apart                 // a tenant of the same group is there
	blastRadius           // too many would be lost with it
	capacity              // beyond what it was tested to carry
	failureReserve        // no room would be left for the tenants of a lost cell
	filters               // how many there are
)

func (f filter) String() string {
	return [...]string{
		"feasible", "phase", "kind", "fixed cell", "labels", "anti-affinity", "blast radius", "capacity", "failure reserve", "filters",
	}[f]
}

// class is what tenants with the same rules for cells have in common.
type class struct {
	static []filter // by cell, for pooled ones: phase, fixed, labels; whose a dedicated one is depends on the tenant
	open   []int32  // the pooled cells that pass
}

// classFor returns the class of tenants with such rules.
func (s *Snapshot) classFor(r Rules) int32 {
	var key strings.Builder
	key.WriteString(string(r.Cell))
	for _, l := range r.Require { // lengths keep keys and values apart, whatever is in them
		fmt.Fprintf(&key, "\n%d %d %s%s", len(l.Key), len(l.Value), l.Key, l.Value)
	}
	if i, ok := s.classOf[key.String()]; ok {
		return i
	}
	k := class{static: make([]filter, len(s.cells))}
	for i := range s.cells {
		c := &s.cells[i]
		k.static[i] = static(r, c.Cell)
		if k.static[i] == feasible && c.Kind == KindPooled {
			k.open = append(k.open, int32(i))
		}
	}
	i := int32(len(s.classes))
	s.classes, s.classOf[key.String()] = append(s.classes, k), i
	return i
}

// static returns what of the rules and the cell's record rejects it.
func static(r Rules, c *Cell) filter {
	switch {
	case c.Phase != PhaseOpen:
		return phase
	case r.Cell != "" && r.Cell != c.ID:
		return fixed
	case lacking(r, c) >= 0:
		return labels
	default:
		return feasible
	}
}

// lacking returns which of the labels that are required the cell lacks; -1 for none.
func lacking(r Rules, c *Cell) int {
	return slices.IndexFunc(r.Require, func(l Label) bool {
		v, ok := valueOf(c.Labels, l.Key)
		return !ok || v != l.Value
	})
}

// owns reports whether a dedicated cell is the tenant's: its rules name the cell, or the cell's labels name it or its organization. What is
// in the cell already must be its own or of its organization.
func (s *Snapshot) owns(t *tenantState, c *cellState) bool {
	if !named(t, c) {
		return false
	}
	for _, i := range c.tenants {
		if o := &s.tenants[i]; o.ID != t.ID && (t.Organization == "" || o.Organization != t.Organization) {
			return false
		}
	}
	return true
}

// named reports whether the tenant's rules name a dedicated cell, or the cell's labels the tenant or its organization.
func named(t *tenantState, c *cellState) bool {
	tenant, _ := valueOf(c.Labels, LabelTenant)
	org, _ := valueOf(c.Labels, LabelOrganization)
	return t.Rules.Cell == c.ID || tenant == string(t.ID) || org != "" && org == string(t.Organization)
}

// filter returns what rejects a cell for a tenant that is in no cell's sums, but for whether it would have a backup.
func (s *Snapshot) filter(t *tenantState, i int, a asked) filter {
	if f := s.fits(t, i); f != feasible {
		return f
	}
	c := &s.cells[i]
	if !within(t.top, c.space) && !c.holds(&t.day) {
		return capacity
	}
	if !a.reserve || !s.cfg.FailureReserve {
		return feasible
	}
	if t.apart != 0 && !a.crowd && c.backsGroup(t.apart) != none {
		return failureReserve
	}
	if len(c.tenants)+c.worstTenants >= s.cfg.TenantsMax || !within(t.top, c.room) && !c.spares(&t.day) {
		return failureReserve
	}
	return feasible
}

// fits is filter without amounts.
func (s *Snapshot) fits(t *tenantState, i int) filter {
	c := &s.cells[i]
	f := s.classes[t.class].static[i]
	switch {
	case f == phase || i == s.closed:
		return phase
	case c.kind == KindDedicated && !s.owns(t, c):
		return kind
	case f != feasible:
		return f
	case t.apart != 0 && c.apart[t.apart] > 0:
		return apart
	case len(c.tenants) >= s.cfg.TenantsMax:
		return blastRadius
	case t.of != nil && int(c.members[t.of]) >= s.membersMax(t, c):
		return blastRadius
	default:
		return feasible
	}
}

// membersMax returns how many tenants of its organization a cell may have.
func (s *Snapshot) membersMax(t *tenantState, c *cellState) int {
	n := t.of.tenants
	if c.Kind == KindDedicated || n < s.cfg.OrganizationTenantsMin || len(s.classes[t.class].open) < 2 {
		return math.MaxInt
	}
	return int(math.Ceil(s.cfg.OrganizationShareMax * float64(n)))
}

// holds reports whether the cell, filled as far as demand may fill it, can take a load.
func (c *cellState) holds(d *Day) bool {
	for h := range d {
		l := &c.load[h]
		if l.Compute+d[h].Compute > c.bound.Compute || l.Jobs+d[h].Jobs > c.bound.Jobs || l.Bytes+d[h].Bytes > c.bound.Bytes {
			return false
		}
	}
	return true
}

// spares reports whether the cell can take a load and, filled to its capacity, what any one loss brings beside it.
func (c *cellState) spares(d *Day) bool {
	for h := range d {
		l, w := &c.load[h], &c.worst[h]
		if l.Compute+d[h].Compute+w.Compute > c.capacity.Compute ||
			l.Jobs+d[h].Jobs+w.Jobs > c.capacity.Jobs || l.Bytes+d[h].Bytes+w.Bytes > c.capacity.Bytes {
			return false
		}
	}
	return true
}

// rejected says why a cell cannot have a tenant, given the filter that says so.
func (s *Snapshot) rejected(t *tenantState, i int, f filter) string {
	return f.String() + ": " + s.because(t, i, f)
}

func (s *Snapshot) because(t *tenantState, i int, f filter) string {
	c := &s.cells[i]
	switch f {
	case phase:
		if i == s.closed {
			return "is being evacuated"
		}
		return "is " + c.Phase.String()
	case kind:
		return "is dedicated, and not to this tenant"
	case fixed:
		return "the tenant's rules name " + string(t.Rules.Cell)
	case labels:
		want := t.Rules.Require[lacking(t.Rules, c.Cell)]
		if v, ok := valueOf(c.Labels, want.Key); ok {
			return fmt.Sprintf("%s is %s, and the tenant requires %s", want.Key, v, want.Value)
		}
		return fmt.Sprintf("has no label %s, and the tenant requires %s", want.Key, want.Value)
	case apart:
		return fmt.Sprintf("has %s, of the group %s too", s.memberOf(c, t.apart), t.Rules.Apart)
	case blastRadius:
		if len(c.tenants) >= s.cfg.TenantsMax {
			return fmt.Sprintf("has %d tenants, of at most %d", len(c.tenants), s.cfg.TenantsMax)
		}
		return fmt.Sprintf("has %d of the %d tenants of %s, of at most %d", c.members[t.of], t.of.tenants, t.of.id, s.membersMax(t, c))
	case capacity:
		return c.overfull(&t.day, &Day{}, c.bound)
	case failureReserve:
		return s.unreserved(t, c)
	case feasible, filters:
	}
	return "can have it"
}

func (s *Snapshot) memberOf(c *cellState, group int32) cell.TenantID {
	for _, i := range c.tenants {
		if s.tenants[i].apart == group {
			return s.tenants[i].ID
		}
	}
	return ""
}

// overfull says by how much a load beside what is backed is beyond a bound, in the hour and the resource in which that is worst.
func (c *cellState) overfull(d, backed *Day, bound Load) string {
	hour, of, worst := 0, compute, -math.MaxFloat64
	for h := range d {
		l := c.load[h].Add(d[h]).Add(backed[h])
		for r := range resources {
			if over := float64(l.amount(r)-bound.amount(r)) * c.inverse[r]; over > worst {
				hour, of, worst = h, r, over
			}
		}
	}
	l := c.load[hour].Add(d[hour]).Add(backed[hour])
	return fmt.Sprintf("%s would be %s at %02d:00, of at most %s", of, of.format(l.amount(of)), hour, of.format(bound.amount(of)))
}

func (s *Snapshot) unreserved(t *tenantState, c *cellState) string {
	switch {
	case len(c.tenants)+c.worstTenants >= s.cfg.TenantsMax:
		return fmt.Sprintf("would have %d tenants after the loss of another cell, of at most %d", len(c.tenants)+c.worstTenants+1, s.cfg.TenantsMax)
	case !c.spares(&t.day):
		return c.overfull(&t.day, &c.worst, c.capacity) + " after the loss of another cell"
	case t.apart != 0 && c.backsGroup(t.apart) != none:
		return fmt.Sprintf("another of the group %s would come here should %s be lost", t.Rules.Apart, s.cells[c.backsGroup(t.apart)].ID)
	default:
		return "no other cell has room for the tenant should this one be lost"
	}
}
