package identity

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

func preparing(dir string) PrepareConfig {
	return PrepareConfig{
		Dir: dir, AdminSecret: func() string { return "flk_secret" },
		Agents: []Request{
			{Identity: Identity{Role: RoleControl, Name: "control-1"}, Hosts: []string{"control-1", "localhost"}},
			{Identity: Identity{Role: RoleCell, Name: "cell-a-1", Cell: "cell-a"}},
			{Identity: Identity{Role: RoleGateway, Name: "gateway-1"}},
		},
	}
}

// contents returns every file below dir.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPrepare: each agent can start from its folder, and a second run with one more agent makes that one's and changes nothing else.
func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	cfg := preparing(dir)
	cfg.DryRun = true
	dry, err := Prepare(cfg, start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Fatal("a dry run makes something")
	}
	cfg.DryRun = false
	made, err := Prepare(cfg, start)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(dry) {
		t.Errorf("%d files are made, and a dry run says %d", len(made), len(dry))
	}
	for _, m := range made {
		if !m.New {
			t.Errorf("%s is said to have been there", m.Path)
		}
	}
	var cluster string
	for _, r := range cfg.Agents {
		s := storeAt(t, filepath.Join(dir, r.Identity.Name), start)
		if s.Identity().Role != r.Identity.Role || len(s.GossipKeys()) != 1 || (s.CA() != nil) != (r.Identity.Role == RoleControl) {
			t.Errorf("%s is %s, with %d keys of gossip", r.Identity.Name, s.Identity(), len(s.GossipKeys()))
		}
		cluster = s.Identity().ClusterID
	}
	before := contents(t, dir)
	if before[AdminKeyFile] != "flk_secret\n" || before[ClusterFile] != "cluster: "+cluster+"\n" {
		t.Errorf("%s: %q, %s: %q", AdminKeyFile, before[AdminKeyFile], ClusterFile, before[ClusterFile])
	}
	if err := os.Remove(filepath.Join(dir, "gateway-1", GossipFile)); err != nil { // and what is missing is made again
		t.Fatal(err)
	}
	cfg.Agents = append(cfg.Agents, Request{Identity: Identity{Role: RoleCell, Name: "cell-b-1", Cell: "cell-b"}})
	if made, err = Prepare(cfg, start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	after := contents(t, dir)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s has changed", name)
		}
	}
	if len(after) != len(before)+4 {
		t.Errorf("%d files, and there were %d", len(after), len(before))
	}
	for _, m := range made {
		if want := strings.Contains(m.Path, "cell-b-1") || strings.HasSuffix(m.Path, filepath.Join("gateway-1", GossipFile)); m.New != want {
			t.Errorf("%s: new is %v", m.Path, m.New)
		}
	}
	cfg.Renew = true
	if _, err := Prepare(cfg, start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	renewed := contents(t, dir)
	if key := filepath.Join("cell-a-1", KeyFile); renewed[key] == after[key] || renewed[CAFile] != after[CAFile] {
		t.Error("renewing leaves an agent's key, or changes the authority")
	}
}

// TestPrepareRefuses: what is there and is not this cluster's stays untouched.
func TestPrepareRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string, cfg *PrepareConfig) error
		want   string
	}{
		"another cluster":   {func(_ string, cfg *PrepareConfig) error { cfg.ClusterID = "fl-two"; return nil }, "not fl-two"},
		"half an authority": {func(dir string, _ *PrepareConfig) error { return os.Remove(filepath.Join(dir, CAKeyFile)) }, "the other half"},
		"the other half":    {func(dir string, _ *PrepareConfig) error { return os.Remove(filepath.Join(dir, CAFile)) }, "the other half"},
		"a readable key":    {func(dir string, _ *PrepareConfig) error { return os.Chmod(filepath.Join(dir, CAKeyFile), 0o644) }, "others may read"},
		"a readable secret": {func(dir string, _ *PrepareConfig) error { return os.Chmod(filepath.Join(dir, AdminKeyFile), 0o644) }, "others may read"},
		"another record": {func(dir string, _ *PrepareConfig) error {
			return WritePublic(filepath.Join(dir, ClusterFile), []byte("cluster: x\n"))
		}, `of the cluster "x"`},
		"broken gossip": {func(dir string, _ *PrepareConfig) error {
			return WriteSecret(filepath.Join(dir, GossipFile), []byte("x\n"))
		}, "in line 1"},
		"another role": {func(_ string, cfg *PrepareConfig) error { cfg.Agents[2].Identity.Role = RoleControl; return nil }, "/gateway/gateway-1, not"},
		"another cell": {func(_ string, cfg *PrepareConfig) error { cfg.Agents[1].Identity.Cell = "cell-b"; return nil }, "delete its folder"},
		"a broken agent": {func(dir string, _ *PrepareConfig) error {
			return WritePublic(filepath.Join(dir, "gateway-1", CertFile), []byte("x"))
		}, "prepare again"},
		"two of one name":    {func(_ string, cfg *PrepareConfig) error { cfg.Agents = append(cfg.Agents, cfg.Agents[0]); return nil }, "twice"},
		"a name with a path": {func(_ string, cfg *PrepareConfig) error { cfg.Agents[0].Identity.Name = "../x"; return nil }, "name"},
		"a bad host":         {func(_ string, cfg *PrepareConfig) error { cfg.Agents[0].Hosts = []string{"a b"}; return nil }, "hosts"},
		"many agents": {func(_ string, cfg *PrepareConfig) error {
			cfg.Agents = make([]Request, AgentsMax+1)
			return nil
		}, "at most 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := preparing(dir)
			if _, err := Prepare(cfg, start); err != nil {
				t.Fatal(err)
			}
			if err := c.change(dir, &cfg); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			_, err := Prepare(cfg, start)
			_, file := errors.AsType[*FileError](err)
			_, field := errors.AsType[*cell.FieldError](err)
			if err == nil || !file && !field || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			for name, text := range contents(t, dir) {
				if !bytes.Equal([]byte(text), []byte(before[name])) {
					t.Errorf("%s has changed", name)
				}
			}
		})
	}
}
