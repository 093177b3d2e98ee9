package route

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// Hash is the SHA-256 of a key's secret, by which control and gateways know it.
type Hash [32]byte

// Key is a live key.
type Key struct {
	Hash    Hash
	Caller  cell.Caller  // whom it stands for; Caller.Key is its id
	Expires cell.Instant // from when on it is none; 0 for never
}

// Lane is the home of a tenant: the cell of both its lanes, or of the interactive one while the batch lane's cell or epoch is another.
type Lane struct {
	Tenant cell.TenantID
	Cell   cell.ID
	Epoch  cell.Epoch
	// Of the batch lane where it is not the same; else both are zero.
	BatchCell  cell.ID
	BatchEpoch cell.Epoch
}

// Home returns the cell in which the tenant's lane of the class is at home, and since which epoch. What is not batch is interactive.
func (l Lane) Home(class cell.Class) (cell.ID, cell.Epoch) {
	if class == cell.ClassBatch && l.split() {
		return l.BatchCell, l.BatchEpoch
	}
	return l.Cell, l.Epoch
}

// Apart reports whether the tenant's lanes are in different cells.
func (l Lane) Apart() bool { return l.split() && l.BatchCell != l.Cell }

// split reports whether the batch lane is said apart from the other.
func (l Lane) split() bool { return l.BatchCell != "" }

// tidy returns l as it is kept: equal homes in the same form.
func (l Lane) tidy() Lane {
	if !l.split() || l.BatchCell == l.Cell && l.BatchEpoch == l.Epoch {
		l.BatchCell, l.BatchEpoch = "", 0
	}
	return l
}

// after returns l where old was known before: of each class the home of the newer epoch.
func (l Lane) after(old Lane) Lane {
	batch, batchEpoch := l.Home(cell.ClassBatch)
	if was, epoch := old.Home(cell.ClassBatch); batchEpoch < epoch {
		batch, batchEpoch = was, epoch
	}
	if l.Epoch < old.Epoch {
		l.Cell, l.Epoch = old.Cell, old.Epoch
	}
	l.BatchCell, l.BatchEpoch = batch, batchEpoch
	return l.tidy()
}

// Phase says what a cell takes. The numbers are part of the file's format.
type Phase uint8

// The phases.
const (
	PhaseForming  Phase = 1 // waiting for its agents
	PhaseOpen     Phase = 2
	PhaseCordoned Phase = 3 // no new tenants
	PhaseDraining Phase = 4 // no new tenants and no new jobs
)

func (p Phase) String() string {
	switch p {
	case PhaseForming:
		return "forming"
	case PhaseOpen:
		return "open"
	case PhaseCordoned:
		return "cordoned"
	case PhaseDraining:
		return "draining"
	default:
		return fmt.Sprintf("phase(%d)", uint8(p))
	}
}

// Replica is an agent that serves a log: control's or a cell's.
type Replica struct {
	Name    string
	Address string // host and port of its API
}

// Cell is where a cell is.
type Cell struct {
	Name     cell.ID
	Phase    Phase
	Replicas []Replica
}

// Update is what control says next. What it does not name stays as it is.
type Update struct {
	Index uint64 // of control's log: what the update is true of
	// Reset makes a beginning: this update, and those after it until one is Complete, are all there is.
	Reset, Complete bool

	Keys           []Key
	KeysRemoved    []string // ids
	Lanes          []Lane
	TenantsRemoved []cell.TenantID
	Cells          []Cell
	CellsRemoved   []cell.ID
	Control        []Replica // all of them; empty for no change
	FeatureLevel   int       // 0 for no change
}

// Heartbeat reports whether u says no more than that its index is reached.
func (u *Update) Heartbeat() bool {
	return !u.Reset && !u.Complete && len(u.Keys)+len(u.KeysRemoved)+len(u.Lanes)+len(u.TenantsRemoved)+len(u.Cells)+
		len(u.CellsRemoved)+len(u.Control) == 0 && u.FeatureLevel == 0
}

// Table is one generation of routes. Use [NewTable]. It is immutable: its methods may be called concurrently, and what they return must
// not be changed.
type Table struct {
	index   uint64
	content uint64 // rises with every change but that of the index
	known   bool   // it has been complete once
	level   int
	keys    shards[Hash, Key]
	ids     shards[string, Hash] // of keys, by their ids
	lanes   shards[cell.TenantID, Lane]
	cells   []Cell // in the order of their names
	control []Replica

	staged []Update // of a beginning that is not complete; nil for none
}

// NewTable returns a table that knows nothing.
func NewTable() *Table {
	return &Table{
		keys: shards[Hash, Key]{of: ofHash}, ids: shards[string, Hash]{of: ofString[string]},
		lanes: shards[cell.TenantID, Lane]{of: ofString[cell.TenantID]},
	}
}

// Index returns the index of control's log that the table is true of; 0 for one that knows nothing.
func (t *Table) Index() uint64 { return t.index }

// Known reports whether control has told all that there is, at some time.
func (t *Table) Known() bool { return t.known }

// Content returns a number that is another whenever anything but the index is, among tables that were made one from the other.
func (t *Table) Content() uint64 { return t.content }

// Beginning reports whether parts of a beginning are there and its last is not.
func (t *Table) Beginning() bool { return t.staged != nil }

// FeatureLevel returns what every agent may rely on; 0 when not known.
func (t *Table) FeatureLevel() int { return t.level }

// Keys returns how many keys are live.
func (t *Table) Keys() int { return t.keys.count }

// Tenants returns how many tenants have a home.
func (t *Table) Tenants() int { return t.lanes.count }

// Lookup returns whose key has the hash h at the time now. It returns false when there is none, or it has expired.
func (t *Table) Lookup(h Hash, now cell.Instant) (cell.Caller, bool) {
	k, ok := t.keys.get(h)
	if !ok || k.Expires != 0 && now >= k.Expires {
		return cell.Caller{}, false
	}
	return k.Caller, true
}

// Lane returns where the tenant's lanes are at home. It returns false when it has no home.
func (t *Table) Lane(id cell.TenantID) (Lane, bool) { return t.lanes.get(id) }

// Cell returns the cell of that name.
func (t *Table) Cell(name cell.ID) (Cell, bool) {
	i, ok := slices.BinarySearchFunc(t.cells, name, func(c Cell, name cell.ID) int { return cmp.Compare(c.Name, name) })
	if !ok {
		return Cell{}, false
	}
	return t.cells[i], true
}

// Cells returns every cell in the order of their names.
func (t *Table) Cells() []Cell { return t.cells }

// Control returns the control agents in the order of their names.
func (t *Table) Control() []Replica { return t.control }

// Abandon returns t without what a beginning has brought that was not completed: whoever sent it is gone.
func (t *Table) Abandon() *Table {
	if t.staged == nil {
		return t
	}
	next := *t
	next.staged = nil
	return &next
}

// Apply returns the table after u: t itself when u changes nothing, because it is older than what t is true of, says nothing new, or adds to
// a table that has never been complete.
func (t *Table) Apply(u Update) *Table {
	switch {
	case u.Reset && !u.Complete:
		next := *t
		next.staged = []Update{u}
		return &next
	case u.Reset:
		return t.begun([]Update{u})
	case t.staged != nil && !u.Complete:
		next := *t
		next.staged = append(slices.Clone(t.staged), u)
		return &next
	case t.staged != nil:
		return t.begun(append(slices.Clone(t.staged), u))
	case !t.known, u.Index < t.index: // nothing that changes would be of any use without all that does not
		return t
	case u.Heartbeat() && u.Index == t.index:
		return t
	}
	return t.with(u)
}

// begun returns the table that the parts of a beginning make. Of t there remain lanes that the parts would take back to an older epoch.
func (t *Table) begun(parts []Update) *Table {
	next := NewTable()
	for _, u := range parts {
		u.Index = max(u.Index, next.index)
		next = next.with(u)
	}
	lanes := edited(&next.lanes)
	for _, piece := range t.lanes.pieces {
		for id, old := range piece { // order-free: each lane is looked at alone
			if l, ok := lanes.get(id); ok {
				if newer := l.after(old); newer != l {
					lanes.set(id, newer)
				}
			}
		}
	}
	next.lanes, next.known, next.content = lanes.shards, true, t.content+1
	return next
}

func (t *Table) with(u Update) *Table {
	next := *t
	next.index = u.Index
	if !u.Heartbeat() {
		next.content++
	}
	next.changeKeys(u)
	next.changeLanes(u)
	next.changeCells(u)
	if len(u.Control) > 0 {
		next.control = slices.SortedFunc(slices.Values(u.Control), byName)
	}
	if u.FeatureLevel != 0 {
		next.level = u.FeatureLevel
	}
	return &next
}

func byName(a, b Replica) int { return strings.Compare(a.Name, b.Name) }

func (t *Table) changeKeys(u Update) {
	if len(u.Keys)+len(u.KeysRemoved) == 0 {
		return
	}
	keys, ids := edited(&t.keys), edited(&t.ids)
	remove := func(id string) {
		if h, ok := ids.get(id); ok {
			keys.remove(h)
			ids.remove(id)
		}
	}
	for _, id := range u.KeysRemoved {
		remove(id)
	}
	for _, k := range u.Keys {
		remove(k.Caller.Key) // its secret may be another than before
		if old, ok := keys.get(k.Hash); ok {
			ids.remove(old.Caller.Key)
		}
		keys.set(k.Hash, k)
		ids.set(k.Caller.Key, k.Hash)
	}
	t.keys, t.ids = keys.shards, ids.shards
}

func (t *Table) changeLanes(u Update) {
	if len(u.Lanes)+len(u.TenantsRemoved) == 0 {
		return
	}
	lanes := edited(&t.lanes)
	for _, id := range u.TenantsRemoved {
		lanes.remove(id)
	}
	for _, l := range u.Lanes {
		l = l.tidy()
		if old, ok := lanes.get(l.Tenant); ok {
			l = l.after(old)
		}
		lanes.set(l.Tenant, l)
	}
	t.lanes = lanes.shards
}

func (t *Table) changeCells(u Update) {
	if len(u.Cells)+len(u.CellsRemoved) == 0 {
		return
	}
	cells := make(map[cell.ID]Cell, len(t.cells)+len(u.Cells))
	for _, c := range t.cells {
		cells[c.Name] = c
	}
	for _, name := range u.CellsRemoved {
		delete(cells, name)
	}
	for _, c := range u.Cells {
		c.Replicas = slices.SortedFunc(slices.Values(c.Replicas), byName)
		cells[c.Name] = c
	}
	t.cells = slices.SortedFunc(maps.Values(cells), func(a, b Cell) int { return cmp.Compare(a.Name, b.Name) })
}

// everything returns t as the update that makes it out of nothing. Keys and lanes are in the order of their ids, so that equal tables have
// equal bytes.
func (t *Table) everything() Update {
	u := Update{
		Index: t.index, Reset: true, Complete: true, Cells: t.cells, Control: t.control, FeatureLevel: t.level,
		Keys: make([]Key, 0, t.keys.count), Lanes: make([]Lane, 0, t.lanes.count),
	}
	for _, piece := range t.keys.pieces {
		u.Keys = slices.AppendSeq(u.Keys, maps.Values(piece)) // order-free: they are sorted below
	}
	for _, piece := range t.lanes.pieces {
		u.Lanes = slices.AppendSeq(u.Lanes, maps.Values(piece)) // order-free: they are sorted below
	}
	slices.SortFunc(u.Keys, func(a, b Key) int { return strings.Compare(a.Caller.Key, b.Caller.Key) })
	slices.SortFunc(u.Lanes, func(a, b Lane) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return u
}
