package state

import (
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
)

// Cell is a row of the table of cells. Its slices are shared and must not be changed.
type Cell struct {
	ID       cell.ID
	Kind     placement.Kind
	Phase    placement.Phase
	Replicas int               // how many voters its log is meant to have
	Labels   []placement.Label // rising by key
	Capacity placement.Load
	Groups   int // worker groups that tenants are dealt hands of
	Hand     int // groups of a hand
	// Voters of its log, rising by name; none while it is forming.
	Voters []command.Replica
	// Reformed says that other agents have the votes than when it was formed.
	Reformed bool
	// Generation rises with every change of the record. What tenants the cell has is not part of it.
	Generation uint64
	Created    cell.Instant
	Updated    cell.Instant
	// Evacuating says that its tenants are to be moved off.
	Evacuating bool
	// Tenants is how many have a lane at home here: a count that is kept, so that no change looks at all of them. It is in no snapshot.
	Tenants int
}

// Cell returns the cell, if there is one.
func (v View) Cell(id cell.ID) (Cell, bool) { return get[Cell](v.db, tableCells, byID, string(id)) }

// Cells returns the cells whose name is above after, in the order of their names.
func (v View) Cells(after cell.ID) iter.Seq[Cell] {
	return above(v.db, tableCells, byID, func(c Cell) bool { return c.ID > after }, string(after))
}

// PhaseError is returned when a cell is not in a phase in which something may be done.
type PhaseError struct {
	Cell   cell.ID
	Phase  placement.Phase // that it is in
	Remedy string
}

func (e *PhaseError) Error() string {
	return fmt.Sprintf("cell %s is %v: %s", e.Cell, e.Phase, e.Remedy)
}

// StaleError is returned when what a command was decided on has changed since: nothing was done, and it should be decided anew.
type StaleError struct {
	Kind     Kind
	ID       string
	Expected uint64 // the epoch of an assignment, or the generation of a cell, that the command expects; 0 for none
	Current  uint64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s of %s is at %d and not at %d any more: look at it again and decide anew", e.Kind, e.ID, e.Current, e.Expected)
}

// InUseError is returned when something cannot go since something else needs it.
type InUseError struct {
	Kind   Kind
	ID     string
	By     string // who needs it
	Remedy string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s %s is in use by %s: %s", e.Kind, e.ID, e.By, e.Remedy)
}

// same reports whether c is as the command made it, whatever tenants have come since.
func (c Cell) same(o Cell) bool {
	return c.ID == o.ID && c.Kind == o.Kind && c.Phase == o.Phase && c.Replicas == o.Replicas && slices.Equal(c.Labels, o.Labels) &&
		c.Capacity == o.Capacity && c.Groups == o.Groups && c.Hand == o.Hand && slices.Equal(c.Voters, o.Voters) && c.Generation == o.Generation
}

func (s *State) createCell(c command.CreateCell) Result {
	row := Cell{
		ID: c.Cell, Kind: c.Kind, Phase: placement.PhaseForming, Replicas: c.Replicas, Labels: c.Labels, Capacity: c.Capacity, Groups: c.Groups,
		Hand: c.Hand, Generation: 1, Created: s.head.clock, Updated: s.head.clock,
	}
	if old, ok := s.View().Cell(c.Cell); ok {
		if old.same(row) && c.Time == old.Created { // the same command again, as of a tenant
			return Result{Cell: old, Repeated: true}
		}
		return Result{Refused: &ExistsError{KindCell, string(c.Cell)}}
	}
	if s.head.cells >= CellsMax {
		return Result{Refused: &cell.LimitError{
			Limit: limitCells, Scope: cell.ScopeCell, Value: int64(s.head.cells) + 1, Bound: CellsMax, Remedy: "run a second platform for further cells",
		}}
	}
	s.put(tableCells, &row)
	s.head.cells++
	return Result{Cell: row}
}

func (s *State) updateCell(c command.UpdateCell) Result {
	row, ok := s.View().Cell(c.Cell)
	if !ok {
		return Result{Refused: &NotFoundError{KindCell, string(c.Cell)}}
	}
	groups := row.Groups
	set(&row.Labels, c.Labels)
	set(&row.Capacity, c.Capacity)
	set(&row.Groups, c.Groups)
	set(&row.Hand, c.Hand)
	if err := command.CheckHand(row.Groups, row.Hand); err != nil { // of what it has and what is given together
		return Result{Refused: err}
	}
	if row.Groups < groups && (row.Tenants > 0 || s.View().moves(row.ID)) {
		return Result{Refused: &cell.FieldError{
			Field:   "worker_groups",
			Problem: fmt.Sprintf("is %d, below the %d that hands were dealt of to %d tenants, and to those that are moving", row.Groups, groups, row.Tenants),
			Remedy:  "give more groups, or evacuate the cell first",
		}}
	}
	return s.changeCell(row)
}

func (s *State) setCellPhase(c command.SetCellPhase) Result {
	row, ok := s.View().Cell(c.Cell)
	switch {
	case !ok:
		return Result{Refused: &NotFoundError{KindCell, string(c.Cell)}}
	case row.Phase == c.Phase && (row.Evacuating || !c.Evacuate):
		return Result{Cell: row, Repeated: true}
	case row.Phase == placement.PhaseForming:
		return Result{Refused: &PhaseError{c.Cell, row.Phase, "wait until its agents have registered and it is open"}}
	case row.Phase == placement.PhaseDraining && c.Phase == placement.PhaseOpen:
		return Result{Refused: &PhaseError{c.Cell, row.Phase, "end the drain first, which leaves it cordoned"}}
	}
	row.Phase = c.Phase
	row.Evacuating = c.Phase != placement.PhaseOpen && (row.Evacuating || c.Evacuate)
	return s.changeCell(row)
}

func (s *State) setCellVoters(c command.SetCellVoters) Result {
	row, ok := s.View().Cell(c.Cell)
	forming := row.Phase == placement.PhaseForming
	switch {
	case !ok:
		return Result{Refused: &NotFoundError{KindCell, string(c.Cell)}}
	case !forming && slices.Equal(row.Voters, c.Voters):
		return Result{Cell: row, Repeated: true}
	case row.Generation != c.Generation:
		return Result{Refused: &StaleError{KindCell, string(c.Cell), c.Generation, row.Generation}}
	case forming && len(c.Voters) != row.Replicas:
		return Result{Refused: &cell.FieldError{
			Field: "voters", Problem: fmt.Sprintf("has %d entries, of %d replicas", len(c.Voters), row.Replicas), Remedy: "form a log with all of its replicas",
		}}
	}
	if !forming && !slices.EqualFunc(row.Voters, c.Voters, func(a, b command.Replica) bool { return a.Name == b.Name }) {
		row.Reformed = true
	}
	row.Voters = c.Voters
	if forming {
		row.Phase = placement.PhaseOpen
	}
	return s.changeCell(row)
}

func (s *State) deleteCell(c command.DeleteCell) Result {
	row, ok := s.View().Cell(c.Cell)
	if !ok {
		return Result{Refused: &NotFoundError{KindCell, string(c.Cell)}}
	}
	if row.Tenants > 0 {
		return Result{Refused: &InUseError{KindCell, string(c.Cell), fmt.Sprintf("%d tenants", row.Tenants), "evacuate it first"}}
	}
	for m := range s.View().LiveMigrations() {
		if m.Names(row.ID) {
			return Result{Refused: &InUseError{KindCell, string(c.Cell), "migration " + string(m.ID), "wait until it has ended, or abort or complete it"}}
		}
	}
	// Its agents' records go with it: a cell of the same name that is made later has nothing to do with the logs that they once had. Those that are
	// alive register again.
	for a := range s.View().AgentsOf(c.Cell) {
		s.drop(tableAgents, &a)
		s.head.agents--
	}
	s.drop(tableCells, &row)
	s.head.cells--
	return Result{Cell: row}
}

// changeCell replaces a cell's record by a later generation of it.
func (s *State) changeCell(row Cell) Result {
	row.Generation++
	row.Updated = s.head.clock
	s.put(tableCells, &row)
	return Result{Cell: row}
}

// set makes to what from points to, if that is anything.
func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func appendCell(b []byte, c Cell) []byte {
	b = text(b, 1, string(c.ID))
	b = number(b, 2, uint64(c.Kind))
	b = number(b, 3, uint64(c.Phase))
	b = number(b, 4, uint64(c.Replicas))
	b = appendLabels(b, 5, c.Labels)
	b = number(b, 6, uint64(c.Capacity.Compute))
	b = number(b, 7, uint64(c.Capacity.Jobs))
	b = number(b, 8, uint64(c.Capacity.Bytes))
	b = number(b, 9, uint64(c.Groups))
	b = number(b, 10, uint64(c.Hand))
	for _, r := range c.Voters {
		b = part(b, 11, text(text(nil, 1, string(r.Name)), 2, r.RaftAddress))
	}
	b = number(b, 12, c.Generation)
	b = number(b, 13, uint64(c.Created))
	b = number(b, 14, uint64(c.Updated))
	if c.Reformed {
		b = number(b, 15, 1)
	}
	if c.Evacuating {
		b = number(b, 16, 1)
	}
	return b
}

func appendLabels(b []byte, num protowire.Number, labels []placement.Label) []byte {
	for _, l := range labels {
		b = part(b, num, text(text(nil, 1, l.Key), 2, l.Value))
	}
	return b
}

func (s *State) restoreCell(body []byte) error {
	var c Cell
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			c.ID = cell.ID(b)
		case 2:
			c.Kind = placement.Kind(n)
		case 3:
			c.Phase = placement.Phase(n)
		case 4:
			c.Replicas = int(n)
		case 5:
			return restoreLabel(&c.Labels, b)
		case 6:
			c.Capacity.Compute = cell.Rate(n)
		case 7:
			c.Capacity.Jobs = int64(n)
		case 8:
			c.Capacity.Bytes = int64(n)
		case 9:
			c.Groups = int(n)
		case 10:
			c.Hand = int(n)
		case 11:
			name, address, ok := pair(b)
			c.Voters = append(c.Voters, command.Replica{Name: command.AgentName(name), RaftAddress: address})
			return ok
		case 12:
			c.Generation = n
		case 13:
			c.Created = cell.Instant(n)
		case 14:
			c.Updated = cell.Instant(n)
		case 15:
			c.Reformed = n == 1
			return c.Reformed
		case 16:
			c.Evacuating = n == 1
			return c.Evacuating
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if _, ok := s.View().Cell(c.ID); ok || c.ID == "" {
		return fmt.Errorf("%w: cell %q is there twice or has no id", ErrSnapshot, c.ID)
	}
	s.put(tableCells, &c)
	s.head.cells++
	return nil
}

func restoreLabel(to *[]placement.Label, b []byte) bool {
	key, value, ok := pair(b)
	*to = append(*to, placement.Label{Key: key, Value: value})
	return ok
}

// pair reads a part of two texts.
func pair(body []byte) (one, two string, ok bool) {
	err := fields(body, func(num int, _ uint64, b []byte) bool {
		switch num {
		case 1:
			one = string(b)
		case 2:
			two = string(b)
		default:
			return false
		}
		return true
	})
	return one, two, err == nil
}
