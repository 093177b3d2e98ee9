package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
)

// How long certificates live.
const (
	CALifetime      = 10 * 365 * 24 * time.Hour
	LifetimeDefault = 365 * 24 * time.Hour
	LifetimeMin     = time.Minute
	// clockSkew is how far the clock of whoever checks a fresh certificate may be behind.
	clockSkew = 5 * time.Minute
)

// HostsMax bounds the names and addresses of a certificate: an agent has a few, and each costs bytes in every handshake.
const HostsMax = 32

// ErrAuthority is returned when a certificate and a key that are to be an authority's are not, or are not of each other.
var ErrAuthority = errors.New("not a certificate authority of a cluster")

// CA is a cluster's certificate authority with its key: whoever has it decides who is an agent.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	id   string
}

// CreateCA makes the authority of a new cluster.
func CreateCA(clusterID string, now time.Time) (*CA, error) {
	if err := CheckClusterID("cluster", clusterID); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "fairlead " + clusterID},
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(CALifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		URIs: []*url.URL{{Scheme: scheme, Host: clusterID}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the authority's certificate: %w", err)
	}
	return &CA{cert: cert, key: key, id: clusterID}, nil
}

// ParseCA returns the authority of a certificate and its key, both PEM. It returns an error that wraps [ErrAuthority] when they are not one.
func ParseCA(certificate, key []byte) (*CA, error) {
	certs, err := parseCertificates(certificate)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	private, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	// Of a bundle, while one authority follows another, the one that the key is of signs.
	for _, cert := range certs {
		if !private.PublicKey.Equal(cert.PublicKey) {
			continue
		}
		id, err := clusterOf(cert)
		if err != nil {
			return nil, err
		}
		return &CA{cert: cert, key: private, id: id}, nil
	}
	return nil, fmt.Errorf("%w: the key is of none of the certificates", ErrAuthority)
}

// clusterOf returns the cluster that an authority's certificate is of.
func clusterOf(ca *x509.Certificate) (string, error) {
	if !ca.IsCA || len(ca.URIs) != 1 || ca.URIs[0].Scheme != scheme || ca.URIs[0].Path != "" {
		return "", fmt.Errorf("%w: it does not name a cluster as fairlead://CLUSTER", ErrAuthority)
	}
	id := ca.URIs[0].Host
	if err := CheckClusterID("cluster", id); err != nil {
		return "", fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	return id, nil
}

// ClusterID returns the cluster that it is the authority of.
func (ca *CA) ClusterID() string { return ca.id }

// Fingerprint returns the SHA-256 of the certificate, which join tokens pin.
func (ca *CA) Fingerprint() [sha256.Size]byte { return sha256.Sum256(ca.cert.Raw) }

// Certificate returns the certificate in PEM.
func (ca *CA) Certificate() []byte { return pemOf("CERTIFICATE", ca.cert.Raw) }

// Key returns the private key in PEM.
func (ca *CA) Key() ([]byte, error) { return keyPEM(ca.key) }

// Expires returns when the certificate ends, and with it all that it signed.
func (ca *CA) Expires() time.Time { return ca.cert.NotAfter }

// Request is what is asked of an authority.
type Request struct {
	Identity Identity
	// Hosts are the names and addresses that users reach the agent by. Other agents do not look at them. At most [HostsMax].
	Hosts []string
	// Lifetime is how long the certificate is good; [LifetimeDefault] when 0, and never longer than the authority's.
	Lifetime time.Duration
}

// Issued is a certificate and its private key, both PEM.
type Issued struct{ Certificate, Key []byte }

// Issue makes a key and a certificate for it. It returns a *[cell.FieldError] naming what is wrong with the request.
func (ca *CA) Issue(r Request, now time.Time) (Issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, fmt.Errorf("making a key: %w", err)
	}
	cert, err := ca.sign(r, key.Public(), now)
	if err != nil {
		return Issued{}, err
	}
	text, err := keyPEM(key)
	return Issued{Certificate: cert, Key: text}, err
}

// Sign makes a certificate for whoever has the key that csr, in DER, is signed with. Nothing of what csr says of itself is taken over. It returns a
// *[cell.FieldError] when csr or the request is not as it must be.
func (ca *CA) Sign(csr []byte, r Request, now time.Time) ([]byte, error) {
	asked, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = asked.CheckSignature()
	}
	if err != nil {
		return nil, &cell.FieldError{Field: "csr", Problem: "is not a signed certificate request in DER", Remedy: "let fairlead agent make it"}
	}
	key, ok := asked.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, &cell.FieldError{Field: "csr", Problem: "is not of an ECDSA key on P-256", Remedy: "let fairlead agent make it"}
	}
	return ca.sign(r, key, now)
}

func (ca *CA) sign(r Request, public any, now time.Time) ([]byte, error) {
	if r.Identity.ClusterID == "" {
		r.Identity.ClusterID = ca.id
	}
	if err := errors.Join(r.check(), r.Identity.Check()); err != nil {
		return nil, err
	}
	if r.Identity.ClusterID != ca.id {
		return nil, &cell.FieldError{Field: "cluster", Problem: fmt.Sprintf("is %q, and the authority is of %s", r.Identity.ClusterID, ca.id), Remedy: "use its own authority"}
	}
	until := now.Add(r.Lifetime)
	if r.Lifetime == 0 {
		until = now.Add(LifetimeDefault)
	}
	if until.After(ca.cert.NotAfter) {
		until = ca.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: cutTo(r.Identity.Name, commonNameBytesMax)},
		NotBefore:    now.Add(-clockSkew), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{r.Identity.URI()},
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, public, ca.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return pemOf("CERTIFICATE", der), nil
}

// commonNameBytesMax is X.509's own bound. The common name is for people: nothing looks at it.
const commonNameBytesMax = 64

func cutTo(s string, n int) string { return s[:min(len(s), n)] }

// check returns every fault of the hosts and the lifetime.
func (r Request) check() error {
	var errs []error
	if r.Lifetime != 0 && (r.Lifetime < LifetimeMin || r.Lifetime > CALifetime) {
		errs = append(errs, &cell.FieldError{
			Field: "lifetime", Problem: fmt.Sprintf("is %v, outside %v to %v", r.Lifetime, LifetimeMin, CALifetime), Remedy: "give a duration such as 365d",
		})
	}
	if len(r.Hosts) > HostsMax {
		errs = append(errs, &cell.FieldError{Field: "hosts", Problem: fmt.Sprintf("has %d, of at most %d", len(r.Hosts), HostsMax), Remedy: "name what users connect to"})
	}
	for _, h := range r.Hosts {
		errs = append(errs, CheckHost("hosts", h))
	}
	return errors.Join(errs...)
}

// hostBytesMax is the longest name that DNS has.
const hostBytesMax = 253

// CheckHost returns a *[cell.FieldError] naming field unless h is an IP address or a name as DNS has them, a wildcard before it included.
func CheckHost(field, h string) error {
	bad := &cell.FieldError{Field: field, Problem: fmt.Sprintf("%.60q is neither an address nor a host's name", h), Remedy: "give it as 10.0.0.7 or agent-1.example.com"}
	if net.ParseIP(h) != nil {
		return nil
	}
	if len(h) > hostBytesMax || !utf8.ValidString(h) {
		return bad
	}
	for i, label := range bytes.Split([]byte(h), []byte(".")) {
		if i == 0 && string(label) == "*" && len(h) > 1 {
			continue
		}
		if len(label) == 0 || len(label) > clusterIDBytesMax || label[0] == '-' || label[len(label)-1] == '-' {
			return bad
		}
		for _, c := range label {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return bad
			}
		}
	}
	return nil
}

// Certifier signs for agents that join: what control's registry asks for. It is safe for concurrent use.
type Certifier struct {
	ca       *CA
	now      func() time.Time
	lifetime time.Duration
}

// Certifier returns what signs with the authority, by the clock now, for certificates that live so long; [LifetimeDefault] when 0.
func (ca *CA) Certifier(now func() time.Time, lifetime time.Duration) *Certifier {
	return &Certifier{ca: ca, now: now, lifetime: lifetime}
}

// Sign returns the certificate for the key of a request in DER, and the authority's own, both PEM. It returns a *[cell.FieldError] naming what is
// wrong with what was asked.
func (c *Certifier) Sign(csr []byte, role, name, cellName string, hosts []string) (cert, authority []byte, err error) {
	r := Request{Identity: Identity{Role: Role(role), Name: name, Cell: cell.ID(cellName)}, Hosts: hosts, Lifetime: c.lifetime}
	cert, err = c.ca.Sign(csr, r, c.now())
	return cert, c.ca.Certificate(), err
}

// Fingerprint returns the SHA-256 of the authority's certificate.
func (c *Certifier) Fingerprint() [sha256.Size]byte { return c.ca.Fingerprint() }

// serial returns 127 random bits: what the standard asks for is 64 at least, positive, and no more than 20 bytes.
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // ends the process rather than fail
	b[0] &= 0x7f
	b[len(b)-1] |= 1 // never zero
	return new(big.Int).SetBytes(b[:])
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key: %w", err)
	}
	return pemOf("PRIVATE KEY", der), nil
}

// parseKey reads an ECDSA key on P-256, which is all that this package makes.
func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("it has no private key in PEM (PKCS 8)")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, errors.New("its key is not ECDSA on P-256")
	}
	return ec, nil
}

// parseCertificates reads one certificate or more.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a %.40q among its certificates", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("it has no certificate in PEM")
	}
	return certs, nil
}
