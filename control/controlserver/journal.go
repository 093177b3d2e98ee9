package controlserver

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// touchKind says what of the routes a command may have changed.
type touchKind uint8

const (
	touchKey touchKind = iota + 1
	touchTenant
	touchCell
	touchControl // the control agents, or the feature level
)

// touched names something that may read differently from the entry at index on.
type touched struct {
	index uint64
	kind  touchKind
	id    string
}

// journalMax bounds what is remembered: some megabytes, and more than happens while a gateway changes agents. Whoever asks for what is older is
// given everything.
const journalMax = 1 << 16

// journal remembers what the latest entries have touched, so that what changed between two generations is found without looking through
// either. It is the log's goroutine's; [journal.since] returns a part that is not written any more.
type journal struct {
	// floor is the index up to which nothing is remembered.
	floor   uint64
	entries []touched // rising by index
}

// note adds what the entry at index touches.
func (j journal) note(index uint64, kind touchKind, id string) journal {
	if len(j.entries) >= 2*journalMax {
		cut := len(j.entries) - journalMax
		for cut < len(j.entries) && j.entries[cut].index == j.entries[cut-1].index { // an entry is remembered as a whole
			cut++
		}
		// A copy: generations that were published share the old one.
		j.floor, j.entries = j.entries[cut-1].index, slices.Clone(j.entries[cut:])
	}
	j.entries = append(j.entries, touched{index, kind, id})
	return j
}

// since returns what was touched after the entry at index, and false when that is not remembered.
func (j journal) since(index uint64) ([]touched, bool) {
	if index < j.floor {
		return nil, false
	}
	at, _ := slices.BinarySearchFunc(j.entries, index, func(t touched, index uint64) int {
		if t.index <= index {
			return -1
		}
		return 1
	})
	return j.entries[at:], true
}

// agentTouch returns what of the routes an agent is part of.
func agentTouch(role command.Role, id cell.ID) (touchKind, string, bool) {
	switch role {
	case command.RoleControl:
		return touchControl, "", true
	case command.RoleCell:
		return touchCell, string(id), true
	case command.RoleGateway:
		return 0, "", false
	default:
		return 0, "", false
	}
}
