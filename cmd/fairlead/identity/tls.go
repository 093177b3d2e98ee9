package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
)

// errNoCertificate ends a handshake of a client that shows none where one is needed, and of a server that shows none, which there is not in TLS 1.3.
var errNoCertificate = errors.New("the other side has shown no certificate")

// ServerTLS returns the configuration of a port for agents alone: a client needs a certificate of this cluster that any of allowed describes; any
// of this cluster's when there are none. It speaks HTTP.
func (s *Store) ServerTLS(allowed ...Expect) *tls.Config {
	return s.server(tls.RequireAndVerifyClientCert, httpProtocols(), allowed)
}

// DoorTLS returns the configuration of a port for agents and for everybody else: a client may show a certificate, and then it has to be one of
// this cluster that any of allowed describes. Whether there was one is for [PeerOf] to say. It speaks HTTP.
func (s *Store) DoorTLS(allowed ...Expect) *tls.Config {
	return s.server(tls.VerifyClientCertIfGiven, httpProtocols(), allowed)
}

func httpProtocols() []string { return []string{"h2", "http/1.1"} }

// server asks the store at each handshake, so that a reload reaches the next one. Sessions are not resumed: a certificate that is not good any more
// would stay so for as long as a ticket lives.
func (s *Store) server(auth tls.ClientAuthType, protocols []string, allowed []Expect) *tls.Config {
	allowed = slices.Clone(allowed)
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := s.current.Load()
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true, Time: s.now,
			Certificates: []tls.Certificate{m.cert}, ClientCAs: m.roots, ClientAuth: auth,
			VerifyConnection: func(cs tls.ConnectionState) error {
				if len(cs.PeerCertificates) == 0 && auth == tls.VerifyClientCertIfGiven {
					return nil
				}
				return m.checkPeer(cs, allowed)
			},
		}, nil
	}
	return base
}

// ClientTLS returns the configuration of a connection to another agent of this cluster, which has to be as expected. The name of the host does
// not count: an agent is known by its certificate, wherever it runs.
func (s *Store) ClientTLS(expect Expect) *tls.Config { return s.client(expect, nil) }

func (s *Store) client(expect Expect, protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols, Time: s.now,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by the agent's identity and not by its host
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.current.Load().cert, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			m := s.current.Load()
			if err := verifyChain(cs, x509.VerifyOptions{Roots: m.roots, CurrentTime: s.now()}); err != nil {
				return err
			}
			return m.checkPeer(cs, []Expect{expect})
		},
	}
}

// verifyChain checks a server's certificate as crypto/tls does, but for the name of its host.
func verifyChain(cs tls.ConnectionState, options x509.VerifyOptions) error {
	if len(cs.PeerCertificates) == 0 {
		return errNoCertificate
	}
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	options.Intermediates = x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := cs.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: cs.PeerCertificates, Err: err}
	}
	return nil
}

// checkPeer returns nil when the other side's certificate, whose chain has been verified, is of this cluster and as any of allowed says.
func (m *material) checkPeer(cs tls.ConnectionState, allowed []Expect) error {
	if len(cs.PeerCertificates) == 0 {
		return errNoCertificate
	}
	id, err := Of(cs.PeerCertificates[0])
	if err != nil {
		return err
	}
	if id.ClusterID != m.id.ClusterID {
		return &MismatchError{Field: "cluster", Got: id.ClusterID, Want: m.id.ClusterID}
	}
	if len(allowed) == 0 {
		return nil
	}
	var first error
	for _, e := range allowed {
		err := e.check(id)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// PeerOf returns the agent that sent the request, and false when it came without an agent's certificate. It holds for requests of a server with
// [Store.ServerTLS] or [Store.DoorTLS], which have checked it.
func PeerOf(r *http.Request) (Identity, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return Identity{}, false
	}
	id, err := Of(r.TLS.PeerCertificates[0])
	return id, err == nil
}
