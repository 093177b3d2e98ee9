package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// The groups of commands in the help of the root.
const (
	groupWork    = "work"
	groupOperate = "operate"
	groupSetup   = "setup"
)

func (a *app) rootCommand() *cobra.Command {
	root := group("fairlead", "Run many tenants' jobs fairly: one tenant's flood is never another's wait",
		`Fairlead is a multi-tenant worker platform. Applications submit jobs for their tenants; workers in any language run them; no tenant's
flood, size or bad luck becomes another tenant's wait.

Answers go to standard output, everything else to standard error. The exit code is 0 ok, 1 failed, 2 usage or configuration,
3 unreachable, 4 refused, 5 wait timed out, 6 not found, 7 denied, 130 interrupted. Every flag of a connection can stand in
fairlead.yaml or the environment: --addr is also FAIRLEAD_ADDR. See: fairlead config validate -o wide`,
		`  fairlead job submit invoice.export --payload '{"invoice": 42}' --wait
  fairlead worker --operation invoice.export --exec cat
  fairlead status`)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagProblem)
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStdout(), usage(cmd))
		return err
	})
	root.PersistentPreRun = func(*cobra.Command, []string) { a.parsed = true }
	root.AddGroup(&cobra.Group{ID: groupWork, Title: "Jobs and workers:"}, &cobra.Group{ID: groupOperate, Title: "Operation:"},
		&cobra.Group{ID: groupSetup, Title: "Setup:"})
	a.connectionFlags(root)
	for id, commands := range map[string][]*cobra.Command{
		groupWork: {a.jobCommand(), a.workerCommand()},
		groupOperate: {
			a.organizationCommand(), a.tenantCommand(), a.keyCommand(), a.statusCommand(), a.planCommand(), a.simCommand(), a.clusterCommand(), a.cellCommand(),
			a.placementCommand(), a.migrateCommand(), a.auditCommand(),
		},
		groupSetup: {
			a.demoCommand(), a.demoServerCommand(), a.demoWorkerCommand(), a.demoMemberCommand(), a.devCommand(), a.agentCommand(), a.tlsCommand(),
			a.healthCommand(), a.configCommand(), a.versionCommand(),
		},
	} {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommand(helpCommand())
	root.SetHelpCommandGroupID(groupSetup)
	root.SetCompletionCommandGroupID(groupSetup)
	completionCommand(root)
	return root
}

// completionCommand adds cobra's own, with an answer to shells that it does not know.
func completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			like := group("completion", "Make the shell complete commands, flags and words", "", "")
			c.Short, c.Args, c.RunE = like.Short, like.Args, like.RunE
			c.Example = "  source <(fairlead completion bash)\n  fairlead completion fish > ~/.config/fish/completions/fairlead.fish"
		}
	}
}

func (a *app) connectionFlags(root *cobra.Command) {
	d := config.Default()
	f := root.PersistentFlags()
	f.StringVar(&a.configFile, "config", "", "configuration `file` (default ./fairlead.yaml, then fairlead/config.yaml of the user)")
	f.String("addr", d.Client.Addr, "server's `URL`")
	f.String("token", "", "API `key`; better FAIRLEAD_TOKEN or --token-file, which other users cannot see")
	f.String("token-file", "", "`file` that holds the API key")
	f.String("ca-file", "", "`file` with the certificate authority that an https server is trusted by; the system's when not given")
	f.String("as", "", "`name` of a key of the local fairlead dev to use, such as admin")
	f.Bool("allow-plain", false, "let the key go to another machine over plain http")
	f.String("dev-dir", d.Dev.Dir, "state `directory` of the local fairlead dev, for its keys")
	f.VarP(newEnum(d.Client.Output, output.Formats()), "output", "o", "`format`: "+strings.Join(output.Formats(), ", "))
	f.Var(newDuration(d.Client.RequestTimeout), "request-timeout", "bound on each call that is not a wait")
	bind(f, map[string]string{
		"addr": "addr", "allow-plain": "allow-plain", "token": "token", "token-file": "token-file", "as": "as", "dev-dir": "dev.dir", "output": "output",
		"request-timeout": "request-timeout", "ca-file": "ca-file",
	})
	completeEnum(root, "output", output.Formats())
	completeNothing(root, "addr", "token", "as", "request-timeout")
	must(root.MarkPersistentFlagDirname("dev-dir"))
	must(root.MarkPersistentFlagFilename("config", "yaml", "yml"))
	must(root.MarkPersistentFlagFilename("ca-file", "crt", "pem"))
}

// group returns a command that only has commands below it.
func group(use, short, long, example string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	c.AddCommand(children...)
	return c
}

func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	remedy := fmt.Sprintf("use one of: %s", strings.Join(names, ", "))
	if near, ok := config.Nearest(name, names); ok {
		remedy = fmt.Sprintf("did you mean %s %s? There are: %s", parent.CommandPath(), near, strings.Join(names, ", "))
	}
	return failure.Usagef(remedy, "%s has no command %.40q", parent.CommandPath(), name)
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]...", Short: "Explain a command", Example: "  fairlead help job submit",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			at, _, err := c.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, child := range at.Commands() {
				if child.IsAvailableCommand() {
					names = append(names, child.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			at, rest, err := c.Root().Find(args)
			if err != nil {
				return fmt.Errorf("finding the command: %w", err)
			}
			if len(rest) > 0 {
				return unknownCommand(at, rest[0])
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// flagProblem explains what is wrong with a flag: it lists the valid values, or names the nearest flag.
func flagProblem(cmd *cobra.Command, err error) error {
	help := "see: " + cmd.CommandPath() + " --help"
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, e, help)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		p := failure.Usagef(help, "--%s cannot be %.100q", e.GetFlag().Name, e.GetValue())
		p.Why = e.Unwrap().Error()
		if v, ok := errors.AsType[*valueError](err); ok {
			p.Why, p.Remedy = v.problem, v.remedy
		}
		return p
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return failure.Usagef(help, "--%s needs a value", e.GetFlag().Name)
	}
	return failure.Usagef(help, "%s", err.Error())
}

func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError, help string) error {
	name := e.GetSpecifiedName()
	if e.GetSpecifiedShortnames() != "" {
		return failure.Usagef(help, "%s has no flag -%s", cmd.CommandPath(), name)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near, ok := config.Nearest(name, names); ok {
		help = "did you mean --" + near + "? " + help
	}
	return failure.Usagef(help, "%s has no flag --%s", cmd.CommandPath(), name)
}
