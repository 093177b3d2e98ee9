package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/fairlead/fairlead/cmd/fairlead/agent"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
)

// serverRole is the role of a test binary that runs a server, to be profiled.
const serverRole = "harness-server"

type serverArgs struct {
	Dir, Listen, Policy, Profile string
	Tenants                      []string
}

func profileDir() string { return os.Getenv(profileEnv) }

// runServer is what fairlead dev does, under a profiler.
func runServer(ctx context.Context, text json.RawMessage) error {
	var args serverArgs
	if err := json.Unmarshal(text, &args); err != nil {
		return err
	}
	stop, err := Profile(args.Profile, "server")
	if err != nil {
		return err
	}
	cfg := agent.DefaultConfig(args.Dir, args.Listen)
	cfg.SampleTenants = args.Tenants
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	policy, faults := config.Dev{Policy: args.Policy}.ReadPolicy()
	if len(faults) > 0 {
		return errors.Join(&config.FaultsError{Faults: faults}, stop())
	}
	cfg.Leader.Sched, cfg.Leader.Costing = policy.Sched, policy.Costing
	cfg.Organizations, cfg.Tenants, cfg.SamplePolicy = policy.Organizations, policy.Tenants, policy.Default
	a, err := agent.Start(ctx, cfg)
	if err != nil {
		return errors.Join(err, stop())
	}
	return errors.Join(a.Wait(ctx), a.Close(), stop())
}

// Profile begins a CPU profile of this process in dir, named for the process's part and its id. It does nothing when dir is empty.
func Profile(dir, part string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", part, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
