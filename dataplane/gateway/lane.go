package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The headers in which a gateway and a cell speak of lanes that move.
const (
	// HeaderEpochs says in a request which epochs the gateway knows of the caller's lanes: <interactive>,<batch>.
	HeaderEpochs = "Fairlead-Epochs"
	// HeaderLane says in an answer that the lane of something in it is not to be served there: <moving|moved|behind>;<class or any>;<epoch>.
	// Nothing was done of what it concerns.
	HeaderLane = "Fairlead-Lane"
	// HeaderLaneTenants names, with HeaderLane, the tenants of a platform worker's leases that it concerns.
	HeaderLaneTenants = "Fairlead-Lane-Tenants"
	// HeaderLaneForwarded says with the value 1 in a worker's report that it may name leases that the cell never had: those are not taken back.
	// In the answer it says that they were not.
	HeaderLaneForwarded = "Fairlead-Lane-Forwarded"
)

// The reasons of what a cell does not do because of a lane that moves. No caller sees them.
const (
	reasonMoving = "MOVING" // the lane is served by nobody just now
	reasonMoved  = "MOVED"  // another cell serves it
	reasonBehind = "BEHIND" // the cell has yet to hear of what the gateway knows
)

// notice is what [HeaderLane] and [HeaderLaneTenants] say.
type notice struct {
	what    string     // moving, moved or behind
	class   cell.Class // 0 for any
	epoch   cell.Epoch // of the lane there; 0 when not said
	tenants []cell.TenantID
}

// noticeOf reads the headers of an answer. It returns false when they say nothing, or nothing that this release understands.
func noticeOf(h http.Header) (notice, bool) {
	text := h.Get(HeaderLane)
	if text == "" {
		return notice{}, false
	}
	var n notice
	var class, epoch string
	n.what, class, _ = strings.Cut(text, ";")
	class, epoch, _ = strings.Cut(class, ";")
	switch strings.ToUpper(n.what) {
	case reasonMoving, reasonMoved, reasonBehind:
	default:
		return notice{}, false
	}
	for _, c := range cell.Classes() {
		if c.String() == class {
			n.class = c
		}
	}
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil || n.class == 0 && class != "any" {
		return notice{}, false
	}
	n.epoch = cell.Epoch(e)
	for name := range strings.SplitSeq(h.Get(HeaderLaneTenants), ",") {
		if name = strings.TrimSpace(name); name != "" {
			n.tenants = append(n.tenants, cell.TenantID(name))
		}
	}
	return n, true
}

// absentNotice says that something was not found where the tenant has one of its lanes.
var absentNotice = notice{what: "moved"}

// absent reports whether the notice says that something was not found, which the tenant's other home may have.
func (n notice) absent() bool { return n.class == 0 && strings.EqualFold(n.what, reasonMoved) }

// ofLane reports whether r says that nothing was done because of a lane that moves.
func ofLane(r *fairleadv1.Rejection) bool {
	switch r.GetReason() {
	case reasonMoving, reasonMoved, reasonBehind:
		return true
	default:
		return false
	}
}

// epochsOf returns what [HeaderEpochs] says of l.
func epochsOf(l route.Lane) string {
	const numbersMax = 2*20 + 1
	_, interactive := l.Home(cell.ClassInteractive)
	_, batch := l.Home(cell.ClassBatch)
	b := strconv.AppendUint(make([]byte, 0, numbersMax), uint64(interactive), 10)
	return string(strconv.AppendUint(append(b, ','), uint64(batch), 10))
}

// newest returns the higher of the two lanes' epochs.
func newest(l route.Lane) cell.Epoch {
	_, batch := l.Home(cell.ClassBatch)
	return max(l.Epoch, batch)
}
