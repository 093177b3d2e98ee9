package demo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// write makes the files of names below dir; a name that ends in a slash is a folder.
func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(at, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScan(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "secret")
	write(t, dir, "globex/1", "globex/deep/er/2", "acme/1", "acme/2", "acme/3", "two words/1", "admin/1", ".git/x", "acme/.hidden", "acme/.cache/y", "loose", "empty/")
	for link, to := range map[string]string{"acme/out": filepath.Join(outside, "secret"), "acme/dir": outside, "linked": outside} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	w, skipped, err := scan(Config{Folder: dir})
	if err != nil {
		t.Fatal(err)
	}
	var paths, tenants []string
	for n, j := range w.jobs {
		paths = append(paths, j.order.Path)
		if j.order.N != n || j.bytes != int64(len(j.order.Path)) {
			t.Errorf("job %d is %+v", n, j)
		}
	}
	for _, u := range w.tenants {
		tenants = append(tenants, u.name+"="+string(u.id))
	}
	if want := []string{"acme/1", "acme/2", "acme/3", "globex/1", "globex/deep/er/2", "admin/1", "two words/1"}; !slices.Equal(paths, want) {
		t.Errorf("files %q, want %q", paths, want)
	}
	if want := []string{"acme=acme", "globex=globex", "admin=folder-1", "two words=folder-2"}; !slices.Equal(tenants, want) {
		t.Errorf("tenants %q, want %q", tenants, want)
	}
	if want := (Skipped{Hidden: 3, Special: 3, Loose: 1}); skipped != want {
		t.Errorf("left out %+v, want %+v", skipped, want)
	}
}

func TestScanRefuses(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "none/", "hollow/a/", "good/a/1")
	for name, tc := range map[string]struct {
		config Config
		want   string
	}{
		"no folder":      {Config{Folder: filepath.Join(dir, "nowhere")}, "--dir cannot be read"},
		"a file":         {Config{Folder: filepath.Join(dir, "file")}, "--dir cannot be read"},
		"no sub-folder":  {Config{Folder: filepath.Join(dir, "none")}, "--dir has no sub-folder"},
		"no file":        {Config{Folder: filepath.Join(dir, "hollow")}, "--dir has no file"},
		"no program":     {Config{Folder: filepath.Join(dir, "good"), Program: "no-such-program-anywhere -x"}, "--exec names \"no-such-program-anywhere\""},
		"blank program":  {Config{Folder: filepath.Join(dir, "good"), Program: "  "}, "--exec is blank"},
		"program's path": {Config{Folder: filepath.Join(dir, "good"), Program: "/no/such/program"}, "--exec names"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := scan(tc.config)
			fe, ok := errors.AsType[*cell.FieldError](err)
			if !ok || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one with %q", err, tc.want)
			}
			if fe.Remedy == "" {
				t.Errorf("%v has no remedy", err)
			}
		})
	}
}

// TestTenantIDs: every folder gets an id that is valid, its own, and not that of a key of the server's.
func TestTenantIDs(t *testing.T) {
	names := rapid.SliceOfNDistinct(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"admin", "worker", "folder-1", "folder-2", "acme", "a b"})), 1, 20, rapid.ID)
	rapid.Check(t, func(t *rapid.T) {
		taken := make(map[cell.TenantID]bool)
		for _, name := range names.Draw(t, "names") {
			id := tenantID(name, taken)
			if err := cell.CheckID("id", string(id)); err != nil || taken[id] || id == "admin" || id == "worker" {
				t.Fatalf("folder %q is tenant %q: %v", name, id, err)
			}
			taken[id] = true
		}
	})
}

// TestOpenStaysInside: a file that became a link since the folder was read is not followed.
func TestOpenStaysInside(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "secret")
	write(t, dir, "acme/1", "acme/sub/")
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "acme", "link")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	c := &crew{root: root}
	for _, path := range []string{"acme/link", "other/secret", "../" + filepath.Base(outside) + "/secret", "acme/sub", "acme/gone"} {
		if f, err := c.open(path); err == nil {
			t.Errorf("%s was opened", path)
			_ = f.Close()
		}
	}
	f, err := c.open("acme/1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := count(t.Context(), f)
	if err != nil || out != "0 lines, 6 bytes" {
		t.Errorf("counted %q, %v", out, err)
	}
	if err := f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
}
