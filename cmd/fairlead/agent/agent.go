package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"connectrpc.com/grpchealth"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/dataplane/gateway"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Agent is a running process with every role. Close stops it.
type Agent struct {
	cfg      Config
	cell     *cellRole
	control  *controlRole
	http     *http.Server
	health   *health
	listener net.Listener
	creds    config.Credentials
	served   chan error // what Serve returned
	tuning   background
}

// startTimeout bounds replaying both logs and everything else of a start.
const startTimeout = 2 * time.Minute

// Start opens the state directory, replays what is in it, and serves. It returns once requests are answered. It returns an error that wraps
// consensus.ErrLocked when another process has the directory, and consensus.ErrCorrupt when what is in it is damaged.
func Start(ctx context.Context, cfg Config) (*Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the state directory: %w", err)
	}
	a := &Agent{cfg: cfg, health: newHealth(), served: make(chan error, 1)}
	a.tuning.start(ctx, tuneCollector)
	if err := a.start(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Agent) start(ctx context.Context) error {
	var err error
	if a.cell, err = startCell(ctx, a.cfg); err != nil {
		return err
	}
	if a.control, err = startControl(ctx, a.cfg, a.cell.server); err != nil {
		return err
	}
	// Only now: a port that is open before the logs are replayed would be a port that cannot answer.
	var listen net.ListenConfig
	if a.listener, err = listen.Listen(ctx, "tcp", a.cfg.Listen); err != nil {
		return fmt.Errorf("the API's address: %w", err)
	}
	if a.creds, err = a.control.bootstrap(ctx, a.cfg, "http://"+a.listener.Addr().String()); err != nil {
		return err
	}
	return a.serve()
}

// serve mounts every service behind the gateway.
func (a *Agent) serve() error {
	gc := gateway.DefaultConfig()
	gc.Log = a.cfg.Logger
	door, err := gateway.New(gc, a.control.server)
	if err != nil {
		return err
	}
	options := gateway.HandlerOptions()
	mux, err := gateway.Mux(
		a.health,
		gateway.Mounted(fairleadv1connect.NewJobServiceHandler(a.cell.server.Jobs(), options...)),
		gateway.Mounted(fairleadv1connect.NewWorkerServiceHandler(a.cell.server.Workers(), options...)),
		gateway.Mounted(fairleadv1connect.NewStatusServiceHandler(a.cell.server.Status(), options...)),
		gateway.Mounted(fairleadv1connect.NewOrganizationServiceHandler(a.control.server, options...)),
		gateway.Mounted(fairleadv1connect.NewTenantServiceHandler(a.control.server, options...)),
		gateway.Mounted(fairleadv1connect.NewKeyServiceHandler(a.control.server, options...)),
		gateway.Mounted(fairleadv1connect.NewClusterServiceHandler(a.control.server.Cluster(), options...)),
		gateway.Mounted(fairleadv1connect.NewCellServiceHandler(a.control.server.CellService(), options...)),
		gateway.Mounted(fairleadv1connect.NewPlacementServiceHandler(a.control.server.Placement(), options...)),
		gateway.Mounted(fairleadv1connect.NewMigrationServiceHandler(a.control.server.Migrations(), options...)),
		gateway.Mounted(fairleadv1connect.NewAuditServiceHandler(a.control.server.Audit(), options...)),
		gateway.Mounted(fairleadv1connect.NewRegistryServiceHandler(a.control.server.Registry(), options...)),
	)
	if err != nil {
		return err
	}
	a.http = gateway.Server(door.Handler(mux))
	go func() { a.served <- a.http.Serve(door.Listener(a.listener)) }()
	return nil
}

// Addr returns the API's base URL.
func (a *Agent) Addr() string { return a.creds.Addr }

// Credentials returns the keys of the state directory, secrets included.
func (a *Agent) Credentials() config.Credentials { return a.creds }

// Wait returns when ctx ends, or with an error when the API stopped being served before.
func (a *Agent) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.served:
		a.served <- err // for Close
		return fmt.Errorf("the API is not served any more: %w", err)
	}
}

// drainTimeout bounds how long open requests have to end when the process stops.
const drainTimeout = 10 * time.Second

// Close stops serving: readiness fails first, open requests are answered, then the logs are closed. Everything acknowledged is durable whether
// Close is called or not.
func (a *Agent) Close() error {
	a.health.stop()
	var errs []error
	if a.http != nil {
		errs = append(errs, a.drain())
	} else if a.listener != nil {
		errs = append(errs, a.listener.Close())
	}
	if a.control != nil {
		errs = append(errs, a.control.Close())
	}
	if a.cell != nil {
		errs = append(errs, a.cell.Close())
	}
	a.tuning.end()
	return errors.Join(errs...)
}

// drain stops the HTTP server. The cell stops first, which answers the long polls that would hold it up.
func (a *Agent) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	a.cell.server.Close()
	err := a.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, a.http.Close())
	}
	if served := <-a.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// health answers gRPC health checks: serving from start to stop.
type health struct{ stopped chan struct{} }

func newHealth() *health { return &health{stopped: make(chan struct{})} }

func (h *health) stop() {
	select {
	case <-h.stopped:
	default:
		close(h.stopped)
	}
}

// Check implements grpchealth.Checker for every service at once: they stand and fall together.
func (h *health) Check(context.Context, *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	select {
	case <-h.stopped:
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	default:
		return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
	}
}
