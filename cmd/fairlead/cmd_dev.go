package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/agent"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/control/consensus"
)

func (a *app) devCommand() *cobra.Command {
	d := config.DefaultDev()
	cmd := &cobra.Command{
		Use: "dev", Short: "Run everything in one process on this machine",
		Long: `Dev runs control, a cell and the gateway in one process on loopback, with everything durable in a directory: a restart loses nothing.
The first start makes sample tenants, and a key for each, for workers and for operators; other commands on this machine find those
keys by themselves. It is for development: no TLS, and nobody but this machine can connect.

--policy takes a file in YAML with how the cell schedules and charges, and with organizations, tenants and what they are promised; those are
made as the file says at every start. docs/policy.yaml of the source has every key. fairlead sim and fairlead plan read the same form.`,
		Example: `  fairlead dev
  fairlead dev --dir /var/tmp/fairlead --listen 127.0.0.1:8800
  fairlead dev --sample-tenant north --sample-tenant south
  fairlead dev --policy ./policy.yaml --sample-tenant alder`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dev(cmd) },
	}
	f := cmd.Flags()
	f.String("dir", d.Dir, "state `directory`")
	f.String("listen", d.Listen, "loopback `address` and port of the API; port 0 takes a free one")
	f.String("policy", d.Policy, "scheduling `policy`: "+strings.Join(config.Policies(), ", ")+", or a policy file")
	f.StringSlice("sample-tenant", d.SampleTenants, "`tenant` to begin with; repeat for more")
	f.Var(newEnum(d.LogLevel, config.LogLevels()), "log-level", "least `level` that is logged: "+strings.Join(config.LogLevels(), ", "))
	f.Var(newEnum(d.LogFormat, config.LogFormats()), "log-format", "`format` of the log: "+strings.Join(config.LogFormats(), ", "))
	bind(f, map[string]string{
		"dir": "dev.dir", "listen": "dev.listen", "policy": "dev.policy", "sample-tenant": "dev.sample-tenant",
		"log-level": "dev.log-level", "log-format": "dev.log-format",
	})
	must(cmd.RegisterFlagCompletionFunc("policy", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return config.Policies(), cobra.ShellCompDirectiveDefault // and files
	}))
	completeEnum(cmd, "log-level", config.LogLevels())
	completeEnum(cmd, "log-format", config.LogFormats())
	completeNothing(cmd, "listen", "sample-tenant")
	must(cmd.MarkFlagDirname("dir"))
	return cmd
}

// dev runs until the context ends. Ending in order is no failure, whatever signal asked for it.
func (a *app) dev(cmd *cobra.Command) error {
	l, err := a.load(cmd)
	if err != nil {
		return err
	}
	d := l.Config.Dev
	if err := l.Check(d.Validate()); err != nil {
		return err
	}
	cfg, err := a.agentConfig(d)
	if err != nil {
		return err
	}
	running, err := agent.Start(cmd.Context(), cfg)
	if err != nil {
		return devProblem(d, err)
	}
	a.welcome(d, running.Credentials())
	err = running.Wait(cmd.Context())
	a.sayf("Stopping: open requests are answered, then the logs are closed.")
	return errors.Join(err, running.Close())
}

// agentConfig is the configuration in the agent's terms.
func (a *app) agentConfig(d config.Dev) (agent.Config, error) {
	cfg := agent.DefaultConfig(d.Dir, d.Listen)
	p, faults := d.ReadPolicy()
	if len(faults) > 0 {
		return cfg, &config.FaultsError{Faults: faults}
	}
	cfg.Leader.Sched, cfg.Leader.Costing = p.Sched, p.Costing
	cfg.Organizations, cfg.Tenants, cfg.SamplePolicy = p.Organizations, p.Tenants, p.Default
	cfg.SampleTenants = d.SampleTenants
	cfg.Version = buildVersion().Version
	cfg.Logger = newLogger(a.err, d.LogLevel, d.LogFormat)
	return cfg, nil
}

// devProblem says what can be done about a start that failed.
func devProblem(d config.Dev, err error) error {
	p := &failure.Problem{Code: failure.Failed, What: "fairlead dev could not start", Why: err.Error()}
	fe, unfit := errors.AsType[*cell.FieldError](err)
	switch {
	case unfit:
		p.Code, p.Why, p.Remedy = failure.Usage, strings.TrimSuffix(err.Error(), ": "+fe.Remedy), fe.Remedy
	case errors.Is(err, consensus.ErrLocked):
		p.Remedy = fmt.Sprintf("another process uses %s: stop it, or give another --dir", d.Dir)
	case errors.Is(err, consensus.ErrCorrupt):
		p.Remedy = fmt.Sprintf("nothing was deleted: keep a copy of %s, then begin anew in another --dir", d.Dir)
	case strings.Contains(err.Error(), "address already in use"):
		p.Remedy = "another program has the port: give another --listen, such as 127.0.0.1:0 for a free one"
	}
	return p
}

// welcome says where to connect, with which keys, and what to try first.
func (a *app) welcome(d config.Dev, creds config.Credentials) {
	var b strings.Builder
	fmt.Fprintf(&b, "Fairlead is ready at %s, for this machine only. Its state is in %s.\n\n", creds.Addr, d.Dir)
	rows := make([]output.Pair, 0, len(creds.Keys))
	tenant := ""
	for _, k := range creds.Keys {
		rows = append(rows, output.Pair{Key: k.Name, Value: k.Secret + "  " + strings.Join(k.Scopes, ", ")})
		if tenant == "" && k.Tenant != "" {
			tenant = k.Tenant
		}
	}
	width := 0
	for _, r := range rows {
		width = max(width, len(r.Key))
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, r.Key, r.Value)
	}
	fmt.Fprintf(&b, "\nTry, in another terminal:\n\n%s", tryLines(d, creds.Addr, tenant))
	fmt.Fprint(a.out, b.String())
}

// tryLines are three lines to paste.
func tryLines(d config.Dev, addr, tenant string) string {
	flags := ""
	def := config.DefaultDev()
	if d.Dir != def.Dir {
		flags = " --dev-dir " + shellWord(d.Dir)
	} else if addr != "http://"+def.Listen {
		flags = " --addr " + addr
	}
	as := ""
	if tenant != "" {
		as = " --as " + tenant
	}
	return fmt.Sprintf(`  fairlead worker --operation count --exec 'wc -c'%[1]s
  fairlead job submit count --payload '{"order": 9007199254740993}' --wait%[1]s%[2]s
  fairlead status%[1]s
`, flags, as)
}

// shellWord quotes s for a shell where it needs it.
func shellWord(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
