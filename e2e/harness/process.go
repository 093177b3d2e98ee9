package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// exitTimeout bounds how long a process that was sent SIGKILL may take to be gone: the kernel finishes its disk writes first.
const exitTimeout = 30 * time.Second

// Process is a running child and its process group. Its methods may be called from any goroutine.
type Process struct {
	tb    testing.TB
	name  string
	cmd   *exec.Cmd
	out   *tail
	ended chan struct{} // closed once the process is gone and its output is read
}

// Start starts cmd at the head of a process group of its own. It is killed when the test ends. What it writes to its standard output is
// dropped unless cmd says otherwise: a server prints its keys there.
func Start(tb testing.TB, name string, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{tb: tb, name: name, cmd: cmd, out: &tail{}, ended: make(chan struct{})}
	ownGroup(cmd)
	cmd.Env = cleanEnvironment(cmd.Env)
	cmd.Stderr = p.out
	if err := spawn(cmd); err != nil {
		tb.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // what it says is in cmd.ProcessState, which whoever waits reads
	}()
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("standard error of %s, process %d:\n%s", name, p.PID(), p.out)
		}
	})
	return p
}

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed once the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Output returns the last part of what the process wrote to its standard error.
func (p *Process) Output() string { return p.out.String() }

// Kill sends SIGKILL to the group and waits until the process is gone. It may be called again.
func (p *Process) Kill() {
	p.tb.Helper()
	if p.gone() {
		return
	}
	signalGroup(p.cmd, signalKill)
	if _, err := p.Wait(exitTimeout); err != nil {
		p.tb.Errorf("%s after SIGKILL: %v", p.name, err)
	}
}

// Terminate sends SIGTERM, waits until the process is gone, and returns its exit code: -1 when a signal ended it. A process that takes longer
// than timeout fails the test.
func (p *Process) Terminate(timeout time.Duration) int {
	p.tb.Helper()
	p.signal(signalTerminate)
	code, err := p.Wait(timeout)
	if err != nil {
		p.tb.Fatalf("%s after SIGTERM: %v", p.name, err)
	}
	return code
}

// Pause stops the process as SIGSTOP does: it gets no processor until Resume.
func (p *Process) Pause() {
	p.tb.Helper()
	p.signal(signalStop)
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.tb.Helper()
	p.signal(signalContinue)
}

// errStillRuns is returned by Wait when the process did not end in time.
var errStillRuns = errors.New("it still runs")

// Wait returns the process's exit code once it is gone, -1 when a signal ended it. It returns an error when that takes longer than timeout.
func (p *Process) Wait(timeout time.Duration) (int, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		if !p.gone() {
			return 0, fmt.Errorf("%w after %v", errStillRuns, timeout)
		}
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

func (p *Process) signal(s signal) {
	p.tb.Helper()
	if err := signalOne(p.cmd, s); err != nil {
		p.tb.Fatalf("signalling %s: %v", p.name, err)
	}
}

func (p *Process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// spawns hands commands to the one goroutine that starts them.
var spawns = sync.OnceValue(func() chan<- spawning {
	queue := make(chan spawning)
	// The kernel counts a child as orphaned when the thread that made it ends, not the process. So one thread makes them all, and lives as
	// long as the process.
	go func() {
		runtime.LockOSThread()
		for s := range queue {
			s.done <- s.cmd.Start()
		}
	}()
	return queue
})

type spawning struct {
	cmd  *exec.Cmd
	done chan<- error
}

func spawn(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	spawns() <- spawning{cmd: cmd, done: done}
	return <-done
}

// cleanEnvironment returns this process's environment without what would configure a fairlead, and with what the command adds.
func cleanEnvironment(added []string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "FAIRLEAD_") {
			env = append(env, v)
		}
	}
	return append(env, added...)
}

// tailBytesMax bounds what is kept of a process's output: the end is what tells why it ended.
const tailBytesMax = 64 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu      sync.Mutex
	kept    []byte
	dropped bool
}

// Write implements io.Writer.
func (w *tail) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, b...)
	if len(w.kept) > 2*tailBytesMax {
		w.kept = bytes.Clone(w.kept[len(w.kept)-tailBytesMax:])
		w.dropped = true
	}
	return len(b), nil
}

// String returns what is kept.
func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dropped {
		return "...\n" + string(w.kept)
	}
	return string(w.kept)
}
