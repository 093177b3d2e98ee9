package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/control/controlserver"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// votersMax bounds the first voters of control's log: more make every change slower and nothing safer.
const votersMax = 7

// The bounds of waiting for control.
const (
	bootstrapWait     = 2 * time.Minute
	bootstrapDelayMin = 200 * time.Millisecond
	bootstrapDelayMax = 2 * time.Second
)

// votersValue is a repeated flag of the form NAME=HOST:PORT.
type votersValue struct{ peers []*fairleadv1.Peer }

func (v *votersValue) Type() string { return "NAME=HOST:PORT" }

func (v *votersValue) String() string {
	parts := make([]string, 0, len(v.peers))
	for _, p := range v.peers {
		parts = append(parts, p.GetName()+"="+p.GetRaftAddress())
	}
	return strings.Join(parts, ",")
}

func (v *votersValue) Set(s string) error {
	name, address, ok := strings.Cut(s, "=")
	if !ok || cell.CheckID("", name) != nil || checkHostPort(address) != "" {
		return &valueError{problem: "it is not an agent's name and the host and port of its log", remedy: "write it as control-1=10.0.0.1:7701"}
	}
	for _, p := range v.peers {
		if p.GetName() == name || p.GetRaftAddress() == address {
			return &valueError{problem: "the name or the address was given before", remedy: "give each voter once"}
		}
	}
	v.peers = append(v.peers, &fairleadv1.Peer{Name: name, RaftAddress: address, Voter: true})
	return nil
}

// checkHostPort says what is wrong with s as a host and a port, or returns the empty text.
func checkHostPort(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil || identity.CheckHost("", host) != nil {
		return "is not a host and a port"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "has no port from 1 to 65535"
	}
	return ""
}

type bootstrapFlags struct {
	control, tlsDir, keyFile string
	voters                   votersValue
	wait                     bool
	timeout                  *durationValue
}

func (a *app) clusterBootstrapCommand() *cobra.Command {
	f := bootstrapFlags{timeout: newDuration(bootstrapWait)}
	cmd := &cobra.Command{
		Use: "bootstrap --control HOST:PORT --voter NAME=HOST:PORT --tls-dir DIR --admin-key-file FILE", Short: "Make a new cluster of control agents that run",
		Long: `Bootstrap makes the cluster: one of its control agents is told which control agents vote, and the first admin key. It is done once; to ask
again changes nothing and is no failure. It needs a control agent's certificate, which is what --tls-dir holds.

With --wait it waits until control can be reached and serves, so that it can be started together with the agents.`,
		Example: `  fairlead cluster bootstrap --control control-1:7700 --voter control-1=control-1:7701 --tls-dir ./cluster/control-1 --admin-key-file ./cluster/admin.key
  fairlead cluster bootstrap --control 10.0.0.1:7700 --voter control-1=10.0.0.1:7701 --voter control-2=10.0.0.2:7701 --voter control-3=10.0.0.3:7701 --tls-dir /data/tls --admin-key-file /data/admin.key --wait`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bootstrap(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.control, "control", "", "`host:port` of the API of a control agent, one of the voters; required")
	flags.Var(&f.voters, "voter", "control agent that votes and where its log is, as `NAME=HOST:PORT`; repeated, an odd number")
	flags.StringVar(&f.tlsDir, "tls-dir", "", "`directory` of a control agent's certificate; required")
	flags.StringVar(&f.keyFile, "admin-key-file", "", "`file` that holds the secret of the first admin key; required")
	flags.BoolVar(&f.wait, "wait", false, "wait until control can be reached and serves")
	flags.Var(f.timeout, "timeout", "how long --wait waits")
	completeNothing(cmd, "control", "voter", "timeout")
	must(cmd.MarkFlagDirname("tls-dir"))
	return cmd
}

// check returns every fault of the flags.
func (f *bootstrapFlags) check() error {
	var errs []error
	for _, flag := range []struct{ name, value, remedy string }{
		{"--control", f.control, "name a control agent's API: control-1:7700"},
		{"--tls-dir", f.tlsDir, "name the folder that fairlead cluster prepare made for a control agent"},
		{"--admin-key-file", f.keyFile, "name the file admin.key that fairlead cluster prepare made"},
	} {
		if flag.value == "" {
			errs = append(errs, &cell.FieldError{Field: flag.name, Problem: "is missing", Remedy: flag.remedy})
		}
	}
	if problem := checkHostPort(f.control); f.control != "" && problem != "" {
		errs = append(errs, &cell.FieldError{Field: "--control", Problem: fmt.Sprintf("%.100q %s", f.control, problem), Remedy: "write it as control-1:7700"})
	}
	if n := len(f.voters.peers); n == 0 || n > votersMax || n%2 == 0 {
		errs = append(errs, &cell.FieldError{
			Field: "--voter", Problem: fmt.Sprintf("is given for %d agents, not an odd number up to %d", n, votersMax),
			Remedy: "3 survive the loss of one, 5 of two, and an even number of no more than one less",
		})
	}
	if f.timeout.d <= 0 {
		errs = append(errs, &cell.FieldError{Field: "--timeout", Problem: fmt.Sprintf("is %v, not above 0", f.timeout), Remedy: "give a duration such as 2m"})
	}
	return errors.Join(errs...)
}

func (a *app) bootstrap(cmd *cobra.Command, f *bootstrapFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	l, err := a.load(cmd)
	if err != nil {
		return err
	}
	store, err := identity.Load(f.tlsDir)
	if err != nil {
		return err
	}
	if role := store.Identity().Role; role != identity.RoleControl {
		return failure.Usagef("give the folder of a control agent", "--tls-dir %s is of an agent of the role %s", f.tlsDir, role)
	}
	text, err := identity.ReadSecret(f.keyFile)
	if err != nil {
		return err
	}
	secret, err := controlserver.ParseSecret("--admin-key-file", strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	hash := secret.Hash()
	b, err := newBootstrapper(a, f, store)
	if err != nil {
		return err
	}
	defer b.http.CloseIdleConnections()
	resp, err := b.run(cmd.Context(), l.Config.Client.RequestTimeout, &fairleadv1.BootstrapRequest{AdminKeyHash: hash[:], Voters: f.voters.peers})
	if err != nil {
		return err
	}
	if !resp.GetCreated() {
		a.sayf("The cluster had been bootstrapped before: nothing was changed.")
	}
	a.next("fairlead cluster get --addr https://%s --ca-file %s --token-file %s", f.control, shellWord(f.tlsDir+"/"+identity.CAFile), shellWord(f.keyFile))
	p := a.printer(l)
	if !p.Human() {
		return p.Object(resp.GetClusterId(), resp)
	}
	return p.Describe([]output.Pair{{Key: "Cluster", Value: output.Safe(resp.GetClusterId())}, {Key: "Voters", Value: f.voters.String()}})
}

// bootstrapper asks one control agent.
type bootstrapper struct {
	app      *app
	flags    *bootstrapFlags
	http     *http.Client
	url      string
	registry fairleadv1connect.RegistryServiceClient
}

func newBootstrapper(a *app, f *bootstrapFlags, store *identity.Store) (*bootstrapper, error) {
	url := "https://" + f.control
	hc, err := client.NewHTTPClient(url, client.ProtocolAuto, store.ClientTLS(identity.Expect{Role: identity.RoleControl}))
	if err != nil {
		return nil, &failure.Call{Doing: "use the address " + url, Addr: url, Err: err}
	}
	return &bootstrapper{app: a, flags: f, http: hc, url: url, registry: fairleadv1connect.NewRegistryServiceClient(hc, url)}, nil
}

// run asks once, or with --wait until control has answered and serves.
func (b *bootstrapper) run(ctx context.Context, timeout time.Duration, req *fairleadv1.BootstrapRequest) (*fairleadv1.BootstrapResponse, error) {
	var resp *fairleadv1.BootstrapResponse
	ask := func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		resp, err = b.registry.Bootstrap(ctx, req)
		return err
	}
	ready := func(ctx context.Context) error { return probe(ctx, b.http, b.url) }
	if !b.flags.wait {
		err := ask(ctx)
		return resp, b.failed(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.flags.timeout.d, errWaited)
	defer cancel()
	if err := b.until(ctx, ask); err != nil {
		return nil, b.failed(err)
	}
	return resp, b.failed(b.until(ctx, ready))
}

// errWaited is the cause of a wait that took too long.
var errWaited = errors.New("the time of the wait is over")

// until repeats do while it fails in a way that passes.
func (b *bootstrapper) until(ctx context.Context, do func(context.Context) error) error {
	backoff := client.Backoff{Min: bootstrapDelayMin, Max: bootstrapDelayMax}
	for n := 1; ; n++ {
		err := do(ctx)
		if err == nil || !passes(err) {
			return err
		}
		if n == 1 {
			b.app.sayf("Waiting for control at %s: %s", b.flags.control, output.SafeText(err.Error()))
		}
		if cause := client.Pause(ctx, backoff.Next(n, 0)); cause != nil {
			if errors.Is(cause, errWaited) {
				return &failure.Problem{
					Code: failure.TimedOut, What: fmt.Sprintf("control at %s is not ready after %v", b.flags.control, b.flags.timeout), Why: err.Error(), Err: err,
					Remedy: "see the agent's log; to ask again is safe",
				}
			}
			return cause
		}
	}
}

// passes reports whether what failed may go well a little later: nobody is there yet, or nobody leads.
func passes(err error) bool {
	if _, answered := errors.AsType[*unhealthyError](err); answered {
		return true
	}
	switch connect.CodeOf(err) { //nolint:exhaustive // every other code is a refusal
	case connect.CodeUnavailable:
		_, mismatch := errors.AsType[*identity.MismatchError](err)
		return !mismatch
	case connect.CodeDeadlineExceeded:
		return true
	default:
		return rejection.From(err).GetReason() == rejection.ReasonNotApplied
	}
}

func (b *bootstrapper) failed(err error) error {
	if err == nil {
		return nil
	}
	return &failure.Call{Doing: "bootstrap the cluster", Addr: b.url, Identity: "the certificate in " + b.flags.tlsDir, Err: err}
}
