package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/control/controlserver"
)

// agentForm is how --agent is written.
const agentForm = "NAME=ROLE[/CELL][@HOST,...]"

// agentsValue is a repeated flag of the form NAME=ROLE[/CELL][@HOST,...].
type agentsValue struct{ requests []identity.Request }

func (v *agentsValue) Type() string { return agentForm }

func (v *agentsValue) String() string {
	names := make([]string, 0, len(v.requests))
	for _, r := range v.requests {
		names = append(names, r.Identity.Name)
	}
	return strings.Join(names, ",")
}

func (v *agentsValue) Set(s string) error {
	rest, hosts, hasHosts := strings.Cut(s, "@")
	name, what, ok := strings.Cut(rest, "=")
	role, cellName, hasCell := strings.Cut(what, "/")
	if !ok || name == "" || hasHosts && hosts == "" || hasCell && cellName == "" {
		return &valueError{problem: "it has not the form " + agentForm, remedy: "write it as control-1=control or cell-a-1=cell/cell-a@10.0.0.7"}
	}
	if !slices.Contains(config.AgentRoles(), role) {
		return notOneOf(role, config.AgentRoles())
	}
	r := identity.Request{Identity: identity.Identity{Role: identity.Role(role), Name: name, Cell: cell.ID(cellName)}}
	if hasHosts {
		r.Hosts = strings.Split(hosts, ",")
	}
	v.requests = append(v.requests, r)
	return nil
}

// agentsFile is a file of agents.
type agentsFile struct {
	Agents []struct {
		Name  string   `yaml:"name"`
		Role  string   `yaml:"role"`
		Cell  string   `yaml:"cell"`
		Hosts []string `yaml:"hosts"`
	} `yaml:"agents"`
}

const agentsFileBytesMax = 1 << 20

// readAgents reads a file of agents. A key that is not one is a fault, with its line.
func readAgents(path string) ([]identity.Request, error) {
	bad := func(why string) error {
		p := failure.Usagef("write it as\nagents:\n  - {name: control-1, role: control}\n  - {name: cell-a-1, role: cell, cell: cell-a, hosts: [10.0.0.7]}", "%s cannot be used", path)
		p.Why = why
		return p
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, bad(err.Error())
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, agentsFileBytesMax+1))
	if err != nil {
		return nil, bad(err.Error())
	}
	if len(text) > agentsFileBytesMax {
		return nil, bad(fmt.Sprintf("it has more than %d bytes", agentsFileBytesMax))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var file agentsFile
	if err := decoder.Decode(&file); err != nil {
		return nil, bad(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var requests []identity.Request
	for _, g := range file.Agents {
		requests = append(requests, identity.Request{
			Identity: identity.Identity{Role: identity.Role(g.Role), Name: g.Name, Cell: cell.ID(g.Cell)}, Hosts: g.Hosts,
		})
	}
	return requests, nil
}

// prepareFlags say what cluster prepare makes.
type prepareFlags struct {
	dir, cluster, file string
	agents             agentsValue
	lifetime           *durationValue
	renew, dryRun      bool
}

func (a *app) clusterPrepareCommand() *cobra.Command {
	f := prepareFlags{lifetime: newDuration(identity.LifetimeDefault)}
	cmd := &cobra.Command{
		Use: "prepare --dir DIR --agent " + agentForm, Short: "Make the keys and certificates of a whole cluster",
		Long: `Prepare makes a directory with the cluster's certificate authority, its id, the secret of the first admin key, and a folder for each agent
with all that it needs to start: the folder is what fairlead agent takes as --tls-dir. It needs no server, and can be run again: it adds
what is missing, such as one more agent's folder, and changes nothing that is there. With --renew agents get new keys and certificates.

A certificate is good for the hosts that follow @, for the agent's name, and for localhost where users connect: control agents and gateways.`,
		Example: `  fairlead cluster prepare --dir ./cluster --agent control-1=control --agent cell-a-1=cell/cell-a --agent gateway-1=gateway@api.example.com
  fairlead cluster prepare --dir ./cluster --file agents.yaml
  fairlead cluster prepare --dir ./cluster --agent gateway-1=gateway@api.example.com --renew`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.prepareCluster(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "", "`directory` of the cluster; required")
	flags.Var(&f.agents, "agent", "agent to make a folder for, as `"+agentForm+"`; repeated")
	flags.StringVar(&f.file, "file", "", "`file` in YAML with more agents: agents: [{name: , role: , cell: , hosts: []}]")
	flags.StringVar(&f.cluster, "cluster-id", "", "`id` of the cluster; made when not given")
	flags.Var(f.lifetime, "lifetime", "how long the agents' certificates are good, at least 1m")
	flags.BoolVar(&f.renew, "renew", false, "make new keys and certificates for agents that have them")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be made, and make nothing")
	completeNothing(cmd, "agent", "cluster-id", "lifetime")
	must(cmd.MarkFlagDirname("dir"))
	must(cmd.MarkFlagFilename("file", "yaml", "yml"))
	return cmd
}

func (a *app) prepareCluster(cmd *cobra.Command, f *prepareFlags) error {
	if f.dir == "" {
		return missingFlag("dir", "name the directory of the cluster")
	}
	requests := f.agents.requests
	if f.file != "" {
		more, err := readAgents(f.file)
		if err != nil {
			return err
		}
		requests = append(requests, more...)
	}
	if len(requests) == 0 {
		return failure.Usagef("name them with --agent "+agentForm+" or --file", "there is no agent to prepare")
	}
	for i := range requests {
		requests[i].Lifetime = f.lifetime.d
		requests[i].Hosts = certificateHosts(requests[i])
	}
	p, err := a.offlinePrinter(cmd)
	if err != nil {
		return err
	}
	made, err := identity.Prepare(identity.PrepareConfig{
		Dir: f.dir, ClusterID: f.cluster, Agents: requests, Renew: f.renew, DryRun: f.dryRun,
		AdminSecret: func() string { return controlserver.NewSecret().Reveal() },
	}, a.now())
	if err != nil {
		return prepareProblem(err)
	}
	if err := a.printMade(p, made); err != nil {
		return err
	}
	if f.dryRun {
		a.sayf("Nothing is made (--dry-run).")
		return nil
	}
	a.nextOfPrepared(f.dir, requests)
	return nil
}

// certificateHosts adds what a certificate is good for whoever asks: the agent's name, and this machine for those that users connect to.
func certificateHosts(r identity.Request) []string {
	hosts := slices.Clone(r.Hosts)
	more := []string{r.Identity.Name}
	if r.Identity.Role != identity.RoleCell {
		more = append(more, "localhost", "127.0.0.1")
	}
	for _, h := range more {
		if !slices.Contains(hosts, h) && identity.CheckHost("", h) == nil {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// prepareProblem names the flags of what was asked wrongly.
func prepareProblem(err error) error {
	var out []error
	for _, e := range joinedErrors(err) {
		if fe, ok := errors.AsType[*cell.FieldError](e); ok {
			field := "--agent"
			switch fe.Field {
			case "lifetime":
				field = "--lifetime"
			case "cluster":
				field = "--cluster-id"
			}
			part := ""
			if field == "--agent" {
				part = fe.Field + " "
			}
			e = &cell.FieldError{Field: field, Problem: part + fe.Problem, Remedy: fe.Remedy}
		}
		if !slices.ContainsFunc(out, func(o error) bool { return o.Error() == e.Error() }) {
			out = append(out, e)
		}
	}
	return errors.Join(out...)
}

// joinedErrors returns the errors that errors.Join put together, at any depth.
func joinedErrors(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, joinedErrors(e)...)
	}
	return all
}

func (a *app) printMade(p *output.Printer, made []identity.Made) error {
	state := func(m identity.Made) string {
		if m.New {
			return "new"
		}
		return "kept"
	}
	if !p.Human() {
		type file struct {
			Path       string `json:"path"`
			State      string `json:"state"`
			ExpireTime string `json:"expireTime,omitempty"`
		}
		var names []string
		files := struct {
			Items []file `json:"items"`
		}{Items: []file{}}
		for _, m := range made {
			one := file{Path: m.Path, State: state(m)}
			if !m.Expires.IsZero() {
				one.ExpireTime = m.Expires.UTC().Format(time.RFC3339)
			}
			files.Items, names = append(files.Items, one), append(names, m.Path)
		}
		return printJSON(p, strings.Join(names, "\n"), files)
	}
	rows := make([][]string, 0, len(made))
	for _, m := range made {
		until := output.None
		if !m.Expires.IsZero() {
			until = m.Expires.UTC().Format(time.DateOnly)
		}
		rows = append(rows, []string{m.Path, state(m), until})
	}
	return p.Section([]output.Column{{Name: "FILE"}, {Name: "STATE"}, {Name: "EXPIRES"}}, rows)
}

// nextOfPrepared says how the cluster begins.
func (a *app) nextOfPrepared(dir string, requests []identity.Request) {
	for _, r := range requests {
		if r.Identity.Role == identity.RoleControl {
			name := r.Identity.Name
			a.next("start the agents, then: fairlead cluster bootstrap --control %s:7700 --voter %s=%s:7701 --tls-dir %s --admin-key-file %s --wait",
				name, name, name, shellWord(dir+"/"+name), shellWord(dir+"/"+identity.AdminKeyFile))
			return
		}
	}
}
