package cellserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

// The headers in which a gateway and a cell speak of lanes that move. None of them passes the door in either direction.
const (
	// HeaderEpochs says in a request which epochs the gateway knows of the caller's lanes: <interactive>,<batch>. 0, or no header, is unknown.
	HeaderEpochs = "Fairlead-Epochs"
	// HeaderLane says in an answer that the lane of something in it is not to be served here: <moving|moved|behind>;<class or any>;<epoch>, the
	// epoch 0 when the cell knows none. It stands on a call that was refused for it as a whole, on an answer with items that were, and where the
	// caller's other lane lives elsewhere and may have what was not found here.
	HeaderLane = "Fairlead-Lane"
	// HeaderLaneTenants names the tenants, separated by commas, of the leases in a platform worker's call whose lanes are not to be served here. Of more
	// than LaneTenantsMax some are left out, which come with a later call.
	HeaderLaneTenants = "Fairlead-Lane-Tenants"
)

// HeaderLaneForwarded says with the value 1 in a worker's report that it may name leases that this cell never had, because another has them: those are
// not among the leases to stop. The answer repeats it.
const HeaderLaneForwarded = "Fairlead-Lane-Forwarded"

// LaneTenantsMax bounds the tenants that HeaderLaneTenants names.
const LaneTenantsMax = 50

// epochsOf returns what the gateway knows of the caller's lanes, by class; 0 is unknown. It returns a *cell.FieldError when the header is none that a
// gateway sends.
func epochsOf(ctx context.Context) (known leader.Epochs, err error) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return known, nil
	}
	text := info.RequestHeader().Get(HeaderEpochs)
	if text == "" {
		return known, nil
	}
	parts := strings.Split(text, ",")
	if len(parts) == len(known) {
		for i := range known {
			n, bad := strconv.ParseUint(parts[i], 10, 64)
			known[i], err = cell.Epoch(n), cmpOr(err, bad)
		}
	}
	if len(parts) != len(known) || err != nil {
		return leader.Epochs{}, &cell.FieldError{
			Field: HeaderEpochs, Problem: fmt.Sprintf("is %.40q", text), Remedy: "give the epochs of the interactive and the batch lane, or none",
		}
	}
	return known, nil
}

// cmpOr returns the first error that there is.
func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// notice gathers what an answer says of lanes that are not to be served here. The zero value says nothing.
type notice struct {
	what    whereabouts
	class   cell.Class // 0 for any
	epoch   cell.Epoch
	tenants []cell.TenantID // of a platform worker's call
}

// add takes one lane in. Of different ones the header says that which asks for most: a gateway that looks elsewhere also waits there.
func (n *notice) add(what whereabouts, class cell.Class, epoch cell.Epoch) {
	if n.what == laneHere {
		*n = notice{what: what, class: class, epoch: epoch, tenants: n.tenants}
		return
	}
	if n.class != class {
		n.class = 0
	}
	n.what, n.epoch = max(n.what, what), max(n.epoch, epoch)
}

// heed takes in why something was refused, as far as that is its lane.
func (n *notice) heed(err error) {
	if lane, ok := errors.AsType[*engine.LaneError](err); ok {
		n.add(whereaboutsOf(lane), lane.Lane.Class, lane.Epoch)
	} else if absent, ok := errors.AsType[*absentError](err); ok {
		n.add(laneMoved, 0, absent.epoch)
	}
}

// heedOf is heed for an item of a worker's call: of one that is the platform's, worker "", it names the tenant.
func (n *notice) heedOf(err error, worker cell.TenantID) {
	if err == nil {
		return
	}
	n.heed(err)
	if lane, ok := errors.AsType[*engine.LaneError](err); ok && worker == "" {
		n.name(lane.Lane.Tenant)
	}
}

// name adds a tenant to those concerned.
func (n *notice) name(tenant cell.TenantID) {
	if len(n.tenants) < LaneTenantsMax && !slices.Contains(n.tenants, tenant) {
		n.tenants = append(n.tenants, tenant)
	}
}

// set writes the notice to an answer's headers.
func (n *notice) set(h http.Header) {
	if n.what == laneHere {
		return
	}
	class := "any"
	if n.class != 0 {
		class = n.class.String()
	}
	h.Set(HeaderLane, fmt.Sprintf("%v;%s;%d", n.what, class, n.epoch))
	if len(n.tenants) == 0 {
		return
	}
	names := make([]string, len(n.tenants))
	for i, t := range n.tenants {
		names[i] = string(t)
	}
	h.Set(HeaderLaneTenants, strings.Join(names, ","))
}

// tell puts the notice on the answer of the call that ctx is of.
func (n *notice) tell(ctx context.Context) {
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		n.set(info.ResponseHeader())
	}
}
