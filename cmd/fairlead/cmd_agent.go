package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/control/consensus"
)

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agent --name NAME --role ROLE", Short: "Run one agent of a cluster",
		Long: `Agent runs one role of a cluster until it is told to end: control, which decides where tenants are; cell, which holds their jobs; or gateway,
where users and workers connect. Everything durable is in --dir. It needs a certificate in --tls-dir, which fairlead cluster prepare
makes, or a join token, which fairlead cluster token prints.

SIGTERM ends it in order. SIGHUP reads the configuration, the certificate and the keys of gossip again: what may change in the first is the control
agents, the seeds of gossip and the level of the log. Every flag can stand in the configuration's file, in the section agent, or in the
environment: --raft-listen is also FAIRLEAD_AGENT_RAFT_LISTEN.`,
		Example: `  fairlead agent --name control-1 --role control --tls-dir ./cluster/control-1
  fairlead agent --name cell-a-1 --role cell --cell cell-a --control control-1:7700 --tls-dir ./cluster/cell-a-1 --dir /var/lib/fairlead
  fairlead agent --name gateway-2 --role gateway --control control-1:7700 --join-token-file token.txt
  fairlead agent --config /etc/fairlead/agent.yaml`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.loadAgent(cmd)
			if err != nil {
				return err
			}
			return a.runAgent(cmd.Context(), l, func() (*config.Loaded, error) { return a.loadAgent(cmd) })
		},
	}
	addAgentFlags(cmd)
	return cmd
}

// loadAgent reads the configuration of an agent and checks all of it.
func (a *app) loadAgent(cmd *cobra.Command) (*config.Loaded, error) {
	l, err := config.Load(cmd.Flags(), a.configFile)
	if err != nil {
		return nil, err
	}
	return l, l.Check(l.Config.Agent.Validate())
}

func addAgentFlags(cmd *cobra.Command) {
	d, f := config.DefaultAgent(), cmd.Flags()
	f.String("name", "", "`name` of the agent, of no other in the cluster; required")
	f.Var(newEnum("", config.AgentRoles()), "role", "what it does: "+strings.Join(config.AgentRoles(), ", ")+"; required")
	f.String("cell", "", "`cell` that it is a replica of; for the role cell, and required there")
	f.String("dir", d.Dir, "state `directory`")
	f.String("listen", d.Listen, "`address` and port of the API")
	f.String("advertise", "", "`host:port` that other agents reach the API by; the name with the port of --listen when not given")
	f.String("raft-listen", d.RaftListen, "`address` and port of the log; not for a gateway")
	f.String("raft-advertise", "", "`host:port` that other replicas reach the log by; the name with the port of --raft-listen when not given")
	f.String("gossip-listen", d.GossipListen, "`address` and port of gossip")
	f.String("gossip-advertise", "", "`host:port` that other agents reach gossip by; the name with the port of --gossip-listen when not given")
	f.StringSlice("control", nil, "`host:port` of a control agent's API, repeated or with commas")
	f.StringSlice("gossip-seeds", nil, "`host:port` of gossip to begin with, repeated or with commas; the hosts of --control when not given")
	f.String("tls-dir", "", "`directory` of the agent's certificate; tls in --dir when not given")
	f.String("join-token-file", "", "`file` with a join token, to get a certificate with when there is none")
	f.StringSlice("hosts", nil, "`name` or address that users reach it by, for the certificate that it joins for; repeated or with commas")
	f.String("policy", d.Policy, "scheduling `policy` of a cell: "+strings.Join(config.Policies(), ", ")+", or a policy file")
	f.Var(newDuration(d.KeysStaleMax), "keys-stale-max", "how long keys that are known are served while control is away")
	f.Var(newDuration(d.ParkMax), "park-max", "how long a request waits for a cell without a leader")
	f.Bool("whales-auto", false, "begin by itself to move a tenant that is too large for a pool to a dedicated cell of its own; for the role control")
	f.Var(newDuration(d.DemandHour), "demand-hour", "how long an hour of measured demand is; for the role control; less than 1h for demonstrations and tests only,"+
		" the same for every control agent of a fresh cluster")
	f.Var(newEnum(d.LogLevel, config.LogLevels()), "log-level", "least `level` that is logged: "+strings.Join(config.LogLevels(), ", "))
	f.Var(newEnum(d.LogFormat, config.LogFormats()), "log-format", "`format` of the log: "+strings.Join(config.LogFormats(), ", "))
	keys := make(map[string]string)
	for _, name := range []string{
		"name", "role", "cell", "dir", "listen", "advertise", "raft-listen", "raft-advertise", "gossip-listen", "gossip-advertise", "control",
		"gossip-seeds", "tls-dir", "join-token-file", "hosts", "policy", "keys-stale-max", "park-max", "demand-hour", "log-level",
		"log-format",
	} {
		keys[name] = "agent." + name
	}
	keys["whales-auto"] = "agent.whales.auto"
	bind(f, keys)
	must(cmd.RegisterFlagCompletionFunc("policy", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return config.Policies(), cobra.ShellCompDirectiveDefault // and files
	}))
	completeEnum(cmd, "role", config.AgentRoles())
	completeEnum(cmd, "log-level", config.LogLevels())
	completeEnum(cmd, "log-format", config.LogFormats())
	completeNothing(cmd, "name", "cell", "listen", "advertise", "raft-listen", "raft-advertise", "gossip-listen", "gossip-advertise", "control",
		"gossip-seeds", "hosts", "keys-stale-max", "park-max", "demand-hour")
	must(cmd.MarkFlagDirname("dir"))
	must(cmd.MarkFlagDirname("tls-dir"))
}

// runAgent runs the agent that l describes until ctx ends. again reads the configuration anew, as SIGHUP asks for.
func (a *app) runAgent(ctx context.Context, l *config.Loaded, again func() (*config.Loaded, error)) error {
	g := l.Config.Agent
	var level slog.LevelVar
	level.Set(levelOf(g.LogLevel))
	run := agentRun{config: g, logger: newLevelLogger(a.err, &level, g.LogFormat), reload: make(chan config.Agent)}
	if g.Role == string(identity.RoleCell) {
		p, faults := g.ReadPolicy()
		if err := l.Check(faults); err != nil {
			return err
		}
		run.policy = p
	}
	ctx, cancel := context.WithCancel(ctx)
	r := reloader{running: g, again: again, level: &level, log: run.logger, out: run.reload}
	signals, stop := a.hangups() // before anything takes long: the signal ends a process that does not expect it
	defer stop()
	var group sync.WaitGroup
	group.Go(func() { r.run(ctx, signals) })
	err := a.serveAgent(ctx, run)
	cancel()
	group.Wait()
	return agentProblem(g, err)
}

// agentRun is what an agent is run with.
type agentRun struct {
	config config.Agent
	policy policy.File // of a cell
	logger *slog.Logger
	reload chan config.Agent
}

// hangups returns where the signal to read the configuration again arrives, and what ends that.
func hangups() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// reloader reads the configuration again each time it is told to.
type reloader struct {
	running config.Agent
	again   func() (*config.Loaded, error)
	level   *slog.LevelVar
	log     *slog.Logger
	out     chan<- config.Agent
}

// run works until ctx ends. A configuration that cannot be used changes nothing; of one that can, what may change does, and the rest is named.
func (r *reloader) run(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		l, err := r.again()
		if err != nil {
			r.log.Error("the configuration is not read again: it cannot be used", "error", err.Error())
			continue
		}
		next, faults := r.running.Reload(l.Config.Agent)
		for _, f := range faults {
			r.log.Warn("a key of the configuration stays as it was", "key", f.Key, "problem", f.Problem, "remedy", f.Remedy)
		}
		r.running = next
		r.level.Set(levelOf(next.LogLevel))
		select {
		case r.out <- next:
			r.log.Info("the configuration was read again", "file", l.File)
		case <-ctx.Done():
			return
		}
	}
}

// agentProblem says what can be done about an agent that ended.
func agentProblem(g config.Agent, err error) error {
	if err == nil {
		return nil
	}
	p := &failure.Problem{Code: failure.Failed, What: "the agent " + g.Name + " ended", Why: err.Error(), Err: err}
	_, field := errors.AsType[*cell.FieldError](err)
	file, isFile := errors.AsType[*identity.FileError](err)
	switch {
	case isFile:
		p.Code, p.Remedy = failure.Usage, "make it with fairlead cluster prepare or fairlead tls cert, or join with --join-token-file"
		if file.Remedy != "" {
			p.Remedy = file.Remedy
		}
	case field:
		p.Code = failure.Usage
	case errors.Is(err, consensus.ErrLocked):
		p.Remedy = fmt.Sprintf("another process uses %s: stop it, or give another --dir", g.Dir)
	case errors.Is(err, consensus.ErrCorrupt):
		p.Remedy = fmt.Sprintf("nothing was deleted: keep a copy of %s, then let the agent begin anew in another --dir and be given the log by the others", g.Dir)
	case strings.Contains(err.Error(), "address already in use"):
		p.Remedy = "another program has a port: give others with --listen, --raft-listen and --gossip-listen"
	}
	return p
}
