package placement

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// none is the index of no cell.
const none = -1

// unbounded is a capacity that bounds nothing and leaves room to subtract from.
const unbounded = math.MaxInt64 / 2

// Snapshot is what decisions are made on: cells, tenants and moves under way, at a time. Its methods leave it as it was, except for
// [Snapshot.Assume]. It is not safe for concurrent use.
type Snapshot struct {
	cfg           Config
	now           cell.Instant
	cells         []cellState   // in the order of their names
	tenants       []tenantState // in the order of their ids
	classes       []class
	classOf       map[string]int32
	apartOf       map[string]int32
	organizations map[cell.OrganizationID]*organization
	budget        budget
	reference     Load      // what tenants' sizes are shares of: the largest capacities of open pooled cells
	shares        []float64 // of the cells once more, side by side: each placement adds them up
	closed        int       // the cell that is being evacuated: it takes nobody, whatever its phase
	scratch       []choice
}

// cellState is a cell and what is in it.
type cellState struct {
	// First what is looked at for every tenant, close together in memory.
	kind    Kind
	share   float64    // the dominant share of settled in its largest hour
	inverse [3]float64 // one over the capacity that it is scored by
	space   Load       // what fits in every hour
	room    Load       // what fits in every hour beside the failure reserve
	tenants []int32    // at home here, or coming

	*Cell
	shareAt  *float64 // where the share stands once more
	hash     uint64
	bound    Load // what demand may fill
	capacity Load // what a cell that takes the tenants of a lost one may be filled to
	apart    map[int32]int32
	members  map[*organization]int32
	*sums

	// backing is what would come here, by the cell that is lost; nil for nothing. Of many only one is lost: the most tenants are worstTenants.
	backing      []*backed
	worstTenants int
}

// sums are a cell's by the hour: large, and looked at seldom, so that they lie elsewhere.
type sums struct {
	load    Day // of tenants at home here, leaving or not, and coming
	settled Day // without those that are leaving
	worst   Day // the largest that the loss of any one cell would bring
}

// backed is what would come to a cell when a certain one is lost.
type backed struct {
	load    Day
	tenants int
	apart   []int32
}

// tenantState is a tenant and where it is.
type tenantState struct {
	*Tenant
	hash    uint64
	day     Day
	top     Load
	topHour [3]int
	size    float64 // as a share of the reference
	class   int32
	apart   int32 // 0 for none
	of      *organization
	unknown bool // its home is no cell of the snapshot
	home    int
	going   int // none while it is not moving
	backup  int // where it goes when the cell that it is in, or going to, is lost; none when that is not known
}

// seat is where the tenant will be.
func (t *tenantState) seat() int {
	if t.going != none {
		return t.going
	}
	return t.home
}

// organization counts tenants wherever they are.
type organization struct {
	id      cell.OrganizationID
	tenants int
}

// NewSnapshot returns a snapshot. Ids are unique, and cfg has no faults. The snapshot keeps no order of what it is given, and reads cells and
// tenants where they are: they must not change while it is used. A tenant whose home is no cell of it counts as one without a home; a move of a
// tenant or to a cell that is not in it counts for the budget only.
func NewSnapshot(cfg Config, now cell.Instant, cells []Cell, tenants []Tenant, pending []Move) *Snapshot {
	s := &Snapshot{
		cfg: cfg, now: now, closed: none,
		cells: make([]cellState, len(cells)), shares: make([]float64, len(cells)), tenants: make([]tenantState, len(tenants)),
		classOf: map[string]int32{}, apartOf: map[string]int32{}, organizations: map[cell.OrganizationID]*organization{},
		budget: budgetOf(cfg, now, pending),
	}
	for i, c := range sortedBy(cells, func(c *Cell) cell.ID { return c.ID }) {
		s.cells[i] = newCellState(cfg, c, len(cells))
		s.cells[i].shareAt = &s.shares[i]
	}
	for i := range s.cells {
		if c := &s.cells[i]; c.Kind == KindPooled && c.Phase == PhaseOpen {
			s.reference = s.reference.Max(scored(cfg, c.Capacity.bounded()))
		}
	}
	if s.reference == (Load{}) {
		s.reference = cfg.Assumed
	}
	for i, t := range sortedBy(tenants, func(t *Tenant) cell.TenantID { return t.ID }) {
		s.tenants[i] = s.newTenantState(t)
		if of := s.tenants[i].of; of != nil {
			of.tenants++
		}
	}
	for _, m := range pending {
		if t, target := s.tenant(m.Tenant), s.cell(m.Target); t != none && target != none && m.Ended == 0 && target != s.tenants[t].home {
			s.tenants[t].going = target
		}
	}
	for i := range s.tenants {
		s.seatIn(int32(i))
	}
	for i := range s.cells {
		s.cells[i].measure()
	}
	if cfg.FailureReserve {
		for _, t := range s.bySize(func(t *tenantState) bool { return t.seat() != none }) {
			s.back(t, s.backupOf(t, s.tenants[t].seat()))
		}
	}
	return s
}

// sortedBy returns pointers to the items in the order of their keys.
func sortedBy[T any, K cmp.Ordered](items []T, key func(*T) K) []*T {
	sorted := make([]*T, len(items))
	for i := range items {
		sorted[i] = &items[i]
	}
	slices.SortFunc(sorted, func(a, b *T) int { return cmp.Compare(key(a), key(b)) })
	return sorted
}

func newCellState(cfg Config, c *Cell, cells int) cellState {
	capacity := c.Capacity.bounded()
	return cellState{
		kind: c.Kind, Cell: c, hash: hashOf(string(c.ID)), bound: bounding(capacity, cfg.FillMax), capacity: bounding(capacity, 1),
		inverse: inverse(scored(cfg, capacity)),
		sums:    &sums{}, apart: map[int32]int32{}, members: map[*organization]int32{}, backing: make([]*backed, cells),
	}
}

// scored returns what a cell of a capacity is scored by: the resources that it was tested in, or what is assumed when there is none.
func scored(cfg Config, capacity Load) Load {
	if capacity == (Load{}) {
		return cfg.Assumed
	}
	return capacity
}

// inverse returns one over each amount; 0 for none.
func inverse(of Load) (inverse [3]float64) {
	for r := range resources {
		if n := of.amount(r); n > 0 {
			inverse[r] = 1 / float64(n)
		}
	}
	return inverse
}

// bounding returns the part of a capacity that may be filled, where it was tested.
func bounding(capacity Load, fill float64) Load {
	bound := capacity.Scale(fill)
	if capacity.Compute == 0 {
		bound.Compute = unbounded
	}
	if capacity.Jobs == 0 {
		bound.Jobs = unbounded
	}
	if capacity.Bytes == 0 {
		bound.Bytes = unbounded
	}
	return bound
}

// newTenantState returns the tenant as it counts, at home but in no cell's sums yet.
func (s *Snapshot) newTenantState(t *Tenant) tenantState {
	st := tenantState{Tenant: t, hash: hashOf(string(t.ID)), home: none, going: none, backup: none}
	floor := s.cfg.DemandMin.Max(Load{Compute: max(t.Rules.ComputeMin, t.Reserved), Bytes: t.Bytes}.bounded())
	st.day = t.Profile.Day(floor)
	for h := range st.day {
		l := &st.day[h]
		if h == 0 || l.Compute > st.top.Compute {
			st.top.Compute, st.topHour[compute] = l.Compute, h
		}
		if h == 0 || l.Jobs > st.top.Jobs {
			st.top.Jobs, st.topHour[jobs] = l.Jobs, h
		}
		if h == 0 || l.Bytes > st.top.Bytes {
			st.top.Bytes, st.topHour[bytes] = l.Bytes, h
		}
	}
	st.size = st.top.Dominant(s.reference)
	st.class = s.classFor(t.Rules)
	if group := t.Rules.Apart; group != "" {
		if s.apartOf[group] == 0 {
			s.apartOf[group] = int32(len(s.apartOf) + 1)
		}
		st.apart = s.apartOf[group]
	}
	if t.Organization != "" {
		if s.organizations[t.Organization] == nil {
			s.organizations[t.Organization] = &organization{id: t.Organization}
		}
		st.of = s.organizations[t.Organization]
	}
	if t.Home != "" {
		st.home = s.cell(t.Home)
		st.unknown = st.home == none
	}
	return st
}

// hashOf is stable over processes and releases, and spread over all 64 bits.
func hashOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return mix(h.Sum64())
}

// mix is the finalizer of D. Stafford's "Better Bit Mixing", variant 13: each bit of x changes each bit of the result half the time.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// cell returns the index of a cell; none when the snapshot has no such cell.
func (s *Snapshot) cell(id cell.ID) int {
	i, ok := slices.BinarySearchFunc(s.cells, id, func(c cellState, id cell.ID) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return none
	}
	return i
}

// tenant returns the index of a tenant; none when the snapshot has no such tenant.
func (s *Snapshot) tenant(id cell.TenantID) int {
	i, ok := slices.BinarySearchFunc(s.tenants, id, func(t tenantState, id cell.TenantID) int { return cmp.Compare(t.ID, id) })
	if !ok {
		return none
	}
	return i
}

// bySize returns the tenants that are wanted, the largest first: what is hard to place is placed while there is room.
func (s *Snapshot) bySize(wanted func(*tenantState) bool) []int32 {
	var list []int32
	for i := range s.tenants {
		if wanted(&s.tenants[i]) {
			list = append(list, int32(i))
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.tenants[b].size, s.tenants[a].size), cmp.Compare(a, b)) // ids are in the indices' order
	})
	return list
}

// seatIn counts a tenant in the cells that it is in, without measuring them. A tenant on its way counts in both: the move may fail, and until it
// ends either may have its work.
func (s *Snapshot) seatIn(i int32) {
	t := &s.tenants[i]
	if t.home != none {
		c := &s.cells[t.home]
		c.enter(t, i)
		if t.going == none {
			c.settled.add(&t.day)
		}
	}
	if t.going != none {
		c := &s.cells[t.going]
		c.enter(t, i)
		c.settled.add(&t.day)
	}
}

// unseat is the inverse of seatIn.
func (s *Snapshot) unseat(i int32) {
	t := &s.tenants[i]
	if t.home != none {
		c := &s.cells[t.home]
		c.exit(t, i)
		if t.going == none {
			c.settled.sub(&t.day)
		}
	}
	if t.going != none {
		c := &s.cells[t.going]
		c.exit(t, i)
		c.settled.sub(&t.day)
	}
}

// measureOf measures the cells that a tenant is in.
func (s *Snapshot) measureOf(i int32) {
	for _, c := range [2]int{s.tenants[i].home, s.tenants[i].going} {
		if c != none {
			s.cells[c].measure()
		}
	}
}

// seatAt moves a tenant, in the snapshot, to where it is at home and where it is going, with a backup or none. It is its own inverse: called
// with what was before, it leaves no trace.
func (s *Snapshot) seatAt(i int32, home, going, backup int) {
	t := &s.tenants[i]
	s.back(i, none)
	s.unseat(i)
	s.measureOf(i)
	t.home, t.going = home, going
	s.seatIn(i)
	s.measureOf(i)
	s.back(i, backup)
}

func (c *cellState) enter(t *tenantState, i int32) {
	at, _ := slices.BinarySearch(c.tenants, i)
	c.tenants = slices.Insert(c.tenants, at, i)
	c.load.add(&t.day)
	if t.apart != 0 {
		c.apart[t.apart]++
	}
	if t.of != nil {
		c.members[t.of]++
	}
}

func (c *cellState) exit(t *tenantState, i int32) {
	at, _ := slices.BinarySearch(c.tenants, i)
	c.tenants = slices.Delete(c.tenants, at, at+1)
	c.load.sub(&t.day)
	if t.apart != 0 {
		c.apart[t.apart]--
	}
	if t.of != nil {
		c.members[t.of]--
	}
}

// measure brings what is derived from the cell's sums up to date.
func (c *cellState) measure() {
	peak := c.settled.Peak()
	c.share = c.dominant(peak)
	*c.shareAt = c.share
	c.space = Load{Compute: unbounded, Jobs: unbounded, Bytes: unbounded}
	c.room = c.space
	for h := range c.load {
		l, w := &c.load[h], &c.worst[h]
		c.space.Compute = min(c.space.Compute, c.bound.Compute-l.Compute)
		c.space.Jobs = min(c.space.Jobs, c.bound.Jobs-l.Jobs)
		c.space.Bytes = min(c.space.Bytes, c.bound.Bytes-l.Bytes)
		c.room.Compute = min(c.room.Compute, c.capacity.Compute-l.Compute-w.Compute)
		c.room.Jobs = min(c.room.Jobs, c.capacity.Jobs-l.Jobs-w.Jobs)
		c.room.Bytes = min(c.room.Bytes, c.capacity.Bytes-l.Bytes-w.Bytes)
	}
}

// dominant returns the dominant share of l in what the cell is scored by.
func (c *cellState) dominant(l Load) float64 {
	share := float64(l.Compute) * c.inverse[compute]
	if of := float64(l.Jobs) * c.inverse[jobs]; of > share {
		share = of
	}
	if of := float64(l.Bytes) * c.inverse[bytes]; of > share {
		share = of
	}
	return share
}

// add and sub are Add and Sub in place and without holding at the ends, which bounded amounts do not reach.
func (d *Day) add(m *Day) {
	for h := range d {
		d[h].Compute += m[h].Compute
		d[h].Jobs += m[h].Jobs
		d[h].Bytes += m[h].Bytes
	}
}

func (d *Day) sub(m *Day) {
	for h := range d {
		d[h].Compute -= m[h].Compute
		d[h].Jobs -= m[h].Jobs
		d[h].Bytes -= m[h].Bytes
	}
}

// CellLoad is what a cell carries.
type CellLoad struct {
	Cell    cell.ID
	Tenants int     // with those that are coming, and those that have not left yet
	Hours   Day     // of the same
	Settled Day     // once the moves under way have ended
	Share   float64 // the dominant share of Settled in its largest hour
}

// Loads returns every cell's load in the order of their names.
func (s *Snapshot) Loads() []CellLoad {
	loads := make([]CellLoad, len(s.cells))
	for i := range s.cells {
		c := &s.cells[i]
		loads[i] = CellLoad{Cell: c.ID, Tenants: len(c.tenants), Hours: c.load, Settled: c.settled, Share: c.share}
	}
	return loads
}

// DemandOf returns what a tenant of the snapshot counts for in each hour; false when there is none.
func (s *Snapshot) DemandOf(id cell.TenantID) (Day, bool) {
	i := s.tenant(id)
	if i == none {
		return Day{}, false
	}
	return s.tenants[i].day, true
}

// Imbalance returns the largest share of an open pooled cell over their average, once the moves under way have ended; 0 while they have no load.
func (s *Snapshot) Imbalance() float64 {
	n, total, most := 0, 0.0, 0.0
	for i := range s.cells {
		if c := &s.cells[i]; c.Kind == KindPooled && c.Phase == PhaseOpen && i != s.closed {
			n, total, most = n+1, total+c.share, max(most, c.share)
		}
	}
	if total == 0 {
		return 0
	}
	return most * float64(n) / total
}
