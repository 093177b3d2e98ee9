package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// start is when the tests' certificates are made; every store's clock stands there unless a test moves it.
var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func newCA(t *testing.T, cluster string) *CA {
	t.Helper()
	ca, err := CreateCA(cluster, start)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// agentDir makes the directory of an agent.
func agentDir(t *testing.T, ca *CA, r Request) string {
	t.Helper()
	dir := t.TempDir()
	issued, err := ca.Issue(r, start)
	if err != nil {
		t.Fatal(err)
	}
	putAgent(t, dir, ca, issued)
	return dir
}

func putAgent(t *testing.T, dir string, ca *CA, issued Issued) {
	t.Helper()
	err := errors.Join(
		WritePublic(filepath.Join(dir, CAFile), ca.Certificate()),
		WritePublic(filepath.Join(dir, CertFile), issued.Certificate),
		WriteSecret(filepath.Join(dir, KeyFile), issued.Key),
	)
	if err != nil {
		t.Fatal(err)
	}
}

func storeAt(t *testing.T, dir string, now time.Time) *Store {
	t.Helper()
	s, err := load(dir, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// agent makes a store of an agent of ca's cluster.
func agent(t *testing.T, ca *CA, role Role, name, cellName string) *Store {
	t.Helper()
	return storeAt(t, agentDir(t, ca, Request{Identity: Identity{Role: role, Name: name, Cell: cell.ID(cellName)}, Hosts: []string{"127.0.0.1"}}), start)
}

// forge makes a store whose certificate says what no authority of this package would sign.
func forge(t *testing.T, s *Store, ca *CA, change func(*x509.Certificate)) *Store {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	was := s.current.Load()
	template := *was.leaf
	template.SerialNumber = serial()
	change(&template)
	der, err := x509.CreateCertificate(rand.Reader, &template, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	m := *was
	m.cert = tls.Certificate{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: key}
	out := &Store{dir: s.dir, now: s.now}
	out.current.Store(&m)
	return out
}

func uri(text string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		c.URIs = []*url.URL{u}
	}
}

const patience = 60 * time.Second

// meet lets two ends shake hands over loopback and say one byte each way: in TLS 1.3 a client learns only then that it was refused.
func meet(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback, and closed below
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		done <- exchange(tls.Server(conn, server))
	}()
	conn, err := net.Dial("tcp", listener.Addr().String()) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	clientErr = exchange(tls.Client(conn, client))
	conn.Close()
	return <-done, clientErr
}

func exchange(conn *tls.Conn) error {
	if err := conn.Handshake(); err != nil { //nolint:noctx // the deadline is set
		return err
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

// TestServerRefuses: a port for gateways and control agents takes nobody else, whatever is wrong with the certificate.
func TestServerRefuses(t *testing.T) {
	ca, other := newCA(t, "fl-one"), newCA(t, "fl-two")
	same := newCA(t, "fl-one") // another authority that says it is of the same cluster
	server := agent(t, ca, RoleCell, "cell-a-1", "cell-a")
	port := server.ServerTLS(Expect{Role: RoleGateway}, Expect{Role: RoleControl, Name: "control-1"})
	gateway := agent(t, ca, RoleGateway, "gateway-1", "")
	good := gateway.ClientTLS(Expect{})
	insecure := func(change func(*tls.Config)) *tls.Config {
		c := &tls.Config{InsecureSkipVerify: true, Time: server.now} //nolint:gosec // the test's own
		change(c)
		return c
	}
	show := func(s *Store) *tls.Config {
		return insecure(func(c *tls.Config) { c.GetClientCertificate = s.ClientTLS(Expect{}).GetClientCertificate })
	}
	for name, c := range map[string]struct {
		client *tls.Config
		want   string // in the server's error; empty when it is let in
	}{
		"a gateway":         {good, ""},
		"the control agent": {agent(t, ca, RoleControl, "control-1", "").ClientTLS(Expect{}), ""},
		"another name":      {show(agent(t, ca, RoleControl, "control-2", "")), "the role control, not gateway"},
		"another role":      {show(agent(t, ca, RoleCell, "cell-a-2", "cell-a")), "the role cell, not gateway"},
		"another authority": {show(agent(t, same, RoleGateway, "gateway-1", "")), "authority"},
		"another cluster":   {show(agent(t, other, RoleGateway, "gateway-1", "")), "authority"},
		"no certificate":    {insecure(func(*tls.Config) {}), "didn't provide a certificate"},
		"TLS 1.2":           {insecure(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "unsupported versions"},
		"a forged cluster":  {show(forge(t, gateway, ca, uri("fairlead://fl-two/gateway/gateway-1"))), "the cluster fl-two, not fl-one"},
		"no identity":       {show(forge(t, gateway, ca, func(c *x509.Certificate) { c.URIs = nil })), "0 URIs"},
		"another scheme":    {show(forge(t, gateway, ca, uri("spiffe://fl-one/gateway/gateway-1"))), "the identity"},
		"a part too many":   {show(forge(t, gateway, ca, uri("fairlead://fl-one/gateway/gateway-1/cell-a"))), "the identity"},
		"a role of nobody":  {show(forge(t, gateway, ca, uri("fairlead://fl-one/admin/gateway-1"))), "the identity"},
		"a query":           {show(forge(t, gateway, ca, uri("fairlead://fl-one/gateway/gateway-1?a=b"))), "the identity"},
		"expired":           {show(forge(t, gateway, ca, func(c *x509.Certificate) { c.NotAfter = start.Add(-time.Second) })), "expired"},
		"not yet":           {show(forge(t, gateway, ca, func(c *x509.Certificate) { c.NotBefore = start.Add(time.Hour) })), "not yet valid"},
		"a server's only":   {show(forge(t, gateway, ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })), "key usage"},
		"two identities":    {show(forge(t, gateway, ca, func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) })), "2 URIs"},
		"the authority itself": {insecure(func(c *tls.Config) {
			c.Certificates = []tls.Certificate{{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key}}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			serverErr, clientErr := meet(t, port, c.client)
			if name == "the authority itself" { // its key can sign anything: it is refused all the same
				if serverErr == nil {
					t.Error("it is let in")
				}
				return
			}
			if c.want == "" {
				if serverErr != nil || clientErr != nil {
					t.Errorf("it is refused: %v, %v", serverErr, clientErr)
				}
				return
			}
			if serverErr == nil || !strings.Contains(serverErr.Error(), c.want) {
				t.Errorf("the server says %v, not %s", serverErr, c.want)
			}
			if clientErr == nil {
				t.Error("the client was let in")
			}
		})
	}
}

// TestClientRefuses: whoever connects to an agent talks to that agent or to nobody.
func TestClientRefuses(t *testing.T) {
	ca, other, same := newCA(t, "fl-one"), newCA(t, "fl-two"), newCA(t, "fl-one")
	gateway := agent(t, ca, RoleGateway, "gateway-1", "")
	wanted := Expect{Role: RoleCell, Cell: "cell-a", Name: "cell-a-1"}
	server := agent(t, ca, RoleCell, "cell-a-1", "cell-a")
	anybody := func(s *Store) *tls.Config { // takes every client, so that it is the client who refuses
		c := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
		c.Certificates = []tls.Certificate{s.current.Load().cert}
		return c
	}
	for name, c := range map[string]struct {
		server *tls.Config
		want   string
	}{
		"the one meant":     {server.ServerTLS(), ""},
		"another name":      {anybody(agent(t, ca, RoleCell, "cell-a-2", "cell-a")), "the name cell-a-2, not cell-a-1"},
		"another cell":      {anybody(agent(t, ca, RoleCell, "cell-a-1", "cell-b")), "the cell cell-b, not cell-a"},
		"another role":      {anybody(agent(t, ca, RoleControl, "cell-a-1", "")), "the role control, not cell"},
		"another authority": {anybody(agent(t, same, RoleCell, "cell-a-1", "cell-a")), "authority"},
		"another cluster":   {anybody(agent(t, other, RoleCell, "cell-a-1", "cell-a")), "authority"},
		"a forged cluster":  {anybody(forge(t, server, ca, uri("fairlead://fl-two/cell/cell-a-1/cell-a"))), "the cluster fl-two"},
		"expired":           {anybody(forge(t, server, ca, func(c *x509.Certificate) { c.NotAfter = start.Add(-time.Second) })), "expired"},
		"a client's only": {anybody(forge(t, server, ca, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})), "key usage"},
		"TLS 1.2": {func() *tls.Config {
			c := anybody(server)
			c.MaxVersion = tls.VersionTLS12
			return c
		}(), "protocol version"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := meet(t, c.server, gateway.ClientTLS(wanted))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the client says %v, want %q", err, c.want)
			}
		})
	}
}

// TestDoor: a port for everybody takes whoever shows nothing, and no certificate that is not of the cluster.
func TestDoor(t *testing.T) {
	ca, other := newCA(t, "fl-one"), newCA(t, "fl-two")
	door := agent(t, ca, RoleGateway, "gateway-1", "").DoorTLS()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	user := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Time: func() time.Time { return start }} //nolint:gosec // any version
	if s, c := meet(t, door, user); s != nil || c != nil {
		t.Errorf("a user without a certificate is refused: %v, %v", s, c)
	}
	if s, c := meet(t, door, agent(t, ca, RoleCell, "cell-a-1", "cell-a").ClientTLS(Expect{Role: RoleGateway})); s != nil || c != nil {
		t.Errorf("an agent is refused: %v, %v", s, c)
	}
	stranger := user.Clone()
	stranger.Certificates = []tls.Certificate{agent(t, other, RoleCell, "cell-a-1", "cell-a").current.Load().cert}
	// crypto/tls would not show a certificate that none of the server's authorities signed.
	stranger.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger.Certificates[0], nil }
	if s, _ := meet(t, door, stranger); s == nil {
		t.Error("a stranger's certificate passes")
	}
	user.ServerName = "elsewhere.example.com"
	if _, c := meet(t, door, user); c == nil {
		t.Error("the certificate is good for a host that nobody named")
	}
}

// TestReload: the next handshake uses what the directory has, and a directory that cannot be used changes nothing.
func TestReload(t *testing.T) {
	ca := newCA(t, "fl-one")
	id := Identity{Role: RoleCell, Name: "cell-a-1", Cell: "cell-a"}
	dir := agentDir(t, ca, Request{Identity: id})
	s := storeAt(t, dir, start)
	port, gateway := s.ServerTLS(), agent(t, ca, RoleGateway, "gateway-1", "")
	serials := func() string {
		var got string
		c := gateway.ClientTLS(Expect{Role: RoleCell})
		check := c.VerifyConnection
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			got = cs.PeerCertificates[0].SerialNumber.String()
			return check(cs)
		}
		if s, c := meet(t, port, c); s != nil || c != nil {
			t.Fatal(s, c)
		}
		return got
	}
	first := serials()
	again, err := ca.Issue(Request{Identity: id, Lifetime: 48 * time.Hour}, start)
	if err != nil {
		t.Fatal(err)
	}
	putAgent(t, dir, ca, again)
	if serials() != first {
		t.Error("it changes before it is read again")
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if serials() == first || !s.Expires().Equal(start.Add(48*time.Hour)) {
		t.Error("the old certificate is used on")
	}
	for name, r := range map[string]Request{
		"another name": {Identity: Identity{Role: RoleCell, Name: "cell-a-2", Cell: "cell-a"}},
		"another cell": {Identity: Identity{Role: RoleCell, Name: "cell-a-1", Cell: "cell-b"}},
	} {
		wrong, err := ca.Issue(r, start)
		if err != nil {
			t.Fatal(err)
		}
		putAgent(t, dir, ca, wrong)
		if err := s.Reload(); err == nil || !strings.Contains(err.Error(), "restart to become another agent") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, CertFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil || s.Identity().Name != "cell-a-1" {
		t.Errorf("nonsense is taken: %v", err)
	}
	serials()
}

// TestReloadAuthority: while one authority follows another, a bundle of both lets agents of either talk.
func TestReloadAuthority(t *testing.T) {
	before, after := newCA(t, "fl-one"), newCA(t, "fl-one")
	dir := agentDir(t, before, Request{Identity: Identity{Role: RoleControl, Name: "control-1"}})
	s := storeAt(t, dir, start)
	newerDir := agentDir(t, after, Request{Identity: Identity{Role: RoleGateway, Name: "gateway-1"}})
	newer := storeAt(t, newerDir, start)
	if server, _ := meet(t, s.ServerTLS(), newer.ClientTLS(Expect{})); server == nil {
		t.Fatal("another authority's agent is let in")
	}
	for at, store := range map[string]*Store{dir: s, newerDir: newer} {
		if err := WritePublic(filepath.Join(at, CAFile), append(after.Certificate(), before.Certificate()...)); err != nil {
			t.Fatal(err)
		}
		if err := store.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if server, client := meet(t, s.ServerTLS(), newer.ClientTLS(Expect{Role: RoleControl})); server != nil || client != nil {
		t.Errorf("an agent of the new authority is refused: %v, %v", server, client)
	}
	if err := WritePublic(filepath.Join(dir, CAFile), append(before.Certificate(), newCA(t, "fl-two").Certificate()...)); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), "authorities of two clusters") {
		t.Errorf("a bundle of two clusters: %v", err)
	}
}
