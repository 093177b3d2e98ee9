package migrate

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// aborting cleans up: each class is served by the source as before, and nothing is left at the target.
func (d *turn) aborting() {
	if !d.tidy() {
		d.waitFor(0, "what was staged to be gone")
		return
	}
	d.propose(Event{Kind: EventEnd, Why: "nothing is left of it"})
}

// reversing takes back every class that the target has, the last that came first, then cleans up.
func (d *turn) reversing() {
	d.replicate()
	for i := len(d.r.Order) - 1; i >= 0; i-- {
		c := d.r.Order[i]
		if d.lane(c).Owner != d.r.Target {
			continue
		}
		switch {
		case d.r.Held != "":
			d.held()
		case !d.allLetGo():
			d.waitFor(0, "the target to let go of what it has given back")
		case d.seen(d.r.Target, c).Broken:
			d.hold(HeldBroken, "the target has forgotten changes that the source lacks: the way back is lost")
		default:
			d.keepReverseDigests(c)
			d.fenceNext(c)
		}
		return
	}
	clean := d.allLetGo() && d.tidy()
	switch {
	case d.r.Held != "":
		d.held()
	case !clean:
		d.waitFor(0, "what is left at the target to be gone")
	default:
		d.propose(Event{Kind: EventEnd, Why: "nothing of the tenant is left at the target"})
	}
}

// allLetGo reports whether the cells that classes have left have let go of them.
func (d *turn) allLetGo() bool {
	return d.looked(d.r.Target) && !slices.ContainsFunc(d.r.Order[:], func(c cell.Class) bool { return d.lane(c).Phase == Returned && !d.letGo(c) })
}

// keepReverseDigests asks for the digests that the way back needs.
func (d *turn) keepReverseDigests(c cell.Class) {
	for _, id := range []cell.ID{d.r.Source, d.r.Target} {
		if d.seen(id, c).DigestDone < Whole {
			d.do(Digest{Cell: id, Class: c})
		}
	}
}

// tidy removes what is left at the target and what the source keeps for the copy, and reports whether all of it is gone. Where something of the migration may
// still be on its way to the target's lane, the lane is brought to an epoch first at which it would be refused.
func (d *turn) tidy() bool {
	clean := d.lookedSince(d.r.Source)
	for _, c := range d.r.Order {
		if !d.atHome(c) {
			clean = false
		}
		if d.seen(d.r.Source, c).Tracked {
			d.untrack(d.r.Source, c)
			clean = false
		}
		if d.lane(c).Staged == 0 { // nothing was ever asked of the target
			continue
		}
		if !d.lookedSince(d.r.Target) || !d.bury(c) {
			clean = false
		}
	}
	return clean
}

// untrack has a cell forget a lane's changes. When that has not worked for long the lane is tracked for another migration, whose call was very late: this one takes
// it over, and is then let end it. Of the two calls either may come first; they are repeated until the right one did.
func (d *turn) untrack(id cell.ID, c cell.Class) {
	if d.now.Sub(d.r.Entered) >= d.cfg.UnreachableMax {
		d.do(Track{Cell: id, Class: c})
	}
	d.do(Track{Cell: id, Class: c, Off: true})
}

// lookedSince reports whether what is known of a cell is from this state: only then does it say that nothing is left.
func (d *turn) lookedSince(id cell.ID) bool {
	s := d.o.Cell(d.r, id)
	if s.At != 0 && s.At >= d.r.Entered {
		return true
	}
	if s.At != 0 { // else look has it
		d.do(Look{Cell: id})
	}
	return false
}

// bury brings the target's lane of a class to an empty tombstone of this migration, and reports whether it is one.
func (d *turn) bury(c cell.Class) bool {
	l, s := d.lane(c), d.seen(d.r.Target, c)
	reached := s.Known && s.Epoch >= l.Staged
	if !reached && (!s.Known || s.Mode == cell.ModeTombstone || s.Mode == cell.ModeOpen) {
		d.do(Stage{Class: c, Epoch: l.Staged})
		return false
	}
	if s.Mode == cell.ModeOpen { // it was seen before it was fenced
		d.do(Look{Cell: d.r.Target})
		return false
	}
	return d.sweep(c)
}
