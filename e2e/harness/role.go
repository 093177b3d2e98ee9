package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	ossignal "os/signal"
	"sync"
	"syscall"
	"testing"
)

// The variables of the environment that make a test binary play a role, and that people set: see the package's comment.
const (
	roleEnv    = "FAIRLEAD_E2E_ROLE"
	argsEnv    = "FAIRLEAD_E2E_ARGS"
	binaryEnv  = "FAIRLEAD_BINARY"
	profileEnv = "FAIRLEAD_PROFILE"
)

// Role is what a test binary does when it is started again as a process of its own. args is what Spawn was given, as JSON. The context ends
// with SIGTERM and SIGINT.
type Role func(ctx context.Context, args json.RawMessage) error

// Main runs the tests, or the role that the process was started for, and returns the exit code.
func Main(m *testing.M, roles map[string]Role) int {
	name := os.Getenv(roleEnv)
	if name == "" {
		defer removeBuilt()
		return m.Run()
	}
	role := roles[name]
	if name == serverRole {
		role = runServer
	}
	if role == nil {
		fmt.Fprintf(os.Stderr, "no role %q in this test binary\n", name)
		return 2
	}
	root := context.Background() //nolint:forbidigo // this is where the process begins
	ctx, stop := ossignal.NotifyContext(root, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := role(ctx, json.RawMessage(os.Getenv(argsEnv))); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Spawn starts the test binary again in a role. Each line that the process completes on its standard output is given to line, from one
// goroutine, and all of them before Ended is closed; line may be nil.
func Spawn(tb testing.TB, role string, args any, line func([]byte)) *Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(args)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), self, "-test.run=^$")
	cmd.Env = []string{roleEnv + "=" + role, argsEnv + "=" + string(text)}
	if line != nil {
		cmd.Stdout = &lineWriter{line: line}
	}
	return Start(tb, role, cmd)
}

// lineWriter gives each line to a function. A last line without its end never is: who wrote it was cut off.
type lineWriter struct {
	line func([]byte)

	mu   sync.Mutex
	rest []byte
}

// Write implements io.Writer.
func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		text, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		w.line(text)
		w.rest = rest
	}
}
