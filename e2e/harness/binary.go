package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// built is the binary that the tests of this process share.
var built struct {
	sync.Mutex
	dir  string
	path string
	err  error
}

var errNoGo = errors.New("there is no go command to build fairlead with")

// Binary returns the path of the real fairlead: the one that FAIRLEAD_BINARY names, or one built from the tree, once for all tests of the
// process. It skips the test where neither can be had, and fails it when the tree does not build.
func Binary(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(binaryEnv); path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			tb.Fatal(err)
		}
		return abs
	}
	built.Lock()
	defer built.Unlock()
	if built.path == "" && built.err == nil {
		built.dir, built.path, built.err = build(tb.Context())
	}
	switch {
	case errors.Is(built.err, errNoGo):
		tb.Skipf("%v: put go into PATH, or name a binary in %s", built.err, binaryEnv)
	case built.err != nil:
		tb.Fatal(built.err)
	}
	return built.path
}

// BuildWith builds a fairlead of its own with more flags of go build, such as tags. It skips the test where there is no go command.
func BuildWith(tb testing.TB, flags ...string) string {
	tb.Helper()
	dir, path, err := build(tb.Context(), flags...)
	if dir != "" {
		tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // in the system's folder for what may be lost
	}
	switch {
	case errors.Is(err, errNoGo):
		tb.Skip(err)
	case err != nil:
		tb.Fatal(err)
	}
	return path
}

// build builds the binary into a folder of its own. It returns the folder even when it fails later, to be removed.
func build(ctx context.Context, flags ...string) (dir, path string, err error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", "", errNoGo
	}
	module, err := exec.CommandContext(ctx, goCommand, "env", "GOMOD").Output()
	if err != nil {
		return "", "", fmt.Errorf("looking for the module: %w", err)
	}
	if dir, err = os.MkdirTemp("", "fairlead-e2e-"); err != nil {
		return "", "", err
	}
	path = filepath.Join(dir, "fairlead")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	cmd := exec.CommandContext(ctx, goCommand, append([]string{"build", "-o", path}, append(flags, "./cmd/fairlead")...)...)
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(module)))
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, "", fmt.Errorf("building fairlead: %w\n%s", err, out)
	}
	return dir, path, nil
}

func removeBuilt() {
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // in the system's folder for what may be lost
	}
}
