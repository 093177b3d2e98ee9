package main

import (
	"context"

	"github.com/fairlead/fairlead/cell/leader"
	"github.com/fairlead/fairlead/cmd/fairlead/agent"
)

// serveAgent runs an agent until ctx ends: the one place that hands over to the wiring.
func serveAgent(ctx context.Context, run agentRun) error {
	cfg := agent.ClusterConfig{
		Agent: run.config, Version: buildVersion().Version, Leader: leader.DefaultConfig(), Logger: run.logger, Reload: run.reload,
	}
	if run.config.Cell != "" {
		cfg.Leader.Sched, cfg.Leader.Costing = run.policy.Sched, run.policy.Costing
	}
	return agent.Run(ctx, cfg)
}
