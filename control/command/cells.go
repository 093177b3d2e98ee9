package command

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// VotersMax bounds the voters of a cell's log: those it is meant to have, and those that are being replaced.
const VotersMax = 7

// Replica is a voter of a cell's log.
type Replica struct {
	Name        AgentName
	RaftAddress string // host and port, as the others dial it; empty in a process that is its cell's only one
}

// CreateCell makes the record of a cell, which waits for its agents.
type CreateCell struct {
	Cell     cell.ID
	Kind     placement.Kind
	Replicas int               // voters of its log: 1 or 3
	Labels   []placement.Label // rising by key
	Capacity placement.Load    // what it was tested to carry
	Groups   int               // worker groups that tenants are dealt hands of; 0 for none
	Hand     int               // groups of a hand; 0 with Groups 0
	Time     cell.Instant
}

// UpdateCell changes what is not nil.
type UpdateCell struct {
	Cell     cell.ID
	Labels   *[]placement.Label
	Capacity *placement.Load
	Groups   *int
	Hand     *int
	Time     cell.Instant
}

// SetCellPhase cordons or drains a cell, or ends that.
type SetCellPhase struct {
	Cell  cell.ID
	Phase placement.Phase // any but forming
	Time  cell.Instant
	// Evacuate marks the cell, which must not be open then: its tenants are moved off. The mark stays until the cell is open again.
	Evacuate bool
}

// SetCellVoters records which agents have the votes of a cell's log. The first time it opens the cell.
type SetCellVoters struct {
	Cell       cell.ID
	Voters     []Replica // rising by name
	Generation uint64    // of the cell's record that it was decided on
	Time       cell.Instant
}

// DeleteCell removes the record of a cell without tenants, and those of its agents.
type DeleteCell struct {
	Cell cell.ID
	Time cell.Instant
}

// Type implements [Command].
func (CreateCell) Type() Type { return TypeCreateCell }

// Type implements [Command].
func (UpdateCell) Type() Type { return TypeUpdateCell }

// Type implements [Command].
func (SetCellPhase) Type() Type { return TypeSetCellPhase }

// Type implements [Command].
func (SetCellVoters) Type() Type { return TypeSetCellVoters }

// Type implements [Command].
func (DeleteCell) Type() Type { return TypeDeleteCell }

// At implements [Command].
func (c CreateCell) At() cell.Instant { return c.Time }

// At implements [Command].
func (c UpdateCell) At() cell.Instant { return c.Time }

// At implements [Command].
func (c SetCellPhase) At() cell.Instant { return c.Time }

// At implements [Command].
func (c SetCellVoters) At() cell.Instant { return c.Time }

// At implements [Command].
func (c DeleteCell) At() cell.Instant { return c.Time }

func (c CreateCell) check() error {
	if c.Replicas != 1 && c.Replicas != 3 {
		return &cell.FieldError{
			Field: "replicas", Problem: fmt.Sprintf("is %d", c.Replicas), Remedy: "use 3 to survive the loss of a machine, or 1",
		}
	}
	if c.Kind != placement.KindPooled && c.Kind != placement.KindDedicated {
		return &cell.FieldError{Field: "kind", Problem: fmt.Sprintf("is %v, which is none", c.Kind), Remedy: "use pooled or dedicated"}
	}
	return first(
		cell.CheckID("name", string(c.Cell)),
		placement.CheckLabels("labels", c.Labels),
		checkLoad("capacity", c.Capacity),
		CheckHand(c.Groups, c.Hand),
		checkTime(c.Time),
	)
}

func (c UpdateCell) check() error {
	if c == (UpdateCell{Cell: c.Cell, Time: c.Time}) {
		return first(cell.CheckID("name", string(c.Cell)), &cell.FieldError{
			Field: "request", Problem: "changes nothing", Remedy: "set at least one of labels, capacity, worker_groups and hand",
		})
	}
	return first(
		cell.CheckID("name", string(c.Cell)),
		given(c.Labels, func(ls []placement.Label) error { return placement.CheckLabels("labels", ls) }),
		given(c.Capacity, func(l placement.Load) error { return checkLoad("capacity", l) }),
		given(c.Groups, func(n int) error { return checkCount("worker_groups", n, cell.WorkerGroupsMax) }),
		given(c.Hand, func(n int) error { return checkCount("hand", n, cell.WorkerGroupsMax) }), // the state knows the other
		checkTime(c.Time),
	)
}

func (c SetCellPhase) check() error {
	switch c.Phase {
	case placement.PhaseOpen:
		if c.Evacuate {
			return &cell.FieldError{Field: "phase", Problem: "is open, of a cell that is to be evacuated", Remedy: "cordon it"}
		}
		fallthrough
	case placement.PhaseCordoned, placement.PhaseDraining:
		return first(cell.CheckID("name", string(c.Cell)), checkTime(c.Time))
	case placement.PhaseForming:
		fallthrough // a cell leaves it by its voters
	default:
		return &cell.FieldError{
			Field: "phase", Problem: fmt.Sprintf("is %v, which nobody sets", c.Phase), Remedy: "use open, cordoned or draining",
		}
	}
}

func (c SetCellVoters) check() error {
	if len(c.Voters) == 0 || len(c.Voters) > VotersMax {
		return &cell.FieldError{
			Field: "voters", Problem: fmt.Sprintf("has %d entries, outside 1 to %d", len(c.Voters), VotersMax),
			Remedy: "give the replicas of the cell's log that vote",
		}
	}
	for i, r := range c.Voters {
		field := fmt.Sprintf("voters[%d]", i)
		if err := first(cell.CheckID(field, string(r.Name)), checkAddress(field, r.RaftAddress)); err != nil {
			return err
		}
		if i > 0 && r.Name <= c.Voters[i-1].Name {
			return &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %s, which is there twice or not in order", r.Name), Remedy: "sort them by name"}
		}
	}
	return first(cell.CheckID("name", string(c.Cell)), checkTime(c.Time))
}

func (c DeleteCell) check() error {
	return first(cell.CheckID("name", string(c.Cell)), checkTime(c.Time))
}

// CheckHand returns a *[cell.FieldError] unless a hand of so many can be dealt of so many worker groups, or both are 0.
func CheckHand(groups, hand int) error {
	if err := first(checkCount("worker_groups", groups, cell.WorkerGroupsMax), checkCount("hand", hand, cell.WorkerGroupsMax)); err != nil {
		return err
	}
	if hand > groups || groups > 0 && hand == 0 {
		return &cell.FieldError{
			Field: "hand", Problem: fmt.Sprintf("is %d, of %d worker groups", hand, groups),
			Remedy: "give 1 to as many as there are groups, or 0 for both",
		}
	}
	return nil
}

func checkCount(field string, n, most int) error {
	if n >= 0 && n <= most {
		return nil
	}
	return &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %d, outside 0 to %d", n, most), Remedy: "give a count within them"}
}

func checkLoad(field string, l placement.Load) error {
	for _, part := range []struct {
		name string
		n    int64
	}{{"compute", int64(l.Compute)}, {"jobs", l.Jobs}, {"bytes", l.Bytes}} {
		if part.n < 0 || part.n > placement.AmountMax {
			return &cell.FieldError{
				Field: field + "." + part.name, Problem: fmt.Sprintf("is %d, outside 0 to %d", part.n, int64(placement.AmountMax)),
				Remedy: "give what was measured, or 0",
			}
		}
	}
	return nil
}

func (c CreateCell) body() []byte {
	b := appendText(nil, 1, string(c.Cell))
	b = appendNumber(b, 2, int64(c.Kind))
	b = appendNumber(b, 3, int64(c.Replicas))
	for _, l := range c.Labels {
		b = appendBytes(b, 4, labelBody(l))
	}
	b = appendPart(b, 5, loadBody(c.Capacity))
	b = appendNumber(b, 6, int64(c.Groups))
	b = appendNumber(b, 7, int64(c.Hand))
	return appendNumber(b, 8, c.Time)
}

func setCreateCell(c *CreateCell, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(2, varint) && f.n <= math.MaxUint8:
		c.Kind = placement.Kind(f.n)
	case f.is(3, varint):
		c.Replicas = int(f.n)
	case f.is(4, bytes):
		return addPart(&c.Labels, f, setLabel)
	case f.is(5, bytes):
		return setPart(&c.Capacity, f, setLoad)
	case f.is(6, varint):
		c.Groups = int(f.n)
	case f.is(7, varint):
		c.Hand = int(f.n)
	case f.is(8, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

// Labels that are given are a part of their own, so that none differs from not given.
func (c UpdateCell) body() []byte {
	b := appendText(nil, 1, string(c.Cell))
	if c.Labels != nil {
		var labels []byte
		for _, l := range *c.Labels {
			labels = appendBytes(labels, 1, labelBody(l))
		}
		b = appendBytes(b, 2, labels)
	}
	if c.Capacity != nil {
		b = appendBytes(b, 3, loadBody(*c.Capacity))
	}
	b = appendCount(b, 4, c.Groups)
	b = appendCount(b, 5, c.Hand)
	return appendNumber(b, 6, c.Time)
}

func setUpdateCell(c *UpdateCell, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(2, bytes):
		c.Labels = new([]placement.Label)
		return setPart(c.Labels, f, func(labels *[]placement.Label, f field) bool {
			return f.is(1, bytes) && addPart(labels, f, setLabel)
		})
	case f.is(3, bytes):
		c.Capacity = new(placement.Load)
		return setPart(c.Capacity, f, setLoad)
	case f.is(4, varint):
		c.Groups = new(int(f.n))
	case f.is(5, varint):
		c.Hand = new(int(f.n))
	case f.is(6, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func (c SetCellPhase) body() []byte {
	b := appendNumber(appendNumber(appendText(nil, 1, string(c.Cell)), 2, int64(c.Phase)), 3, c.Time)
	return appendFlag(b, 4, c.Evacuate)
}

func setSetCellPhase(c *SetCellPhase, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(2, varint) && f.n <= math.MaxUint8:
		c.Phase = placement.Phase(f.n)
	case f.is(3, varint):
		c.Time = cell.Instant(f.n)
	case f.is(4, varint):
		c.Evacuate = f.n != 0
	default:
		return false
	}
	return true
}

func (c SetCellVoters) body() []byte {
	b := appendText(nil, 1, string(c.Cell))
	for _, r := range c.Voters {
		b = appendBytes(b, 2, appendText(appendText(nil, 1, string(r.Name)), 2, r.RaftAddress))
	}
	b = appendUnsigned(b, 3, c.Generation)
	return appendNumber(b, 4, c.Time)
}

func setSetCellVoters(c *SetCellVoters, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(2, bytes):
		return addPart(&c.Voters, f, setReplica)
	case f.is(3, varint):
		c.Generation = f.n
	case f.is(4, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func setReplica(r *Replica, f field) bool {
	switch {
	case f.is(1, bytes):
		r.Name = AgentName(f.b)
	case f.is(2, bytes):
		r.RaftAddress = string(f.b)
	default:
		return false
	}
	return true
}

func (c DeleteCell) body() []byte { return appendNumber(appendText(nil, 1, string(c.Cell)), 2, c.Time) }

func setDeleteCell(c *DeleteCell, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(2, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func labelBody(l placement.Label) []byte { return appendText(appendText(nil, 1, l.Key), 2, l.Value) }

func setLabel(l *placement.Label, f field) bool {
	switch {
	case f.is(1, bytes):
		l.Key = string(f.b)
	case f.is(2, bytes):
		l.Value = string(f.b)
	default:
		return false
	}
	return true
}

func loadBody(l placement.Load) []byte {
	return appendNumber(appendNumber(appendNumber(nil, 1, l.Compute), 2, l.Jobs), 3, l.Bytes)
}

func setLoad(l *placement.Load, f field) bool {
	switch {
	case f.is(1, varint):
		l.Compute = cell.Rate(f.n)
	case f.is(2, varint):
		l.Jobs = int64(f.n)
	case f.is(3, varint):
		l.Bytes = int64(f.n)
	default:
		return false
	}
	return true
}
