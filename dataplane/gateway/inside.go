package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// The paths beside the services.
const (
	PathLeader = "/-/leader" // LeaderStatus as JSON, for agents
	PathHealth = "/-/health" // ok or not, for anybody
)

// inside is what a procedure asks of an agent that calls it without a caller of its own.
type inside struct {
	roles  []string
	leader bool // whoever does not lead sends it on its way
}

// insiders is the whole of what agents may call on their own behalf. All other procedures of the table of permissions are a caller's, whom
// only doors pass on.
func insiders() map[string]inside {
	doors := []string{RoleControl, RoleGateway}
	control := []string{RoleControl}
	return map[string]inside{
		fairleadv1connect.RegistryServiceJoinProcedure:        {roles: doors, leader: true},
		fairleadv1connect.RegistryServiceBootstrapProcedure:   {roles: control},
		fairleadv1connect.RegistryServiceRegisterProcedure:    {roles: []string{RoleControl, RoleCell, RoleGateway}, leader: true},
		fairleadv1connect.RegistryServiceWatchRoutesProcedure: {roles: doors},

		fairleadv1connect.ReplicaServiceOpenLogProcedure:    {roles: control},
		fairleadv1connect.ReplicaServiceGetLogProcedure:     {roles: control},
		fairleadv1connect.ReplicaServiceChangePeerProcedure: {roles: control, leader: true},
		fairleadv1connect.ReplicaServiceLeadProcedure:       {roles: control, leader: true},
		fairleadv1connect.ReplicaServiceSaveProcedure:       {roles: control},

		fairleadv1connect.TenancyServiceConfigureProcedure:      {roles: control, leader: true},
		fairleadv1connect.TenancyServiceMeasureDemandProcedure:  {roles: control, leader: true},
		fairleadv1connect.TenancyServiceExplainTenancyProcedure: {roles: control, leader: true},

		fairleadv1connect.LaneServiceGetLanesProcedure:    {roles: control, leader: true},
		fairleadv1connect.LaneServiceStageLaneProcedure:   {roles: control, leader: true},
		fairleadv1connect.LaneServiceTrackLaneProcedure:   {roles: control, leader: true},
		fairleadv1connect.LaneServiceExportLaneProcedure:  {roles: control, leader: true},
		fairleadv1connect.LaneServiceImportLaneProcedure:  {roles: control, leader: true},
		fairleadv1connect.LaneServiceSetLaneModeProcedure: {roles: control, leader: true},
		fairleadv1connect.LaneServiceDigestLaneProcedure:  {roles: control, leader: true},
		fairleadv1connect.LaneServiceWipeLaneProcedure:    {roles: control, leader: true},
		fairleadv1connect.LaneServiceProveLaneProcedure:   {roles: control, leader: true},

		PathLeader: {roles: []string{RoleControl, RoleCell, RoleGateway}},
	}
}

// Inside returns next behind the door for agents: next sees only requests of agents whose role may make them, with the caller in their
// context whom the door has found where the procedure is a caller's, and their body bounded. A request that only a leader serves is
// answered without a look at its body when this agent does not lead: [HeaderNotLeader] says so. Everything from elsewhere is refused,
// but [PathHealth]. It returns an error when the config lacks something.
func Inside(cfg InsideConfig, next http.Handler) (http.Handler, error) {
	if cfg.Peer == nil {
		return nil, errors.New("gateway: Peer is nil: say how an agent's certificate is read")
	}
	return &insideDoor{cfg: cfg, table: insiders(), errors: connect.NewErrorWriter(), next: next}, nil
}

type insideDoor struct {
	cfg    InsideConfig
	table  map[string]inside
	errors *connect.ErrorWriter
	next   http.Handler
}

func (d *insideDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == PathHealth {
		d.next.ServeHTTP(w, r)
		return
	}
	peer, ok := d.cfg.Peer(r)
	if !ok {
		d.refuse(w, r, refuseStranger())
		return
	}
	leader, bound, r, err := d.admit(peer, r)
	if err == nil && bound > 0 {
		err = checkBody(r, bound)
	}
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	if leader && d.cfg.Leads != nil {
		if leads, name := d.cfg.Leads(); !leads {
			d.notLeader(w, r, name)
			return
		}
	}
	if bound > 0 {
		r.Body = &boundedBody{ReadCloser: http.MaxBytesReader(w, r.Body, bound), bound: bound}
	}
	d.next.ServeHTTP(w, r)
}

// admit returns whether only a leader serves r, the bound of its body (0 for none), and r with its caller; or why it is refused.
func (d *insideDoor) admit(peer Peer, r *http.Request) (leader bool, bound int64, _ *http.Request, err error) {
	procedure := r.URL.Path
	header := r.Header.Get(HeaderCaller)
	r.Header.Del(HeaderCaller)
	if in, ok := d.table[procedure]; ok {
		if !slices.Contains(in.roles, peer.Role) {
			return false, 0, r, refuseRole(procedure, peer, in.roles)
		}
		return in.leader, RequestBytesMax, r, nil
	}
	n, ok := permissions[procedure]
	switch {
	case !ok || n.internal:
		return false, 0, r, refuseProcedure(procedure)
	case peer.Role != RoleControl && peer.Role != RoleGateway:
		return false, 0, r, refuseRole(procedure, peer, []string{RoleControl, RoleGateway})
	case n.permission == 0: // health and reflection are the door's own
		return false, 0, r, refuseProcedure(procedure)
	}
	c, err := decodeCaller(header)
	if err != nil {
		return false, 0, r, refuseKey(fmt.Sprintf("agent %s passed on a request without its caller: %v", peer.Name, err))
	}
	if err := n.check(procedure, c); err != nil {
		return false, 0, r, err
	}
	if !n.stream {
		bound = RequestBytesMax
	}
	return true, bound, r.WithContext(context.WithValue(r.Context(), callerKey{}, &c)), nil
}

// notLeader sends r on its way.
func (d *insideDoor) notLeader(w http.ResponseWriter, r *http.Request, leader string) {
	w.Header().Set(HeaderNotLeader, "1")
	message := "this agent does not lead, and knows of none that does: nothing was done, try again"
	if leader != "" {
		w.Header().Set(HeaderLeader, leader)
		message = fmt.Sprintf("this agent does not lead, %s does: nothing was done", leader)
	}
	d.refuse(w, r, rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
		Reason: rejection.ReasonNotApplied, Message: message, RetryAfter: durationpb.New(time.Second),
	}))
}

func (d *insideDoor) refuse(w http.ResponseWriter, r *http.Request, err error) {
	writeError(d.errors, slog.Default(), w, r, err)
}

func refuseStranger() error {
	return rejection.New(connect.CodeUnauthenticated, &fairleadv1.Rejection{
		Reason:  rejection.ReasonUnauthenticated,
		Message: "this is for the cluster's agents, and the request shows no certificate of one: call a gateway, with an API key",
	})
}

func refuseRole(procedure string, peer Peer, roles []string) error {
	return deny(rejection.ReasonNotAllowed, fmt.Sprintf("agent %s has the role %s, and %s is for %s: check which certificate it was given",
		peer.Name, peer.Role, strings.TrimPrefix(procedure, "/fairlead.v1."), strings.Join(roles, " and ")))
}

// LeaderStatus is what an agent says of its log's leadership. The names of its JSON fields are between agents of different releases.
type LeaderStatus struct {
	Name        string `json:"name"`
	Open        bool   `json:"open"` // it has a log
	Leader      bool   `json:"leader"`
	LeaderName  string `json:"leader_name"` // as far as it knows
	Term        uint64 `json:"term"`
	LoadPercent int    `json:"load_percent"`
}

// LeaderHandler answers [PathLeader] by what status says. Mount it behind [Inside].
func LeaderHandler(status func() LeaderStatus) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		data, err := json.Marshal(status())
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data) // who asked may have gone
	})
}

// HealthHandler answers [PathHealth] to anybody: 200 when ready returns true, and 503 otherwise.
func HealthHandler(ready func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if !ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("not ready\n")) // who asked may have gone
			return
		}
		_, _ = w.Write([]byte("ok\n")) // who asked may have gone
	})
}
