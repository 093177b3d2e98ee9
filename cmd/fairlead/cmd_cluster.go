package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// changeTimeout bounds a change of a log's replicas: a new one has to be given the whole state first.
const changeTimeout = 10 * time.Minute

func (a *app) clusterCommand() *cobra.Command {
	return group("cluster", "Make a cluster, and change the agents it is made of",
		`A cluster is its agents: control agents that decide, cells that hold jobs, gateways that users connect to. Prepare and bootstrap make one; the
others show and change the replicas of a log, control's or with --cell a cell's. Reading needs a key with the scope operate, changing
one with the scope admin.`,
		"  fairlead cluster get\n  fairlead cluster peers --cell cell-a\n  fairlead cluster snapshot save control.snap",
		a.clusterPrepareCommand(), a.clusterBootstrapCommand(), a.clusterSeedCommand(), a.clusterGetCommand(), a.clusterMembersCommand(),
		a.clusterPeersCommand(), a.clusterJoinCommand(), a.clusterLeaveCommand(), a.clusterTransferCommand(), a.clusterSnapshotCommand(), a.clusterTokenCommand(),
		a.clusterUpgradeCommand())
}

// cellFlag adds --cell to a command about a log.
func cellFlag(cmd *cobra.Command, name *string, usage string) {
	cmd.Flags().StringVar(name, "cell", "", usage)
	completeNothing(cmd, "cell")
}

const logOfCell = "`cell` whose log is meant; control's when not given"

// checkCell returns a fault of a --cell that was given.
func checkCell(cmd *cobra.Command, name string) error {
	if !cmd.Flags().Changed("cell") {
		return nil
	}
	_, err := cell.ParseCellID("--cell", name)
	return err
}

// logOf names a log for people.
func logOf(cellName string) string {
	if cellName == "" {
		return "control's log"
	}
	return "the log of " + cellName
}

func withCell(cellName string) string {
	if cellName == "" {
		return ""
	}
	return " --cell " + cellName
}

func (a *app) clusterGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get", Aliases: []string{"status"}, Short: "Show the cluster and its agents",
		Long:    "Get shows the cluster's record and every agent that has registered, with when control last heard of it.",
		Example: "  fairlead cluster get\n  fairlead cluster get -o wide\n  fairlead cluster get -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "get the cluster", s.cluster.GetCluster, &fairleadv1.GetClusterRequest{})
			if err != nil {
				return err
			}
			return a.printCluster(a.printer(l), resp)
		},
	}
}

func (a *app) printCluster(p *output.Printer, c *fairleadv1.GetClusterResponse) error {
	if !p.Human() {
		return p.Object(c.GetClusterId(), c)
	}
	level := decimal(int64(c.GetFeatureLevel()))
	if c.GetFeatureLevelMax() > c.GetFeatureLevel() {
		level += fmt.Sprintf("; every agent understands %d: fairlead cluster upgrade", c.GetFeatureLevelMax())
	}
	restores := ""
	if c.GetRestores() > 0 {
		restores = decimal(c.GetRestores())
	}
	err := p.Describe([]output.Pair{
		{Key: "Cluster", Value: output.Safe(c.GetClusterId())},
		{Key: "Created", Value: a.when(c.GetCreateTime())},
		{Key: "Leader", Value: output.Safe(c.GetLeader())},
		{Key: "Feature level", Value: level},
		{Key: "Restored", Value: restores},
		{Key: "Tenants", Value: decimal(c.GetTenants())},
		{Key: "Cells", Value: decimal(c.GetCells())},
	})
	if err != nil {
		return err
	}
	var rows [][]string
	for _, g := range c.GetAgents() {
		rows = append(rows, []string{
			output.Safe(g.GetName()), roleText(g.GetRole()), output.Safe(g.GetCell()), output.Safe(g.GetApiAddress()), output.Safe(g.GetRaftAddress()),
			output.Safe(g.GetVersion()), decimal(int64(g.GetFeatureLevelMax())), output.Age(a.now(), g.GetLastSeen()),
		})
	}
	return section(p, []output.Column{
		{Name: "AGENT"},
		{Name: "ROLE"},
		{Name: "CELL"},
		{Name: "ADDRESS"},
		{Name: "LOG", Wide: true},
		{Name: "VERSION"},
		{Name: "LEVEL", Wide: true},
		{Name: "SEEN"},
	}, rows)
}

func roleText(r fairleadv1.AgentRole) string { return output.Enum(r, "AGENT_ROLE_") }

func (a *app) clusterMembersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "members", Short: "Show what gossip hints of every agent",
		Long: `Members shows every agent as one of them sees it by gossip: alive, suspect, dead or left, and how busy. It is a hint: who leads and who has
what is not decided by it.`,
		Example: "  fairlead cluster members\n  fairlead cluster members -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "list the members", s.cluster.ListMembers, &fairleadv1.ListMembersRequest{})
			if err != nil {
				return err
			}
			a.sayf("As seen by %s.", output.Safe(resp.GetSeenBy()))
			list := output.NewList(a.printer(l), memberView())
			if err := list.Add(resp.GetMembers()...); err != nil {
				return err
			}
			return list.Close()
		},
	}
}

func memberView() output.View[*fairleadv1.Member] {
	return output.View[*fairleadv1.Member]{
		Columns: []output.Column{
			{Name: "MEMBER"},
			{Name: "ROLE"},
			{Name: "CELL"},
			{Name: "STATE"},
			{Name: "BUSY"},
			{Name: "ADDRESS", Wide: true},
			{Name: "GOSSIP", Wide: true},
		},
		Row: func(m *fairleadv1.Member) []string {
			return []string{
				output.Safe(m.GetName()), roleText(m.GetRole()), output.Safe(m.GetCell()), output.Safe(m.GetState()),
				strconv.Itoa(int(m.GetLoadPercent())) + " %", output.Safe(m.GetApiAddress()), output.Safe(m.GetGossipAddress()),
			}
		},
		Name: (*fairleadv1.Member).GetName,
	}
}

func (a *app) clusterPeersCommand() *cobra.Command {
	var cellName string
	cmd := &cobra.Command{
		Use: "peers", Short: "Show the replicas of a log",
		Long: `Peers shows the replicas of control's log, or of a cell's: who leads, who votes, how far each is, and since when the leader has heard nothing
of it.`,
		Example: "  fairlead cluster peers\n  fairlead cluster peers --cell cell-a -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkCell(cmd, cellName); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "list the replicas of "+logOf(cellName), s.cluster.ListPeers, &fairleadv1.ListPeersRequest{Cell: cellName})
			if err != nil {
				return err
			}
			return printPeers(a.printer(l), resp)
		},
	}
	cellFlag(cmd, &cellName, logOfCell)
	return cmd
}

func printPeers(p *output.Printer, resp *fairleadv1.ListPeersResponse) error {
	if !p.Human() {
		var names []string
		for _, peer := range resp.GetPeers() {
			names = append(names, peer.GetName())
		}
		return p.Object(strings.Join(names, "\n"), resp)
	}
	voters := 0
	for _, peer := range resp.GetPeers() {
		if peer.GetVoter() {
			voters++
		}
	}
	unsigned := func(n uint64) string { return strconv.FormatUint(n, 10) }
	err := p.Describe([]output.Pair{
		{Key: "Term", Value: unsigned(resp.GetTerm())},
		{Key: "Last entry", Value: unsigned(resp.GetLastIndex()) + ", committed to " + unsigned(resp.GetCommitIndex()) + ", snapshot at " + unsigned(resp.GetSnapshotIndex())},
		{Key: "Voters", Value: fmt.Sprintf("%d, and %d are wanted", voters, resp.GetVotersWanted())},
	})
	if err != nil {
		return err
	}
	return section(p, peerColumns(), peerRows(resp.GetPeers(), resp.GetLastIndex()))
}

func peerColumns() []output.Column {
	return []output.Column{{Name: "PEER"}, {Name: "STATE"}, {Name: "ADDRESS"}, {Name: "BEHIND"}, {Name: "HEARD OF"}}
}

// peerRows shows replicas; last is the leader's last entry.
func peerRows(peers []*fairleadv1.Peer, last uint64) [][]string {
	rows := make([][]string, 0, len(peers))
	for _, peer := range peers {
		state := "no vote"
		switch {
		case peer.GetLeader():
			state = "leader"
		case peer.GetVoter():
			state = "voter"
		}
		behind := output.None
		if peer.GetLastContact() != nil {
			behind = strconv.FormatUint(last-min(last, peer.GetLastIndex()), 10)
		}
		heard := output.ProtoDuration(peer.GetLastContact())
		if peer.GetLeader() {
			heard, behind = "now", "0"
		} else if peer.GetLastContact() != nil {
			heard += " ago"
		}
		rows = append(rows, []string{output.Safe(peer.GetName()), state, output.Safe(peer.GetRaftAddress()), behind, heard})
	}
	return rows
}

func (a *app) clusterJoinCommand() *cobra.Command {
	var cellName string
	var nonVoter bool
	cmd := &cobra.Command{
		Use: "join NAME", Aliases: []string{"add-peer"}, Short: "Make an agent a replica of a log",
		Long: `Join makes an agent that has registered a replica of control's log, or of its cell's: without a vote until it has everything, and then, unless
--non-voter is given, with one. It waits until that is so. To ask again is safe.`,
		Example: "  fairlead cluster join control-4\n  fairlead cluster join cell-a-4 --cell cell-a\n  fairlead cluster join control-4 --non-voter",
		Args:    arguments(false, "NAME"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(cell.CheckID("NAME", args[0]), checkCell(cmd, cellName)); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			a.sayf("Adding %s to %s: it is given everything first.", args[0], logOf(cellName))
			resp, err := callFor(cmd.Context(), s, max(changeTimeout, s.timeout), "add "+args[0]+" to "+logOf(cellName), s.cluster.AddPeer,
				&fairleadv1.AddPeerRequest{Cell: cellName, Name: args[0], NonVoter: nonVoter})
			if err != nil {
				return err
			}
			a.next("fairlead cluster peers%s", withCell(cellName))
			p := a.printer(l)
			if !p.Human() {
				return p.Object(resp.GetPeer().GetName(), resp.GetPeer())
			}
			return p.Section(peerColumns(), peerRows([]*fairleadv1.Peer{resp.GetPeer()}, resp.GetPeer().GetLastIndex()))
		},
	}
	cellFlag(cmd, &cellName, logOfCell)
	cmd.Flags().BoolVar(&nonVoter, "non-voter", false, "leave it without a vote")
	return cmd
}

func (a *app) clusterLeaveCommand() *cobra.Command {
	var cellName string
	var force, yes bool
	cmd := &cobra.Command{
		Use: "leave NAME", Aliases: []string{"remove-peer"}, Short: "Take a replica out of a log",
		Long: `Leave takes a replica out of control's log, or of a cell's. It is refused when fewer voters would be left than the log is meant to have: add
another first, or give --force, which asks before it does it.`,
		Example: "  fairlead cluster leave control-2\n  fairlead cluster leave cell-a-2 --cell cell-a --force --yes",
		Args:    arguments(false, "NAME"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(cell.CheckID("NAME", args[0]), checkCell(cmd, cellName)); err != nil {
				return err
			}
			if force {
				question := fmt.Sprintf("Remove %s from %s even if it cannot survive another loss then?", args[0], logOf(cellName))
				if err := a.confirm(cmd.Context(), yes, question); err != nil {
					return err
				}
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "remove "+args[0]+" from "+logOf(cellName), s.cluster.RemovePeer,
				&fairleadv1.RemovePeerRequest{Cell: cellName, Name: args[0], Force: force})
			if err != nil {
				return err
			}
			a.next("fairlead cluster peers%s", withCell(cellName))
			return a.printDone(a.printer(l), args[0], resp, "%s is not a replica of %s any more.", args[0], logOf(cellName))
		},
	}
	cellFlag(cmd, &cellName, logOfCell)
	cmd.Flags().BoolVar(&force, "force", false, "remove it although fewer voters are left than wanted")
	yesFlag(cmd, &yes)
	return cmd
}

func (a *app) clusterTransferCommand() *cobra.Command {
	var cellName string
	cmd := &cobra.Command{
		Use: "transfer [NAME]", Short: "Make another replica lead",
		Long: `Transfer makes a voter lead control's log, or a cell's: the one named, or any that has everything. Requests that are on their way are held for
the moment that it takes, or tried again.`,
		Example: "  fairlead cluster transfer\n  fairlead cluster transfer cell-a-2 --cell cell-a",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return arguments(false, "NAME")(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &fairleadv1.TransferLeadershipRequest{Cell: cellName}
			errs := []error{checkCell(cmd, cellName)}
			if len(args) == 1 {
				req.Name = args[0]
				errs = append(errs, cell.CheckID("NAME", args[0]))
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "transfer "+logOf(cellName), s.cluster.TransferLeadership, req)
			if err != nil {
				return err
			}
			if resp.GetLeader() == "" { // whoever leads has not said so yet
				return a.printDone(a.printer(l), "", resp, "Another leads %s now.", logOf(cellName))
			}
			return a.printDone(a.printer(l), resp.GetLeader(), resp, "%s leads %s.", output.Safe(resp.GetLeader()), logOf(cellName))
		},
	}
	cellFlag(cmd, &cellName, logOfCell)
	return cmd
}

func (a *app) clusterTokenCommand() *cobra.Command {
	role, lifetime := newEnum("", config.AgentRoles()), newDuration(time.Hour)
	var cellName, name string
	cmd := &cobra.Command{
		Use: "token --role ROLE", Short: "Print a token with which one agent joins, this once",
		Long: `Token prints a join token: an agent that is started with it in --join-token-file gets its certificate from control. It is good for one agent of
that role, for a while, and names the cluster's authority, so that the agent cannot be lured into another cluster.`,
		Example: "  fairlead cluster token --role gateway\n  fairlead cluster token --role cell --cell cell-a --name cell-a-4 --lifetime 10m -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkToken(role.value, cellName, name, lifetime.d); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "create the token", s.cluster.CreateJoinToken, &fairleadv1.CreateJoinTokenRequest{
				Role: agentRole(role.value), Cell: cellName, Name: name, Lifetime: durationpb.New(lifetime.d),
			})
			if err != nil {
				return err
			}
			p := a.printer(l)
			if !p.Human() {
				return p.Object(resp.GetToken(), resp)
			}
			a.sayf("The token cannot be shown again. It is good until %s.", a.when(resp.GetExpireTime()))
			a.next("put it into a file of mode 0600, and: fairlead agent --role %s --join-token-file FILE --control HOST:PORT --name NAME", role.value)
			return p.Text(resp.GetToken())
		},
	}
	cmd.Flags().Var(role, "role", "what the agent is to do: "+strings.Join(config.AgentRoles(), ", ")+"; required")
	cellFlag(cmd, &cellName, "`cell` that the agent is to be of; for the role cell, and required there")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the only agent that may use it; any when not given")
	cmd.Flags().Var(lifetime, "lifetime", "how long it is good, 1m to 24h")
	completeEnum(cmd, "role", config.AgentRoles())
	completeNothing(cmd, "name", "lifetime")
	return cmd
}

// The bounds of a join token's lifetime, as the API has them.
const (
	tokenLifetimeMin = time.Minute
	tokenLifetimeMax = 24 * time.Hour
)

// checkToken returns every fault of what is asked of a token.
func checkToken(role, cellName, name string, lifetime time.Duration) error {
	var errs []error
	if role == "" {
		errs = append(errs, &cell.FieldError{Field: "--role", Problem: "is missing", Remedy: "use " + strings.Join(config.AgentRoles(), ", ")})
	}
	if role == "cell" {
		_, err := cell.ParseCellID("--cell", cellName)
		errs = append(errs, err)
	} else if cellName != "" {
		errs = append(errs, &cell.FieldError{Field: "--cell", Problem: "is for agents of the role cell", Remedy: "leave it out, or give --role cell"})
	}
	if name != "" {
		errs = append(errs, cell.CheckID("--name", name))
	}
	if lifetime < tokenLifetimeMin || lifetime > tokenLifetimeMax {
		errs = append(errs, &cell.FieldError{
			Field: "--lifetime", Problem: fmt.Sprintf("is %v, outside %v to %v", lifetime, tokenLifetimeMin, tokenLifetimeMax), Remedy: "give a duration such as 1h",
		})
	}
	return errors.Join(errs...)
}

func agentRole(name string) fairleadv1.AgentRole {
	return fairleadv1.AgentRole(fairleadv1.AgentRole_value["AGENT_ROLE_"+strings.ToUpper(name)])
}

func (a *app) clusterUpgradeCommand() *cobra.Command {
	var level int
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Allow what only agents of a newer release understand",
		Long: `Upgrade raises the cluster's feature level, once every agent runs the new release: to the highest that all agents seen lately understand, or to
--level. Agents of an older release cannot run in the cluster any more then, and there is no way back, so it asks first.`,
		Example: "  fairlead cluster upgrade --dry-run\n  fairlead cluster upgrade --level 2 --yes",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("level") && level < 1 {
				return failure.Usagef("give a level as fairlead cluster get shows it", "--level is %d, below 1", level)
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return a.upgrade(cmd.Context(), s, a.printer(l), int32(min(level, 1<<20)), dryRun, yes)
		},
	}
	cmd.Flags().IntVar(&level, "level", 0, "feature `level`; the highest that every agent understands when not given")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and change nothing")
	yesFlag(cmd, &yes)
	completeNothing(cmd, "level")
	return cmd
}

func (a *app) upgrade(ctx context.Context, s *session, p *output.Printer, level int32, dryRun, yes bool) error {
	c, err := call(ctx, s, "get the cluster", s.cluster.GetCluster, &fairleadv1.GetClusterRequest{})
	if err != nil {
		return err
	}
	if level == 0 {
		level = max(c.GetFeatureLevelMax(), c.GetFeatureLevel())
	}
	done := &fairleadv1.SetFeatureLevelResponse{Level: level}
	name := strconv.Itoa(int(level))
	if level == c.GetFeatureLevel() {
		return a.printDone(p, name, done, "The feature level is %d already: nothing is to be done.", level)
	}
	if dryRun {
		return a.printDone(p, name, done, "The feature level would rise from %d to %d. Nothing is changed (--dry-run).", c.GetFeatureLevel(), level)
	}
	question := fmt.Sprintf("Raise the feature level of %s from %d to %d? There is no way back.", output.Safe(c.GetClusterId()), c.GetFeatureLevel(), level)
	if err := a.confirm(ctx, yes, question); err != nil {
		return err
	}
	resp, err := call(ctx, s, "raise the feature level", s.cluster.SetFeatureLevel, &fairleadv1.SetFeatureLevelRequest{Level: level})
	if err != nil {
		return err
	}
	return a.printDone(p, name, resp, "The feature level is %d.", resp.GetLevel())
}
