package crash

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/e2e/harness"
)

// TestDamagedLogStopsTheServer flips a byte in the middle of the cell's log. The server refuses to start, says what is damaged and where, and
// deletes nothing; with the byte as it was, everything is there again.
func TestDamagedLogStopsTheServer(t *testing.T) {
	t.Parallel()
	const jobs = 2000
	server := harness.NewServer(t, harness.Config{Tenants: []string{"acme"}})
	server.Start()
	ids := preload(t, server, "acme", jobs)
	server.Kill()

	path, at := middleOfLog(t, server.Dir())
	flip(t, path, at)
	before := fingerprints(t, server.Dir())
	server.Launch()
	_, err := server.Ready()
	if !errors.Is(err, harness.ErrEnded) {
		t.Fatalf("a server on a damaged log: %v", err)
	}
	output := server.Process().Output()
	for _, want := range []string{filepath.Join(server.Dir(), "cell-1"), "corrupt", "nothing was deleted"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output does not say %q:\n%s", want, output)
		}
	}
	if code, err := server.Process().Wait(0); err != nil || code <= 0 {
		t.Errorf("it ended with code %d, %v", code, err)
	}
	after := fingerprints(t, server.Dir())
	for name, sum := range before {
		switch got, there := after[name]; {
		case !there:
			t.Errorf("%s was deleted", name)
		case got != sum && filepath.Ext(name) == ".wal":
			t.Errorf("%s was changed", name)
		}
	}

	flip(t, path, at)
	server.Start()
	c := server.Client("acme")
	for _, i := range []int{0, jobs / 2, jobs - 1} {
		if _, err := c.Get(t.Context(), ids[i]); err != nil {
			t.Errorf("job %d after the repair: %v", i, err)
		}
	}
}

// middleOfLog returns the largest file of the cell's log and a place in the middle of what is written in it: its files are allocated whole.
func middleOfLog(t *testing.T, dir string) (path string, at int) {
	t.Helper()
	written := 0
	walk(t, filepath.Join(dir, "cell-1"), func(name string, content []byte) {
		if n := len(bytes.TrimRight(content, "\x00")); filepath.Ext(name) == ".wal" && n > written {
			path, written = name, n
		}
	})
	if path == "" {
		t.Fatal("the cell has no log files where they are expected")
	}
	return path, written / 2
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[at] ^= 0x10
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// fingerprints returns a digest of every file below dir, by its name.
func fingerprints(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	walk(t, dir, func(name string, content []byte) { sums[name] = sha256.Sum256(content) })
	return sums
}

func walk(t *testing.T, dir string, visit func(name string, content []byte)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if err == nil {
			visit(name, content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
