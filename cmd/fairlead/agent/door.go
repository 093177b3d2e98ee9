package agent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"

	"github.com/fairlead/fairlead/dataplane/gateway"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// routesFile keeps the routes of a door, in the agent's state directory.
const routesFile = "routes"

// door is where users come in: it knows keys and routes from control's stream, and sends what it lets in to whoever serves it.
type door struct {
	watcher   *gateway.Watcher
	gateway   *gateway.Gateway
	forwarder *gateway.Forwarder
	mux       http.Handler
	watching  background
}

func startDoor(ctx context.Context, n *node) (*door, error) {
	d := &door{}
	var err error
	d.watcher, err = gateway.NewWatcher(gateway.WatchConfig{
		Source: gateway.RegistrySource(n.registryOf), Control: n.controls.addresses(), Cluster: n.id.ClusterID,
		Path: filepath.Join(n.cfg.Agent.Dir, routesFile), KeysStaleMax: n.cfg.Agent.KeysStaleMax, Log: n.logger,
	})
	if err != nil {
		return nil, err
	}
	fc := gateway.DefaultForwardConfig()
	fc.Routes, fc.Transport, fc.ParkMax, fc.Log = d.watcher.Table, n.lines.to, n.cfg.Agent.ParkMax, n.logger
	fc.Changed = d.watcher.Changed
	if d.forwarder, err = gateway.NewForwarder(fc); err != nil {
		return nil, err
	}
	gc := gateway.DefaultConfig()
	gc.Log = n.logger
	if d.gateway, err = gateway.New(gc, d.watcher); err != nil {
		return nil, err
	}
	health := newHealth()
	if d.mux, err = gateway.Mux(health, d.forwarder.Mounts()...); err != nil {
		return nil, err
	}
	d.watching.start(ctx, d.watcher.Run)
	return d, nil
}

// registryOf returns the client of one control agent.
func (n *node) registryOf(agent route.Replica) fairleadv1connect.RegistryServiceClient {
	way := n.lines.to(gateway.Peer{Role: gateway.RoleControl, Name: agent.Name})
	return fairleadv1connect.NewRegistryServiceClient(&http.Client{Transport: way}, "https://"+agent.Address, lineOptions()...)
}

// handler serves users by the door, agents by inside, and everybody their health.
func (d *door) handler(n *node, inside http.Handler) http.Handler {
	users, health := d.gateway.Handler(d.mux), gateway.HealthHandler(n.healthy)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch _, agent := n.peer(r); {
		case r.URL.Path == gateway.PathHealth:
			health.ServeHTTP(w, r)
		case agent:
			inside.ServeHTTP(w, r)
		default:
			users.ServeHTTP(w, r)
		}
	})
}

// ready reports whether the door has ever known the routes.
func (d *door) ready() bool { return !d.watcher.Heard().IsZero() || d.watcher.Table().Index() > 0 }

func (d *door) stop() { d.forwarder.Close() }

func (d *door) close() { d.watching.end() }

// listener bounds the connections of the port.
func (d *door) listener(l net.Listener) net.Listener { return d.gateway.Listener(l) }

// gatewayHost is an agent that is a door and nothing else.
type gatewayHost struct {
	*door
	node *node
}

func startGatewayHost(ctx context.Context, n *node) (roleHost, error) {
	d, err := startDoor(ctx, n)
	if err != nil {
		return nil, err
	}
	return &gatewayHost{door: d, node: n}, nil
}

func (h *gatewayHost) handler() http.Handler {
	// Other agents have nothing to ask of a gateway: what they may do is what users may.
	return h.door.handler(h.node, h.gateway.Handler(h.mux))
}

func (h *gatewayHost) standing(*fairleadv1.RegisterRequest) {}
func (h *gatewayHost) load() int                            { return 0 }

func (h *gatewayHost) close() error {
	h.door.close()
	return nil
}
