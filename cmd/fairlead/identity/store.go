package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Store is an agent's identity as its directory holds it. It is safe for concurrent use.
type Store struct {
	dir     string
	now     func() time.Time
	current atomic.Pointer[material]
}

// material is what was read together. It is not changed.
type material struct {
	id        Identity
	cert      tls.Certificate // with the authority's after it, so that whoever joins finds what it pins
	leaf      *x509.Certificate
	roots     *x509.CertPool
	authority []byte // ca.crt as it stands
	gossip    [][]byte
	ca        *CA // nil without ca.key
}

// Load reads an agent's directory. It returns a *[FileError] naming the file that is missing, that others may read, that does not fit the others,
// or whose certificate is not of today.
func Load(dir string) (*Store, error) { return load(dir, time.Now) }

func load(dir string, now func() time.Time) (*Store, error) {
	m, err := readMaterial(dir, now())
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, now: now}
	s.current.Store(m)
	return s, nil
}

// Reload reads the directory again: from then on every handshake uses what is there, and connections that are open stay. It returns an error, and
// changes nothing, when the directory cannot be used or is another agent's.
func (s *Store) Reload() error {
	m, err := readMaterial(s.dir, s.now())
	if err != nil {
		return err
	}
	if was := s.Identity(); m.id != was {
		return &FileError{Path: filepath.Join(s.dir, CertFile), Problem: fmt.Sprintf("is of %s, and this agent is %s", m.id, was), Remedy: "restart to become another agent"}
	}
	s.current.Store(m)
	return nil
}

// Identity returns who the agent is. It never changes.
func (s *Store) Identity() Identity { return s.current.Load().id }

// Expires returns when the agent's certificate ends.
func (s *Store) Expires() time.Time { return s.current.Load().leaf.NotAfter }

// GossipKeys returns the keys of gossip, the first of which encrypts; none when there is no such file.
func (s *Store) GossipKeys() [][]byte { return s.current.Load().gossip }

// CA returns the authority when the agent may sign, which takes its key, and nil otherwise.
func (s *Store) CA() *CA { return s.current.Load().ca }

// Authority returns the authority's certificate, or the bundle, in PEM.
func (s *Store) Authority() []byte { return s.current.Load().authority }

func readMaterial(dir string, now time.Time) (*material, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	m := &material{roots: x509.NewCertPool()}
	var err error
	if m.authority, err = readFile(at(CAFile)); err != nil {
		return nil, err
	}
	authorities, err := parseAuthorities(m.authority)
	if err != nil {
		return nil, &FileError{Path: at(CAFile), Problem: "cannot be used: " + err.Error(), Err: err}
	}
	for _, c := range authorities {
		m.roots.AddCert(c)
	}
	if err := m.readAgent(at(CertFile), at(KeyFile), authorities, now); err != nil {
		return nil, err
	}
	if err := m.readGossip(at(GossipFile)); err != nil {
		return nil, err
	}
	return m, m.readCA(at(CAKeyFile))
}

// parseAuthorities reads a bundle of authorities of one cluster.
func parseAuthorities(text []byte) ([]*x509.Certificate, error) {
	certs, err := parseCertificates(text)
	if err != nil {
		return nil, err
	}
	first := ""
	for i, c := range certs {
		id, err := clusterOf(c)
		if err != nil {
			return nil, err
		}
		if i > 0 && id != first {
			return nil, fmt.Errorf("it has authorities of two clusters, %s and %s", first, id)
		}
		first = id
	}
	return certs, nil
}

func (m *material) readAgent(certPath, keyPath string, authorities []*x509.Certificate, now time.Time) error {
	bad := func(path, problem string, err error) error {
		return &FileError{Path: path, Problem: problem, Remedy: "make another with fairlead tls cert", Err: err}
	}
	text, err := readFile(certPath)
	if err != nil {
		return err
	}
	certs, err := parseCertificates(text)
	if err != nil {
		return bad(certPath, "cannot be used: "+err.Error(), err)
	}
	m.leaf = certs[0]
	if m.id, err = Of(m.leaf); err != nil {
		return bad(certPath, "is no agent's: "+err.Error(), err)
	}
	keyText, err := ReadSecret(keyPath)
	if err != nil {
		return err
	}
	key, err := parseKey(keyText)
	if err != nil {
		return bad(keyPath, "cannot be used: "+err.Error(), err)
	}
	if !key.PublicKey.Equal(m.leaf.PublicKey) {
		return bad(keyPath, "is not the key of "+certPath, nil)
	}
	chains, err := m.leaf.Verify(x509.VerifyOptions{Roots: m.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return bad(certPath, problemOf(err, m.leaf, now), err)
	}
	if cluster, _ := clusterOf(authorities[0]); cluster != m.id.ClusterID {
		return bad(certPath, fmt.Sprintf("is of the cluster %s, and the authority of %s", m.id.ClusterID, cluster), nil)
	}
	chain := chains[0]
	m.cert = tls.Certificate{Certificate: [][]byte{m.leaf.Raw, chain[len(chain)-1].Raw}, PrivateKey: key, Leaf: m.leaf}
	return nil
}

// problemOf says what is wrong with a certificate of one's own.
func problemOf(err error, leaf *x509.Certificate, now time.Time) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		if now.Before(leaf.NotBefore) {
			return "is not good before " + leaf.NotBefore.UTC().Format(time.RFC3339)
		}
		return "expired at " + leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	return "is not signed by the authority in " + CAFile + ": " + err.Error()
}

func (m *material) readGossip(path string) error {
	text, err := ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if m.gossip, err = ParseGossipKeys(text); err != nil {
		return &FileError{Path: path, Problem: err.Error(), Remedy: "write one key a line", Err: err}
	}
	return nil
}

func (m *material) readCA(path string) error {
	key, err := ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if m.ca, err = ParseCA(m.authority, key); err != nil {
		return &FileError{Path: path, Problem: "cannot be used: " + err.Error(), Err: err}
	}
	return nil
}

// LoadCA reads the authority of a directory, with its key. It returns an error that wraps [fs.ErrNotExist] when there is none.
func LoadCA(dir string) (*CA, error) {
	cert, err := readFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, err
	}
	key, err := ReadSecret(filepath.Join(dir, CAKeyFile))
	if err != nil {
		return nil, err
	}
	ca, err := ParseCA(cert, key)
	if err != nil {
		return nil, &FileError{Path: filepath.Join(dir, CAKeyFile), Problem: "cannot be used: " + err.Error(), Err: err}
	}
	return ca, nil
}
