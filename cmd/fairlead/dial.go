package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// role says which of the local dev credentials suits a command.
type role int

const (
	roleTenant role = iota // submits and follows jobs
	roleWorker
	roleAdmin
)

// target is whom to talk to, and as whom.
type target struct {
	addr  string
	token string
	name  string // for people; empty when there is no key
	cell  string // whose workers and status are meant; empty for the key's own, or the only one
}

// identify finds the server and the key: a key that was given, or one of the local dev credentials when the server is on loopback. Without
// any it returns no key, for it is the server's to say that one is needed.
func (a *app) identify(l *config.Loaded, r role) (target, error) {
	c := l.Config.Client
	id := target{addr: baseURL(c.Addr)}
	// --as on the command line is a choice made later than a token in the environment or a file.
	asWins := l.FromFlag("as") && !l.FromFlag("token") && !l.FromFlag("token-file")
	if l.FromFlag("as") && !asWins {
		return id, failure.Usagef("give one of them", "--as names a key of fairlead dev, and --token or --token-file gives one")
	}
	if !asWins && c.Token != "" {
		id.token, id.name = string(c.Token), "the key of "+sourceOf(l, "token")
		return id, nil
	}
	if !asWins && c.TokenFile != "" {
		token, err := readToken(c.TokenFile)
		id.token, id.name = token, "the key in "+c.TokenFile
		return id, err
	}
	return a.devIdentity(l, id, r)
}

// baseURL returns a checked address in its full form.
func baseURL(addr string) string {
	u, problem := config.ParseURL(addr)
	if problem != "" {
		return addr
	}
	return strings.TrimRight(u.String(), "/")
}

func sourceOf(l *config.Loaded, key string) string {
	source := l.Source(key)
	source = strings.TrimPrefix(source, "flag ")
	return strings.TrimPrefix(source, "env ")
}

func (a *app) devIdentity(l *config.Loaded, id target, r role) (target, error) {
	u, problem := config.ParseURL(id.addr)
	if as := l.Config.Client.As; problem != "" || !config.Loopback(u.Hostname()) {
		if as != "" {
			return id, failure.Usagef("give a key with --token or FAIRLEAD_TOKEN", "--as %s names a key of a local fairlead dev, and %s is not local", as, id.addr)
		}
		return id, nil
	}
	dir := l.Config.Dev.Dir
	creds, err := config.ReadCredentials(dir)
	if errors.Is(err, config.ErrNoCredentials) {
		if as := l.Config.Client.As; as != "" {
			return id, failure.Usagef("run this where fairlead dev was started, or give --dev-dir", "--as %s: %s has no keys of a fairlead dev", as, dir)
		}
		return id, nil
	}
	if err != nil {
		return id, &failure.Problem{Code: failure.Usage, What: "the keys of the local fairlead dev cannot be used", Why: err.Error(), Err: err}
	}
	key, err := choose(creds.Keys, l.Config.Client.As, r)
	if err != nil {
		return id, err
	}
	if l.Source("addr") == "" {
		id.addr = baseURL(creds.Addr)
	}
	id.token, id.name = key.Secret, key.Name+" of "+dir
	a.sayf("Using the key %s at %s.", id.name, id.addr)
	return id, nil
}

// choose returns the key named as, or the one that suits r.
func choose(keys []config.CredentialKey, as string, r role) (config.CredentialKey, error) {
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
		if as == k.Name {
			return k, nil
		}
	}
	if as != "" {
		remedy := "use " + strings.Join(names, ", ")
		if near, ok := config.Nearest(as, names); ok {
			remedy = "did you mean " + near + "? There are " + strings.Join(names, ", ")
		}
		return config.CredentialKey{}, failure.Usagef(remedy, "fairlead dev made no key named %.40q", as)
	}
	suits := map[role]func(config.CredentialKey) bool{
		roleTenant: func(k config.CredentialKey) bool { return k.Tenant != "" && (k.May("submit") || k.May("read")) },
		roleWorker: func(k config.CredentialKey) bool { return k.Tenant == "" && k.May("work") },
		roleAdmin:  func(k config.CredentialKey) bool { return k.May("admin") },
	}[r]
	for _, k := range keys {
		if suits(k) {
			return k, nil
		}
	}
	return config.CredentialKey{}, failure.Usagef("name one with --as: "+strings.Join(names, ", "), "none of the keys of fairlead dev suits this command")
}

// tokenBytesMax bounds a key's file: a key has some 50 bytes.
const tokenBytesMax = 4096

func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", &failure.Problem{Code: failure.Usage, What: "the key cannot be read", Why: err.Error(), Remedy: "check --token-file", Err: err}
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(token) > tokenBytesMax || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", failure.Usagef("write the key alone into it, as fairlead key create printed it", "%s does not hold a key", path)
	}
	return token, nil
}

// session is an authenticated connection to one server.
type session struct {
	jobs          fairleadv1connect.JobServiceClient
	organizations fairleadv1connect.OrganizationServiceClient
	tenants       fairleadv1connect.TenantServiceClient
	keys          fairleadv1connect.KeyServiceClient
	status        fairleadv1connect.StatusServiceClient
	cluster       fairleadv1connect.ClusterServiceClient
	cells         fairleadv1connect.CellServiceClient
	placement     fairleadv1connect.PlacementServiceClient
	audit         fairleadv1connect.AuditServiceClient
	migrations    fairleadv1connect.MigrationServiceClient

	id      target
	timeout time.Duration
}

// The bounds of trying again. A cell that elects a leader is back within seconds.
const (
	retryDelayMin = 50 * time.Millisecond
	retryDelayMax = time.Second
	retryFor      = 10 * time.Second
)

// dial returns a session for cmd. Nothing is sent yet.
func (a *app) dial(l *config.Loaded, r role) (*session, error) { return a.dialCell(l, r, "") }

// dialCell is dial for calls about one cell.
func (a *app) dialCell(l *config.Loaded, r role, cellName string) (*session, error) {
	id, err := a.identify(l, r)
	if err != nil {
		return nil, err
	}
	id.cell = cellName
	a.tellAddress(l, id)
	if err := checkPlain(l, id); err != nil {
		return nil, err
	}
	conn, err := client.Dial(clientConfig(l, id))
	if err != nil {
		return nil, &failure.Call{Doing: "use the address " + id.addr, Addr: id.addr, Identity: id.name, Err: err}
	}
	opts := append(conn.Options, connect.WithInterceptors(userAgent("fairlead/"+buildVersion().Version)))
	return &session{
		jobs:          fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, opts...),
		organizations: fairleadv1connect.NewOrganizationServiceClient(conn.HTTP, conn.URL, opts...),
		tenants:       fairleadv1connect.NewTenantServiceClient(conn.HTTP, conn.URL, opts...),
		keys:          fairleadv1connect.NewKeyServiceClient(conn.HTTP, conn.URL, opts...),
		status:        fairleadv1connect.NewStatusServiceClient(conn.HTTP, conn.URL, opts...),
		cluster:       fairleadv1connect.NewClusterServiceClient(conn.HTTP, conn.URL, opts...),
		cells:         fairleadv1connect.NewCellServiceClient(conn.HTTP, conn.URL, opts...),
		placement:     fairleadv1connect.NewPlacementServiceClient(conn.HTTP, conn.URL, opts...),
		audit:         fairleadv1connect.NewAuditServiceClient(conn.HTTP, conn.URL, opts...),
		migrations:    fairleadv1connect.NewMigrationServiceClient(conn.HTTP, conn.URL, opts...),
		id:            id,
		timeout:       l.Config.Client.RequestTimeout,
	}, nil
}

func clientConfig(l *config.Loaded, id target) client.Config {
	return client.Config{
		Addr: id.addr, Token: client.Token(id.token), AllowPlain: l.Config.Client.AllowPlain, CAFile: l.Config.Client.CAFile, Cell: id.cell,
	}
}

// checkPlain refuses to send a key where others can read it, unless that is allowed.
func checkPlain(l *config.Loaded, id target) error {
	u, problem := config.ParseURL(id.addr)
	if problem != "" || u.Scheme != "http" || config.Loopback(u.Hostname()) || id.token == "" || l.Config.Client.AllowPlain {
		return nil
	}
	p := failure.Usagef("use https, or --allow-plain if the network is trusted", "the key is not sent to %s", id.addr)
	p.Why = "it is another machine, and over plain http the key can be read on the way"
	return p
}

// userAgent names this binary in the server's log.
type userAgent string

// WrapUnary implements [connect.Interceptor].
func (u userAgent) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("User-Agent", string(u))
		return next(ctx, req)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (u userAgent) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("User-Agent", string(u))
		return conn
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (u userAgent) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// tellAddress says where the key goes when that is what a file in this directory says: whoever unpacked somebody's folder may not expect it.
func (a *app) tellAddress(l *config.Loaded, id target) {
	if l.FileFound && strings.HasPrefix(l.Source("addr"), l.File+":") {
		a.sayf("Using the address %s of %s in this directory.", id.addr, l.File)
	}
}

// call makes one call of at most the session's time-out, and says in an error what was being done. It tries again, for some seconds, only
// what the server says it has not done.
func call[Req, Resp any](ctx context.Context, s *session, doing string, method func(context.Context, *Req) (*Resp, error), req *Req) (*Resp, error) {
	return callFor(ctx, s, s.timeout, doing, method, req)
}

// callFor is call with a time-out of its own.
func callFor[Req, Resp any](
	ctx context.Context, s *session, timeout time.Duration, doing string, method func(context.Context, *Req) (*Resp, error), req *Req,
) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	backoff := client.Backoff{Min: retryDelayMin, Max: retryDelayMax}
	started := time.Now()
	for n := 1; ; n++ {
		resp, err := method(ctx, req)
		if err == nil {
			return resp, nil
		}
		r := rejection.From(err)
		if r.GetReason() != rejection.ReasonNotApplied || time.Since(started) > retryFor {
			return nil, s.failed(doing, err)
		}
		if cause := client.Pause(ctx, backoff.Next(n, r.GetRetryAfter().AsDuration())); cause != nil {
			if errors.Is(cause, failure.ErrInterrupted) {
				err = cause
			}
			return nil, s.failed(doing, err)
		}
	}
}

// failed returns the error of a call, for people.
func (s *session) failed(doing string, err error) *failure.Call {
	return &failure.Call{Doing: doing, Addr: s.id.addr, Identity: s.id.name, Err: err}
}

// connect reads the configuration and dials: what nearly every command begins with.
func (a *app) connect(cmd *cobra.Command, r role) (*session, *config.Loaded, error) {
	l, err := a.load(cmd)
	if err != nil {
		return nil, nil, err
	}
	s, err := a.dial(l, r)
	return s, l, err
}

// connectCell is connect for calls about one cell; the only one when cellName is empty.
func (a *app) connectCell(cmd *cobra.Command, r role, cellName string) (*session, *config.Loaded, error) {
	if err := checkCell(cmd, cellName); err != nil {
		return nil, nil, err
	}
	l, err := a.load(cmd)
	if err != nil {
		return nil, nil, err
	}
	s, err := a.dialCell(l, r, cellName)
	return s, l, err
}
