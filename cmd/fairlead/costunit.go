package main

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// costUnit is what a cell's costs are shown in.
type costUnit struct{ name string }

// unitOf returns the unit that an answer names. An earlier release names none: its costs are slot time.
func unitOf(name string) costUnit {
	if name == "" {
		name = cell.UnitSlotSeconds
	}
	return costUnit{output.Safe(name)}
}

// text shows micro-units of cost: slot time as a duration, anything else as a number.
func (u costUnit) text(micro int64) string {
	if u.name == cell.UnitSlotSeconds {
		return output.Duration(time.Duration(micro) * time.Microsecond)
	}
	return cell.FormatUnits(micro)
}

// aheadText shows how far something is ahead of what it was promised.
func aheadText(d *durationpb.Duration) string {
	if d.AsDuration() < 0 {
		return output.Duration(-d.AsDuration()) + " behind"
	}
	return output.ProtoDuration(d)
}
