package migrate

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// switchClass drives the class that is between two homes. Nothing else is done meanwhile: callers wait.
func (d *turn) switchClass(c cell.Class) {
	switch l := d.lane(c); l.Phase {
	case Fencing, ReverseFencing:
		d.fencing(c)
	case Committed:
		d.activate(c, EventActivate)
	case ReverseCommitted:
		d.activate(c, EventReverseActivate)
	case AtSource, Observing, Moved, Returned: // nothing is being switched
	default:
		panic(fmt.Sprintf("migrate: %s is in the phase %s", c, l.Phase))
	}
}

// fencing takes a class that its owner is to stop serving through to the commit, or gives up. What it does next depends on what was seen, in the order of the
// protocol: the fence, the rest of the copy, both digests, the commit. It commits late rather than not at all: either ends the pause.
func (d *turn) fencing(c cell.Class) {
	l := d.lane(c)
	from, to := l.Owner, d.r.other(l.Owner)
	src, dst := d.seen(from, c), d.seen(to, c)
	fenced := d.ours(src) && src.Mode == cell.ModeFenced && src.Epoch == l.Epoch && src.Fence != 0
	fills := d.fills(c, dst)
	complete := fenced && fills && dst.filled(src.Change)
	compared := complete && digested(src, src.Change) && digested(dst, src.Change)
	switch {
	case d.r.Held != "":
		d.unfence(c, "it is held: "+d.r.Held)
	case compared && src.Digest == dst.Digest && d.o.Cell(d.r, to).Reachable:
		d.commit(c, src)
	case compared && src.Digest != dst.Digest:
		x := Comparison{Known: true, Change: src.Change, From: src.Digest, To: dst.Digest}
		d.giveUp(HeldDigest, x.text(c, from, to))
	case fenced && src.Broken:
		d.giveUp(HeldBroken, fmt.Sprintf("%s has forgotten changes of %s that %s lacks", from, c, to))
	case d.looked(to) && d.o.Cell(d.r, to).Reachable && !fills:
		d.giveUp(HeldBroken, fmt.Sprintf("%s is not there to be filled at %s any more", c, to))
	case d.now.Sub(l.FencedAt) >= d.r.Options.PauseMax:
		d.unfence(c, fmt.Sprintf("it has taken nothing for %s", d.r.Options.PauseMax))
	case !fenced:
		d.do(SetMode{Cell: from, Class: c, Mode: cell.ModeFenced, Epoch: l.Epoch})
		d.lookFirst(to)
	case !complete:
		d.lookFirst(to)
		d.do(Copy{From: from, To: to, Class: c, Urgent: true})
	default:
		d.digests(c, from, to, src.Change)
	}
	d.waitFor(l.FencedAt.Add(d.r.Options.PauseMax), fmt.Sprintf("%s to be fenced at %s and complete at %s", c, from, to))
}

// digestShown is how many bytes of a digest people are shown.
const digestShown = 6

// fills reports whether dst is the lane that this attempt fills.
func (d *turn) fills(c cell.Class, dst *LaneSeen) bool {
	l := d.lane(c)
	if l.Owner == d.r.Source {
		return d.ours(dst) && dst.Mode == cell.ModeStaged && dst.Epoch == l.Staged
	}
	return d.ours(dst) && dst.Mode == cell.ModeStandby
}

// digested reports whether the lane's digest is known as of a change.
func digested(l *LaneSeen, change uint64) bool {
	return l.DigestDone >= Whole && l.DigestChange == change
}

// lookFirst asks a cell that this driver has not seen yet, or that did not answer.
func (d *turn) lookFirst(id cell.ID) {
	if !d.looked(id) || !d.o.Cell(d.r, id).Reachable {
		d.do(Look{Cell: id})
	}
}

func (d *turn) digests(c cell.Class, from, to cell.ID, change uint64) {
	for _, id := range []cell.ID{from, to} {
		if !digested(d.seen(id, c), change) {
			d.do(Digest{Cell: id, Class: c})
		}
	}
	d.lookFirst(to)
}

func (d *turn) unfence(c cell.Class, why string) {
	d.propose(Event{Kind: EventUnfence, Class: c, Why: why})
}

func (d *turn) commit(c cell.Class, src *LaneSeen) {
	kind := EventCommit
	if d.lane(c).Phase == ReverseFencing {
		kind = EventReverseCommit
	}
	d.propose(Event{
		Kind: kind, Class: c, Position: src.Fence, Change: src.Change, Digest: src.Digest,
		Gates: []Gate{
			{Name: GateApplied, Verdict: Pass, Evidence: fmt.Sprintf("change %d, the last before the fence at %d, is applied", src.Change, src.Fence)},
			{Name: GateDigest, Verdict: Pass, Evidence: fmt.Sprintf("%x in both cells", src.Digest[:digestShown])},
		},
	})
}

// activate has a class's new owner open it, and says so once it has. There is no other way from here.
func (d *turn) activate(c cell.Class, kind Kind) {
	l := d.lane(c)
	if s := d.seen(l.Owner, c); d.ours(s) && s.Mode == cell.ModeOpen && s.Epoch == l.Epoch {
		d.propose(Event{Kind: kind, Class: c, Pause: max(0, d.now.Sub(l.FencedAt))})
		return
	}
	d.do(SetMode{Cell: l.Owner, Class: c, Mode: cell.ModeOpen, Epoch: l.Epoch, Share: d.share(c)})
	d.waitFor(0, fmt.Sprintf("%s to open %s", l.Owner, c))
}

// share returns how much of the tenant's credit goes with a class that is switched, in thousandths: half with the first of two, the rest with the second.
// On the way back they come in the opposite order.
func (d *turn) share(c cell.Class) int32 {
	first := d.r.Order[0] == c
	if d.r.Owner(c) == d.r.Target && first || d.r.Owner(c) == d.r.Source && !first {
		return Whole / 2
	}
	return Whole
}
