package cell

import "fmt"

// Class is the bulkhead a job runs in. The numbers are part of the log's format.
type Class uint8

// The classes. System work takes no slot and is not a job's class.
const (
	ClassInteractive Class = 1
	ClassBatch       Class = 2
)

// Classes lists the classes of jobs in the order in which ties between them are broken.
func Classes() [2]Class { return [2]Class{ClassInteractive, ClassBatch} }

// Valid reports whether c is a class of jobs.
func (c Class) Valid() bool { return c == ClassInteractive || c == ClassBatch }

// Index returns 0 for interactive and 1 for batch, for arrays by class.
func (c Class) Index() int { return int(c) - 1 }

func (c Class) String() string {
	switch c {
	case ClassInteractive:
		return "interactive"
	case ClassBatch:
		return "batch"
	default:
		return fmt.Sprintf("class(%d)", uint8(c))
	}
}

// ParseClass returns the class named s. It returns a *[FieldError] for any other word.
func ParseClass(field, s string) (Class, error) {
	for _, c := range Classes() {
		if s == c.String() {
			return c, nil
		}
	}
	return 0, &FieldError{Field: field, Problem: fmt.Sprintf("%.40q is not a class", s), Remedy: "use interactive or batch"}
}

// Lane is a tenant in a class: the unit of ownership, queueing and migration.
type Lane struct {
	Tenant TenantID
	Class  Class
}

func (l Lane) String() string { return string(l.Tenant) + "/" + l.Class.String() }

// Epoch fences a lane: it rises with every change of the lane's home.
type Epoch uint64
