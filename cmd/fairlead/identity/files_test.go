package identity

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// TestLoad: what is wrong with a directory is said with the file's name and what to do.
func TestLoad(t *testing.T) {
	ca := newCA(t, "fl-one")
	r := Request{Identity: Identity{Role: RoleControl, Name: "control-1"}}
	key := func(ca *CA) []byte {
		text, err := ca.Key()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	put := func(name string, content []byte) func(dir string) error {
		return func(dir string) error { return WriteSecret(filepath.Join(dir, name), content) }
	}
	other, err := newCA(t, "fl-one").Issue(r, start)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		now    time.Time
		want   string
	}{
		"as it was made":          {func(string) error { return nil }, start, ""},
		"no authority":            {func(dir string) error { return os.Remove(filepath.Join(dir, CAFile)) }, start, CAFile + " cannot be read: no such file"},
		"no certificate":          {func(dir string) error { return os.Remove(filepath.Join(dir, CertFile)) }, start, CertFile + " cannot be read: no such file"},
		"no key":                  {func(dir string) error { return os.Remove(filepath.Join(dir, KeyFile)) }, start, KeyFile + " cannot be read: no such file"},
		"a key for the group":     {func(dir string) error { return os.Chmod(filepath.Join(dir, KeyFile), 0o640) }, start, "(mode 0640): run chmod 600"},
		"a key for everybody":     {func(dir string) error { return os.Chmod(filepath.Join(dir, KeyFile), 0o604) }, start, "(mode 0604): run chmod 600"},
		"another key":             {put(KeyFile, other.Key), start, KeyFile + " is not the key of"},
		"another authority":       {put(CertFile, other.Certificate), start, "is not the key of"},
		"a certificate as key":    {put(KeyFile, other.Certificate), start, "has no private key in PEM"},
		"a key as certificate":    {put(CertFile, other.Key), start, `has a "PRIVATE KEY" among its certificates`},
		"an authority's":          {put(CertFile, ca.Certificate()), start, "is no agent's"},
		"an agent's as authority": {put(CAFile, other.Certificate), start, "not a certificate authority of a cluster"},
		"expired":                 {func(string) error { return nil }, start.Add(LifetimeDefault + time.Second), CertFile + " expired at 2031-01-02T03:04:05Z: make another"},
		"not yet":                 {func(string) error { return nil }, start.Add(-time.Hour), "is not good before 2030-01-02T02:59:05Z"},
		"no gossip keys":          {put(GossipFile, []byte("# none\n")), start, GossipFile + " has 0 keys, outside 1 to 8"},
		"a bad gossip key":        {put(GossipFile, []byte("\nabc\n")), start, "in line 2"},
		"an authority's key":      {put(CAKeyFile, key(ca)), start, ""},
		"another authority's key": {put(CAKeyFile, key(newCA(t, "fl-one"))), start, "the key is of none of the certificates"},
		"a large file":            {put(CAFile, bytes.Repeat([]byte("a"), fileBytesMax+1)), start, "has more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(name, "a key for") {
				t.Skip("Windows has no such modes")
			}
			dir := agentDir(t, ca, r)
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			_, err := load(dir, func() time.Time { return c.now })
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fe, ok := errors.AsType[*FileError](err); !ok || !strings.Contains(fe.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestWrite: secrets are their owner's alone, whatever was there before, and nothing is left beside them.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "agent")
	path := filepath.Join(dir, KeyFile)
	for _, content := range []string{"one", "two"} {
		if err := WriteSecret(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadSecret(path); err != nil || string(got) != content {
			t.Errorf("read %q, %v", got, err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != dirMode && runtime.GOOS != "windows" {
		t.Errorf("the directory's mode is %v, %v", info.Mode(), err)
	}
	if there, err := Exists(dir); there || err != nil {
		t.Errorf("a key alone is an agent: %v", err)
	}
	if _, err := LoadCA(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an authority that is not there: %v", err)
	}
}

func TestGossipKeys(t *testing.T) {
	keys := [][]byte{NewGossipKey(), NewGossipKey()}
	got, err := ParseGossipKeys(append([]byte("# the first encrypts\n\n"), FormatGossipKeys(keys)...))
	if err != nil || len(got) != 2 || !bytes.Equal(got[0], keys[0]) || !bytes.Equal(got[1], keys[1]) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseGossipKeys(FormatGossipKeys(make([][]byte, gossipKeysMax+1))); err == nil {
		t.Error("keys of no bytes pass")
	}
}

// TestRequest: an authority signs for its own cluster what is within the bounds, and nothing else.
func TestRequest(t *testing.T) {
	ca := newCA(t, "fl-one")
	ok := Identity{Role: RoleCell, Name: "cell-a-1", Cell: "cell-a"}
	for name, c := range map[string]struct {
		r    Request
		want string
	}{
		"good":           {Request{Identity: ok, Hosts: []string{"cell-a-1", "10.0.0.7", "::1", "*.example.com"}}, ""},
		"no role":        {Request{Identity: Identity{Name: "a"}}, "role"},
		"no name":        {Request{Identity: Identity{Role: RoleControl}}, "name"},
		"no cell":        {Request{Identity: Identity{Role: RoleCell, Name: "a"}}, "cell"},
		"a cell too":     {Request{Identity: Identity{Role: RoleGateway, Name: "a", Cell: "cell-a"}}, "cell"},
		"a slash":        {Request{Identity: Identity{Role: RoleGateway, Name: "a/b"}}, "name"},
		"another's":      {Request{Identity: Identity{ClusterID: "fl-two", Role: RoleControl, Name: "a"}}, "cluster"},
		"an odd cluster": {Request{Identity: Identity{ClusterID: "FL", Role: RoleControl, Name: "a"}}, "cluster"},
		"too short":      {Request{Identity: ok, Lifetime: time.Second}, "lifetime"},
		"too long":       {Request{Identity: ok, Lifetime: CALifetime + 1}, "lifetime"},
		"a bad host":     {Request{Identity: ok, Hosts: []string{"a b"}}, "hosts"},
		"an empty host":  {Request{Identity: ok, Hosts: []string{""}}, "hosts"},
		"a bare star":    {Request{Identity: ok, Hosts: []string{"*"}}, "hosts"},
		"a hyphen":       {Request{Identity: ok, Hosts: []string{"-a"}}, "hosts"},
		"many hosts":     {Request{Identity: ok, Hosts: strings.Fields(strings.Repeat("a ", HostsMax+1))}, "hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			issued, err := ca.Issue(c.r, start)
			if c.want == "" {
				if err != nil || len(issued.Certificate) == 0 {
					t.Error(err)
				}
				return
			}
			if fe, ok := errors.AsType[*cell.FieldError](err); !ok || fe.Field != c.want {
				t.Errorf("%v, want a fault of %s", err, c.want)
			}
		})
	}
	long, err := ca.Issue(Request{Identity: ok, Lifetime: CALifetime}, start.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certs, err := parseCertificates(long.Certificate)
	if err != nil || certs[0].NotAfter.After(ca.Expires()) {
		t.Errorf("a certificate outlives its authority: %v", err)
	}
}

// TestParseCA: what was written is read back, and it is the same authority.
func TestParseCA(t *testing.T) {
	ca := newCA(t, "fl-one")
	key, err := ca.Key()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCA(append(newCA(t, "fl-one").Certificate(), ca.Certificate()...), key)
	if err != nil || again.Fingerprint() != ca.Fingerprint() || again.ClusterID() != "fl-one" {
		t.Errorf("%v, %v", again, err)
	}
	if _, err := ParseCA(ca.Certificate(), []byte("x")); !errors.Is(err, ErrAuthority) {
		t.Errorf("no key: %v", err)
	}
	if _, err := CreateCA("UPPER", start); err == nil {
		t.Error("an odd id passes")
	}
	if a, b := NewClusterID(), NewClusterID(); a == b || CheckClusterID("", a) != nil {
		t.Errorf("fresh ids %s and %s", a, b)
	}
}

// newToken returns a token as control makes them.
func newToken(t *testing.T, fingerprint [sha256.Size]byte) Token {
	t.Helper()
	b := append(fingerprint[:], make([]byte, tokenSecretBytes)...)
	_, _ = rand.Read(b[sha256.Size:]) // ends the process rather than fail
	token, err := ParseToken("token", TokenPrefix+base64.RawURLEncoding.EncodeToString(b))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestToken: a token has one text, says which authority it pins, and never prints itself.
func TestToken(t *testing.T) {
	fingerprint := newCA(t, "fl-one").Fingerprint()
	token := newToken(t, fingerprint)
	again, err := ParseToken("token", token.Reveal())
	if err != nil || again != token || again.Fingerprint() != fingerprint {
		t.Errorf("%v, %v", again, err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if got := fmt.Sprintf(verb, token); got != "(join token)" {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	for _, bad := range []string{"", "flj_", "flk_" + token.Reveal()[4:], token.Reveal() + "a", token.Reveal()[:80], token.Reveal() + "\n"} {
		_, err := ParseToken("token", bad)
		if err == nil || bad != "" && len(bad) > 4 && strings.Contains(err.Error(), bad[4:]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
