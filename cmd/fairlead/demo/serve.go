package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/sched"
	"github.com/fairlead/fairlead/cmd/fairlead/agent"
)

// serverInstructions tell a server what to do.
type serverInstructions struct {
	Dir     string          `json:"dir"`
	Policy  string          `json:"policy"`
	Tenants []cell.TenantID `json:"tenants"`
	// Scratch is removed when the parent is gone without having said so.
	Scratch string `json:"scratch,omitempty"`
}

// Serve is the server process: everything that fairlead dev runs, with a policy. It reads its instructions from in, writes the
// credentials as a line of JSON to out once it answers, and returns when in ends, when it is told to, or with ctx.
func Serve(ctx context.Context, in io.Reader, out, log io.Writer) error {
	var ins serverInstructions
	ctx, err := attached(ctx, in, &ins)
	if err != nil {
		return err
	}
	cfg := agent.DefaultConfig(ins.Dir, "127.0.0.1:0")
	cfg.Version = "demo"
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, t := range ins.Tenants {
		cfg.SampleTenants = append(cfg.SampleTenants, string(t))
	}
	if cfg.Leader.Sched.Policy, err = sched.ParsePolicy("policy", ins.Policy); err != nil {
		return err
	}
	// All jobs of a run are of one class. The other's room would be held back from it for the first second, which says nothing of either
	// policy.
	for i := range cfg.Leader.Sched.Bulkheads {
		cfg.Leader.Sched.Bulkheads[i].LendAfter = 0
	}
	running, err := agent.Start(ctx, cfg)
	if err == nil {
		err = tell(ctx, running, out)
		err = errors.Join(err, running.Close())
	}
	if ins.Scratch != "" && errors.Is(context.Cause(ctx), errOrphaned) {
		err = errors.Join(err, os.RemoveAll(ins.Scratch))
	}
	return err
}

// tell says how to connect, and waits.
func tell(ctx context.Context, running *agent.Agent, out io.Writer) error {
	if err := json.NewEncoder(out).Encode(running.Credentials()); err != nil {
		return fmt.Errorf("telling the parent: %w", err)
	}
	return running.Wait(ctx)
}
