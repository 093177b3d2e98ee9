package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// JoinConfig says how an agent without a certificate gets one.
type JoinConfig struct {
	// Dir is where the agent's files are to be. Required.
	Dir string
	// Control are the hosts and ports of control agents, tried in this order until one answers. Required.
	Control []string
	// Token is the join token. Required.
	Token Token
	// Name, Role and Cell are what the agent is going to be; the token says so too, and the answer is checked against them. Required.
	Name string
	Role Role
	Cell cell.ID
	// Hosts are the names and addresses that users reach the agent by.
	Hosts []string
	// Logger hears of attempts that failed. Default slog.Default.
	Logger *slog.Logger
}

// The bounds of joining. A control agent that is about to lead answers within seconds.
const (
	joinCallTimeout  = 15 * time.Second
	joinDelayMin     = 200 * time.Millisecond
	joinDelayMax     = 5 * time.Second
	joinAnswerKeys   = gossipKeysMax
	joinAnswerPEMMax = 1 << 18
)

// ErrJoinAnswer is returned when control's answer to a join is not what it has to be: nothing of it was kept.
var ErrJoinAnswer = errors.New("control's answer to the join is not for this agent")

// Join gets the agent's certificate from control and puts it into the directory, the certificate last: a directory with one is complete. It tries
// again, until ctx ends, while no control agent can be reached or leads. It returns an error of Connect's when control refuses,
// which it then has done for good: a token that was used or has expired gives nothing more.
func Join(ctx context.Context, cfg JoinConfig) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	key, csr, err := joinKey(cfg.Dir)
	if err != nil {
		return nil, err
	}
	req := &fairleadv1.JoinRequest{Token: cfg.Token.Reveal(), Name: cfg.Name, Csr: csr, Hosts: cfg.Hosts}
	resp, err := joinAny(ctx, cfg, req)
	if err != nil {
		return nil, err
	}
	if err := checkJoined(cfg, key, resp); err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(cfg.Dir, name) }
	if err := WritePublic(at(CAFile), resp.GetAuthority()); err != nil {
		return nil, err
	}
	if keys := resp.GetGossipKeys(); len(keys) > 0 {
		if err := WriteSecret(at(GossipFile), FormatGossipKeys(keys)); err != nil {
			return nil, err
		}
	}
	if err := WritePublic(at(CertFile), resp.GetCertificate()); err != nil {
		return nil, err
	}
	return Load(cfg.Dir)
}

// joinKey returns the agent's key, which an attempt before this one may have made, and a request that is signed with it.
func joinKey(dir string) (*ecdsa.PrivateKey, []byte, error) {
	path := filepath.Join(dir, KeyFile)
	text, err := ReadSecret(path)
	var key *ecdsa.PrivateKey
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, nil, fmt.Errorf("making a key: %w", err)
		}
		if text, err = keyPEM(key); err == nil {
			err = WriteSecret(path, text)
		}
	case err == nil:
		if key, err = parseKey(text); err != nil {
			err = &FileError{Path: path, Problem: "cannot be used: " + err.Error(), Remedy: "delete it, and join anew", Err: err}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate request: %w", err)
	}
	return key, csr, nil
}

// joinAny asks the control agents in turn. What was lost on the way may have used the token up: the next answer says so.
func joinAny(ctx context.Context, cfg JoinConfig, req *fairleadv1.JoinRequest) (*fairleadv1.JoinResponse, error) {
	transport := &http.Transport{TLSClientConfig: pinned(cfg.Token.Fingerprint(), time.Now), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	backoff := client.Backoff{Min: joinDelayMin, Max: joinDelayMax}
	for n := 1; ; n++ {
		var last error
		for _, address := range cfg.Control {
			registry := fairleadv1connect.NewRegistryServiceClient(&http.Client{Transport: transport}, "https://"+address, connect.WithReadMaxBytes(joinAnswerPEMMax))
			call, cancel := context.WithTimeout(ctx, joinCallTimeout)
			resp, err := registry.Join(call, req)
			cancel()
			if err == nil {
				return resp, nil
			}
			if !joinAgain(err) {
				return nil, err
			}
			last = err
			cfg.Logger.Info("control cannot be joined yet", "address", address, "error", err.Error())
		}
		if cause := client.Pause(ctx, backoff.Next(n, 0)); cause != nil {
			return nil, errors.Join(cause, last)
		}
	}
}

// joinAgain reports whether another attempt can end differently: not when somebody else answers, and not when control has refused.
func joinAgain(err error) bool {
	if _, other := errors.AsType[*tls.CertificateVerificationError](err); other {
		return false
	}
	if _, other := errors.AsType[*MismatchError](err); other {
		return false
	}
	switch connect.CodeOf(err) { //nolint:exhaustive // every other code is a refusal
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeUnknown:
		return true
	default:
		return rejection.From(err).GetReason() == rejection.ReasonNotApplied
	}
}

// pinned returns the configuration of a connection to a control agent whose authority has this fingerprint. The agent shows the authority's
// certificate after its own, since whoever joins has not got it yet.
func pinned(fingerprint [sha256.Size]byte, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: now,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by the authority that the token pins
		VerifyConnection: func(cs tls.ConnectionState) error {
			for _, c := range cs.PeerCertificates {
				if sha256.Sum256(c.Raw) == fingerprint {
					return verifyPinned(cs, c, now())
				}
			}
			return &MismatchError{Field: "authority", Got: "another fingerprint", Want: "the one that the join token pins"}
		},
	}
}

func verifyPinned(cs tls.ConnectionState, authority *x509.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	if err := verifyChain(cs, x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return err
	}
	cluster, err := clusterOf(authority)
	if err != nil {
		return err
	}
	own := &material{id: Identity{ClusterID: cluster}}
	return own.checkPeer(cs, []Expect{{Role: RoleControl}, {Role: RoleGateway}})
}

// checkJoined returns an error that wraps [ErrJoinAnswer] unless the answer is a certificate for this key and this agent, signed by the authority that
// the token pins.
func checkJoined(cfg JoinConfig, key *ecdsa.PrivateKey, resp *fairleadv1.JoinResponse) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrJoinAnswer}, args...)...)
	}
	authorities, err := parseAuthorities(resp.GetAuthority())
	if err != nil {
		return bad("its authority: %w", err)
	}
	roots, isPinned := x509.NewCertPool(), false
	for _, c := range authorities {
		roots.AddCert(c)
		isPinned = isPinned || sha256.Sum256(c.Raw) == cfg.Token.Fingerprint()
	}
	if !isPinned {
		return bad("its authority is not the one that the token pins")
	}
	certs, err := parseCertificates(resp.GetCertificate())
	if err != nil {
		return bad("its certificate: %w", err)
	}
	if _, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return bad("its certificate: %w", err)
	}
	id, err := Of(certs[0])
	if err != nil {
		return bad("its certificate: %w", err)
	}
	if err := (Expect{Role: cfg.Role, Name: cfg.Name}).check(id); err != nil || id.Cell != cfg.Cell || id.ClusterID != resp.GetClusterId() {
		return bad("its certificate is of %s", id)
	}
	if !key.PublicKey.Equal(certs[0].PublicKey) {
		return bad("its certificate is of another key")
	}
	if len(resp.GetGossipKeys()) > joinAnswerKeys {
		return bad("it has %d keys of gossip, of at most %d", len(resp.GetGossipKeys()), joinAnswerKeys)
	}
	if keys := resp.GetGossipKeys(); len(keys) > 0 {
		if _, err := ParseGossipKeys(FormatGossipKeys(keys)); err != nil {
			return bad("its keys of gossip: %w", err)
		}
	}
	return nil
}
