package tree

import (
	"math/bits"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// Tenant is a tenant that the tree knows: a handle that stays the same for as long as the tree does.
type Tenant[T any] struct {
	id           cell.TenantID
	organization *organization[T] // nil: it stands directly below the cell
	weight       cell.Weight
	epoch        cell.Epoch
	policy       *cell.TenantPolicy // nil: nothing is said in it but what stands above
	meter        *meter[T]          // nil: neither limit nor credit
	held         int32              // caps of its own in the way
	limited      bool               // its limit's tag is ahead
	lanes        [2]Lane[T]
}

// ID returns the tenant's id.
func (n *Tenant[T]) ID() cell.TenantID { return n.id }

// Policy returns the policy that the tenant was given last.
func (n *Tenant[T]) Policy() cell.TenantPolicy {
	if n.policy != nil {
		return *n.policy
	}
	p := cell.TenantPolicy{Tenant: n.id, Weight: n.weight, Epoch: n.epoch}
	if n.organization != nil {
		p.Organization = n.organization.policy.Organization
	}
	return p
}

// Groups returns the hand of the policy that the tenant was given last. The tree does not go by it: whoever activates lanes does.
func (n *Tenant[T]) Groups() uint64 {
	if n.policy == nil {
		return 0
	}
	return n.policy.Groups
}

// Lane returns the tenant's lane of a class.
func (n *Tenant[T]) Lane(class cell.Class) *Lane[T] { return &n.lanes[class.Index()] }

// Lane is a tenant in a class: what has a turn. It is the node of an organization in a class too, inside the package.
type Lane[T any] struct {
	// Value is the caller's; the package never looks at it.
	Value T

	tenant  *Tenant[T]          // nil: an organization's node
	flow    *drr.Flow[*Lane[T]] // its place in its parent's rotation; nil until it is needed
	extra   *extra[T]           // what few lanes have
	sets    uint64              // where it is active; for an organization's, where any lane of its own may run
	charged int64
	class   uint8     // cell.Class.Index
	last    drr.SetID // where the rotation charged it last
}

// Tenant returns whose lane it is.
func (l *Lane[T]) Tenant() *Tenant[T] { return l.tenant }

// Class returns the lane's class.
func (l *Lane[T]) Class() cell.Class { return cell.Classes()[l.class] }

// Active reports whether the lane was activated in the set; it may be blocked all the same.
func (l *Lane[T]) Active(set drr.SetID) bool { return set < drr.MaxSets && l.sets>>set&1 == 1 }

// organization is a parent of tenants.
type organization[T any] struct {
	policy   cell.OrganizationPolicy
	reserved [2]cell.Rate // the sum of its tenants' reservations
	meter    *meter[T]    // nil: no limit
	limited  bool         // its limit's tag is ahead
	runnable int          // its lanes that nothing of their tenants' blocks, counted once for each offer set
	branches [2]branch[T]
}

// branch is an organization in a class.
type branch[T any] struct {
	node         Lane[T]
	extra        extra[T] // of node
	organization *organization[T]
	ring         *drr.Ring[*Lane[T]] // the rotation of its tenants; nil until there is one
	boughs       bySet[bough[T]]
}

// bough is an organization in a class and an offer set: what of it may run, seen from below the organization's own limit.
type bough[T any] struct {
	runnable         int // lanes
	reserved, credit heap[T]
	// The organization's places among what stands directly below the cell.
	leastReserved, leastCredit seat[T]
	// floor is what any R inside counts as at least: when the organization begins to wait, its lanes may have waited for long.
	floor int64
}

// bough returns the branch's part in a set, made if need be.
func (b *branch[T]) bough(set drr.SetID) *bough[T] {
	g, made := b.boughs.open(set)
	if made {
		g.floor = never
		g.leastReserved.id, g.leastCredit.id = b.node.id(), b.node.id()
	}
	return g
}

// branch returns the organization's part that the lane stands in; nil when it stands directly below the cell.
func (l *Lane[T]) branch() *branch[T] {
	if l.tenant == nil || l.tenant.organization == nil {
		return nil
	}
	return &l.tenant.organization.branches[l.class]
}

// id is what breaks ties between the node and its siblings.
func (l *Lane[T]) id() string {
	if l.tenant == nil {
		return string(l.extra.branch.organization.policy.Organization)
	}
	return string(l.tenant.id)
}

// name is the tenant's id, and nothing for an organization's node.
func (l *Lane[T]) name() cell.TenantID {
	if l.tenant == nil {
		return ""
	}
	return l.tenant.id
}

func (l *Lane[T]) more() *extra[T] {
	if l.extra == nil {
		l.extra = &extra[T]{}
	}
	return l.extra
}

// weight is what its share is in proportion to.
func (l *Lane[T]) weight() drr.Weight {
	if l.tenant == nil {
		return drr.Weight(l.extra.branch.organization.policy.Weight)
	}
	return drr.Weight(l.tenant.weight)
}

// first returns the first of some sets, of which there is one at least.
func first(sets uint64) drr.SetID { return drr.SetID(bits.TrailingZeros64(sets)) }
