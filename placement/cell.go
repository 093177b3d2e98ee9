package placement

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// Kind says whom a cell is for. The numbers are part of control's log format and of the API.
type Kind uint8

// The kinds of cells.
const (
	KindPooled    Kind = 1 // many tenants
	KindDedicated Kind = 2 // one tenant, or an organization's
)

// Kinds lists every kind.
func Kinds() []Kind { return []Kind{KindPooled, KindDedicated} }

func (k Kind) String() string {
	switch k {
	case KindPooled:
		return "pooled"
	case KindDedicated:
		return "dedicated"
	default:
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
}

// ParseKind returns the kind named s. It returns a *[cell.FieldError] for any other word.
func ParseKind(field, s string) (Kind, error) {
	for _, k := range Kinds() {
		if s == k.String() {
			return k, nil
		}
	}
	return 0, &cell.FieldError{Field: field, Problem: fmt.Sprintf("%.40q is not a kind of cell", s), Remedy: "use pooled or dedicated"}
}

// Phase says what a cell takes. The numbers are part of control's log format and of the API.
type Phase uint8

// The phases of a cell.
const (
	PhaseForming  Phase = 1 // waiting for its agents
	PhaseOpen     Phase = 2 // takes tenants
	PhaseCordoned Phase = 3 // no new tenants
	PhaseDraining Phase = 4 // no new tenants and no new jobs
)

// Phases lists every phase.
func Phases() []Phase { return []Phase{PhaseForming, PhaseOpen, PhaseCordoned, PhaseDraining} }

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

// ParsePhase returns the phase named s. It returns a *[cell.FieldError] for any other word.
func ParsePhase(field, s string) (Phase, error) {
	var names []string
	for _, p := range Phases() {
		if s == p.String() {
			return p, nil
		}
		names = append(names, p.String())
	}
	return 0, &cell.FieldError{
		Field: field, Problem: fmt.Sprintf("%.40q is not a phase of a cell", s), Remedy: "use one of " + strings.Join(names, ", "),
	}
}

// Label is what a cell has and a tenant can ask for, such as residency: eu.
type Label struct {
	Key   string
	Value string
}

// The labels that give a dedicated cell to its owner, by id: see [KindDedicated] in the filters.
const (
	LabelTenant       = "tenant"
	LabelOrganization = "organization"
)

// Bounds of labels.
const (
	LabelsMax          = 16
	LabelKeyBytesMax   = 64
	LabelValueBytesMax = 256
)

// CheckLabels returns a *[cell.FieldError] naming field unless labels are at most [LabelsMax], in the order of their keys without any twice, with
// keys that are identifiers of at most [LabelKeyBytesMax] bytes, and values that are printable ASCII of 1 to [LabelValueBytesMax] bytes.
func CheckLabels(field string, labels []Label) error {
	if len(labels) > LabelsMax {
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("has %d labels, of at most %d", len(labels), LabelsMax), Remedy: "give fewer",
		}
	}
	for i, l := range labels {
		if err := checkLabel(field, l); err != nil {
			return err
		}
		if i > 0 && labels[i-1].Key >= l.Key {
			return &cell.FieldError{
				Field: field, Problem: fmt.Sprintf("has the key %.64q after %.64q", l.Key, labels[i-1].Key),
				Remedy: "give each key once, in the order of the keys",
			}
		}
	}
	return nil
}

func checkLabel(field string, l Label) error {
	if len(l.Key) > LabelKeyBytesMax {
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("has a key of %d bytes, of at most %d", len(l.Key), LabelKeyBytesMax), Remedy: "shorten it",
		}
	}
	if err := cell.CheckID(field, l.Key); err != nil {
		return err
	}
	if n := len(l.Value); n < 1 || n > LabelValueBytesMax {
		return &cell.FieldError{
			Field: field + "." + l.Key, Problem: fmt.Sprintf("has %d bytes, outside 1 to %d", n, LabelValueBytesMax), Remedy: "give it a short value",
		}
	}
	for i := range len(l.Value) {
		if c := l.Value[i]; c < ' ' || c > '~' {
			return &cell.FieldError{
				Field: field + "." + l.Key, Problem: fmt.Sprintf("has %q at byte %d", l.Value[i:i+1], i), Remedy: "use printable ASCII",
			}
		}
	}
	return nil
}

// valueOf returns the value of a key; false when there is none.
func valueOf(labels []Label, key string) (string, bool) {
	for _, l := range labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// Rules say where a tenant may be placed. The zero value is anywhere.
type Rules struct {
	Require    []Label   // labels that its cell must have
	Apart      string    // tenants that name the same group are kept in different cells
	ComputeMin cell.Rate // set aside whatever it was measured to use; its reservations count anyway
	Cell       cell.ID   // only this cell; empty for any
}

// Check returns a *[cell.FieldError] unless the rules are within their bounds: labels as [CheckLabels] wants them, a group and a cell that are
// identifiers, and a rate from 0 to [cell.RateMax].
func (r Rules) Check(field string) error {
	if err := CheckLabels(field+".require", r.Require); err != nil {
		return err
	}
	if r.Apart != "" {
		if err := cell.CheckID(field+".apart", r.Apart); err != nil {
			return err
		}
	}
	if r.ComputeMin < 0 || r.ComputeMin > cell.RateMax {
		return &cell.FieldError{
			Field: field + ".compute_min", Problem: fmt.Sprintf("is %s, outside 0 to %s", r.ComputeMin, cell.RateMax),
			Remedy: "give what to set aside for the tenant, in units of cost per second",
		}
	}
	if r.Cell != "" {
		return cell.CheckID(field+".cell", string(r.Cell))
	}
	return nil
}

// Cell is a cell as placement sees it.
type Cell struct {
	ID       cell.ID
	Kind     Kind
	Phase    Phase
	Labels   []Label
	Capacity Load // what it was tested to carry; 0 in a resource that was not tested, which then bounds nothing
	Replicas int
	Groups   int // worker groups that tenants are dealt hands of; 0 for none
	Hand     int // how many of them a tenant has
	// Generation tells one state of the record from another: a decision is made on one.
	Generation uint64
}

// Tenant is a tenant as placement sees it.
type Tenant struct {
	ID           cell.TenantID
	Organization cell.OrganizationID // empty for none
	Rules        Rules
	Profile      Profile
	Reserved     cell.Rate    // what it is promised at least, of both classes together
	Home         cell.ID      // empty while it is in no cell
	Since        cell.Instant // since when it is there
	Bytes        int64        // what a move of it moves
}

// Move is one that is under way, or that ended lately: then it only counts for the budget.
type Move struct {
	Tenant cell.TenantID
	Source cell.ID
	Target cell.ID
	Bytes  int64
	Since  cell.Instant // when it began
	Ended  cell.Instant // 0 while it is under way
}
