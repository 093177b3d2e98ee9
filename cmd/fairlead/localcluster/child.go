package localcluster

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
	"time"
)

// MemberCommand is the hidden command that runs another command of the binary for as long as its parent lives.
const MemberCommand = "demo-member"

// goodbye is the line that tells a child to end although its parent lives: whoever reads the end of the pipe without it is an orphan.
const goodbye = "stop"

// stopGrace is how long a child may take to end in order.
const stopGrace = 15 * time.Second

// instructions tell a child what to do.
type instructions struct {
	Args []string `json:"args"`
	// Scratch is removed when the parent is gone without having said so.
	Scratch string `json:"scratch,omitempty"`
}

// child is a process of the parent's own binary.
type child struct {
	name  string
	log   string // the path of what it writes to standard error
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed once the process is gone
}

// spawn starts a child that runs the command that args are.
func spawn(dir, log, name string, env []string, ins instructions) (*child, error) {
	failed := func(err error) (*child, error) { return nil, fmt.Errorf("starting %s: %w", name, err) }
	self, err := os.Executable()
	if err != nil {
		return failed(err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return failed(err)
	}
	defer out.Close()                        //nolint:errcheck // the child has its own
	cmd := exec.Command(self, MemberCommand) //nolint:noctx // it is ended by its standard input, in the parent's order
	cmd.Args[0], cmd.Dir, cmd.Env, cmd.Stderr = os.Args[0], dir, env, out
	apart(cmd)
	c := &child{name: name, log: log, cmd: cmd, ended: make(chan struct{})}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return failed(err)
	}
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // what it says is in cmd.ProcessState, which whoever waits reads
	}()
	line, err := json.Marshal(ins)
	if err == nil {
		_, err = c.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		c.kill()
		return failed(err)
	}
	return c, nil
}

// kill ends the child as a crash would, and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may be gone already
	<-c.ended
}

// bid asks the child to end in order.
func (c *child) bid() {
	_, _ = io.WriteString(c.stdin, goodbye+"\n") // it may be gone already
	_ = c.stdin.Close()
}

// stop ends the child in order, by force after stopGrace, and waits until it is gone.
func (c *child) stop() {
	c.bid()
	t := time.NewTimer(stopGrace)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
		c.kill()
	}
}

// lastWordsMax bounds what is shown of a child's log.
const lastWordsMax = 2 << 10

// failure is why the child ended that should not have, in its own words.
func (c *child) failure() error {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return fmt.Errorf("%s ended (%v)", c.name, c.cmd.ProcessState)
	}
	if over := len(text) - lastWordsMax; over > 0 {
		text = text[over:]
	}
	return fmt.Errorf("%s ended (%v): %s", c.name, c.cmd.ProcessState, strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD")))
}

// errOrphaned is the cause when a child's parent ended without a word.
var errOrphaned = errors.New("the parent is gone")

// Member is the child process: it reads what to run from in, runs it until in ends or says so, or with ctx, and returns what it returned. The
// goroutine that watches in ends with it, which is for the process's life.
func Member(ctx context.Context, in io.Reader, run func(ctx context.Context, args []string) error) error {
	var ins instructions
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ins)
	}
	if err != nil {
		return fmt.Errorf("this command is for fairlead demo, which tells it what to do: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if last, _ := r.ReadString('\n'); strings.TrimSpace(last) == goodbye { // every other end, an error's too, is the parent's
			cancel(nil)
			return
		}
		cancel(errOrphaned)
	}()
	err = run(ctx, ins.Args)
	if ins.Scratch != "" && errors.Is(context.Cause(ctx), errOrphaned) {
		err = errors.Join(err, removeAll(ins.Scratch))
	}
	return err
}

// The tries of removing a folder in which others are still about to end.
const (
	removeTries = 20
	removePause = 100 * time.Millisecond
)

// removeAll removes a folder. Other orphans may still write to it: whichever ends last finds it quiet.
func removeAll(dir string) error {
	var err error
	for range removeTries {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(removePause)
	}
	return err
}
