package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// The hidden commands that the parent starts its own binary with.
const (
	ServerCommand = "demo-server"
	WorkerCommand = "demo-worker"
)

// stopGrace is how long a child may take to end in order. The demo's jobs are over then or given up, so there is little to wait for.
const stopGrace = 5 * time.Second

// goodbye is the line that tells a child to end although its parent lives: whoever reads the end of the pipe without it is an orphan.
const goodbye = "stop"

// child is a process of the parent's own binary. It is told what to do by a line of JSON on its standard input, and ends when that does.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *tail

	stopped context.CancelFunc
	ended   chan struct{} // closed once the process is gone
	err     error         // why it ended; read after ended
}

// spawn starts a child. What it prints is to be read to its end.
func spawn(ctx context.Context, name, command string, instructions any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx)) // the parent ends it in its own order
	c := &child{name: name, cmd: exec.CommandContext(run, self, command), stderr: &tail{}, stopped: stop, ended: make(chan struct{})}
	c.cmd.Args[0] = os.Args[0]
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = stopGrace
	apart(c.cmd)
	out, err := c.pipes()
	if err != nil {
		stop()
		return nil, fmt.Errorf("starting the %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("starting the %s: %w", name, errors.Join(err, out.w.Close(), out.r.Close()))
	}
	_ = out.w.Close() // the child has its own
	go func() {
		defer close(c.ended)
		c.err = c.cmd.Wait()
	}()
	line, err := json.Marshal(instructions)
	if err == nil {
		_, err = c.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telling the %s what to do: %w", name, err), c.stop())
	}
	return c, nil
}

type pipe struct{ r, w *os.File }

// pipes connects the child's standard input and output. The output is a pipe of our own: what Wait closes could still hold lines.
func (c *child) pipes() (pipe, error) {
	var p pipe
	var err error
	if p.r, p.w, err = os.Pipe(); err != nil {
		return p, err
	}
	c.cmd.Stdout = p.w
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return p, errors.Join(err, p.r.Close(), p.w.Close())
	}
	c.cmd.Cancel = func() error {
		_, err := io.WriteString(c.stdin, goodbye+"\n")
		return errors.Join(err, c.stdin.Close())
	}
	c.stdout = bufio.NewReader(p.r)
	return p, nil
}

// stop ends the child, by force after stopGrace, and waits until it is gone. It returns an error when it did not end in order.
func (c *child) stop() error {
	select {
	case <-c.ended: // by itself
	default:
		c.stopped()
		<-c.ended
	}
	c.stopped()
	if !c.cmd.ProcessState.Success() {
		return c.failure()
	}
	return nil
}

// failure is why the child ended that should not have, in its own words.
func (c *child) failure() error {
	if said := c.stderr.String(); said != "" {
		return fmt.Errorf("the %s ended (%v): %s", c.name, c.cmd.ProcessState, said)
	}
	return fmt.Errorf("the %s ended: %v", c.name, c.cmd.ProcessState)
}

// errOrphaned is the cause when a child's parent ended without a word.
var errOrphaned = errors.New("the parent is gone")

// attached reads a child's instructions from in, and returns a context that ends when the parent says so or is gone; then the cause is
// errOrphaned. The goroutine that watches ends with in, which is for the process's life.
func attached(ctx context.Context, in io.Reader, instructions any) (context.Context, error) {
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return ctx, fmt.Errorf("this command is for fairlead demo, which tells it what to do: %w", err)
	}
	if err := json.Unmarshal(line, instructions); err != nil {
		return ctx, fmt.Errorf("this command is for fairlead demo, which tells it what to do: %w", err)
	}
	run, cancel := context.WithCancelCause(ctx)
	go func() {
		if last, _ := r.ReadString('\n'); strings.TrimSpace(last) == goodbye { // every other end, an error's too, is the parent's
			cancel(nil)
			return
		}
		cancel(errOrphaned)
	}()
	return run, nil
}

// tailBytesMax bounds what is kept of a child's words: the last ones tell why it ended.
const tailBytesMax = 4 << 10

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailBytesMax; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// String returns what is kept, without blanks around it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.kept), "\uFFFD"))
}
