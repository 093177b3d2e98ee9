package cell

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// WorkerGroup is the group of a cell's workers that a worker belongs to, 1 to WorkerGroupsMax; 0 for none. Each tenant may be dealt a hand
// of groups, see TenantPolicy.Groups: a job that kills or hogs its workers reaches only those of its tenant's hand.
type WorkerGroup uint8

// WorkerGroupsMax bounds the worker groups of a cell: one bit each of TenantPolicy.Groups.
const WorkerGroupsMax = 64

// In reports whether a worker of the group runs the jobs of whoever holds the hand: the group is in it, or there is neither hand nor group.
func (g WorkerGroup) In(hand uint64) bool {
	if g == 0 {
		return hand == 0
	}
	return hand>>(g-1)&1 == 1
}

// Bit returns the hand of this group alone, and 0 for none.
func (g WorkerGroup) Bit() uint64 {
	if g == 0 {
		return 0
	}
	return 1 << (g - 1)
}

// CheckWorkerGroup returns n as a group of workers, 0 for none. It returns a *[FieldError] when n is out of bounds.
func CheckWorkerGroup(field string, n int64) (WorkerGroup, error) {
	if n < 0 || n > WorkerGroupsMax {
		return 0, &FieldError{
			Field: field, Problem: fmt.Sprintf("is %d, outside 0 to %d", n, WorkerGroupsMax),
			Remedy: "give the number of a group of the cell's workers, or 0 for none",
		}
	}
	return WorkerGroup(n), nil
}

// WorkerGroups returns the groups of a hand in their order.
func WorkerGroups(hand uint64) []WorkerGroup {
	groups := make([]WorkerGroup, 0, bits.OnesCount64(hand))
	for ; hand != 0; hand &= hand - 1 {
		groups = append(groups, WorkerGroup(bits.TrailingZeros64(hand)+1))
	}
	return groups
}

// FormatWorkerGroups returns the groups of a hand for people, such as "1, 4 and 7"; empty for none.
func FormatWorkerGroups(hand uint64) string {
	var b strings.Builder
	for groups := WorkerGroups(hand); len(groups) > 0; groups = groups[1:] {
		switch {
		case b.Len() == 0:
		case len(groups) == 1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(int(groups[0])))
	}
	return b.String()
}
