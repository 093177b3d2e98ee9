package cell

import "fmt"

// Mode is what a lane does in a cell. The numbers are part of the log's and the snapshot's format.
type Mode uint8

// The modes of a lane.
const (
	ModeOpen      Mode = 0 // it takes jobs at its epoch and runs them
	ModeFenced    Mode = 1 // it takes nothing until it is opened again, or another cell has it
	ModeStaged    Mode = 2 // it is being filled: it answers nobody, grants nothing, fires no timer
	ModeStandby   Mode = 3 // it was the source, and is fed by the lane's new home
	ModeTombstone Mode = 4 // it has left: whoever comes with an old epoch is sent on
)

// Valid reports whether m is one of the modes.
func (m Mode) Valid() bool { return m <= ModeTombstone }

func (m Mode) String() string {
	switch m {
	case ModeOpen:
		return "open"
	case ModeFenced:
		return "fenced"
	case ModeStaged:
		return "staged"
	case ModeStandby:
		return "standby"
	case ModeTombstone:
		return "tombstone"
	default:
		return fmt.Sprintf("mode(%d)", uint8(m))
	}
}

// MigrationID names a migration: an identifier as [CheckID] has it.
type MigrationID string

// Move names one attempt of a migration. What carries another attempt's is refused, so that a late message of one cannot do harm to the next.
// The zero value is none.
type Move struct {
	Migration MigrationID
	Attempt   uint32 // from 1 on
}
