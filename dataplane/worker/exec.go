package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
)

// The exit codes with a meaning of their own. Every other one but 0 is a failure that the job's retry policy decides about.
const (
	ExitTemporary = 75  // EX_TEMPFAIL of sysexits: a failure that is expected to pass; retried by the job's policy
	ExitFatal     = 100 // no retry can help, as for qmail's programs
)

const (
	// envUsageFile names the file that a program writes what it used to.
	envUsageFile = "FAIRLEAD_USAGE_FILE"
	// KillGraceDefault is how long a program has between SIGTERM and SIGKILL.
	KillGraceDefault = 5 * time.Second
	stderrBytesMax   = 8 << 10 // its end is kept
	// pipeGrace is how long output is waited for once the program and its group are gone: only a process that left the group can still
	// hold the pipe.
	pipeGrace = 2 * time.Second
)

// ExecConfig says which program [Exec] runs.
type ExecConfig struct {
	// Command is the program and its arguments. Only one of Command and Shell.
	Command []string
	// Shell is a command line for /bin/sh -c.
	Shell string
	// Env is added to the worker's environment, as NAME=value.
	Env []string
	// Dir is the working directory; the worker's when empty.
	Dir string
	// KillGrace is how long a program has to end after SIGTERM before SIGKILL; 5 s by default.
	KillGrace time.Duration
}

// Exec returns a handler that runs a program for each attempt.
//
// The payload is its standard input. Exit code 0 is success, and standard output is the result: JSON when it is a JSON document, text when
// it is UTF-8, bytes otherwise, none when empty. More than [ResultBytesMax] is a fatal failure. Every other code is a failure with the end
// of standard error as its text; [ExitFatal] is fatal. A program killed by a signal is a failure.
//
// What it used it may write to the file that FAIRLEAD_USAGE_FILE names, as a line for each resource, such as tokens=812; see [Use]. What
// is not understood there is left out, and logged.
//
// It gets the worker's environment without FAIRLEAD_TOKEN, and FAIRLEAD_JOB_ID, FAIRLEAD_OPERATION, FAIRLEAD_TENANT, FAIRLEAD_CLASS,
// FAIRLEAD_ATTEMPT, FAIRLEAD_DEADLINE (when the attempt will be stopped, RFC 3339) and TRACEPARENT, as far as they are known.
//
// On Unix it leads a process group of its own. When the context ends, the group gets SIGTERM, and SIGKILL after the grace. Whatever of the
// group is left when the program ends is killed. On Linux the program also dies with the worker.
//
// Exec returns a *[cell.FieldError] when cfg names no program that can be found.
func Exec(cfg ExecConfig) (HandlerFunc, error) {
	argv := slices.Clone(cfg.Command)
	switch {
	case len(argv) > 0 && cfg.Shell != "":
		return nil, &cell.FieldError{Field: "exec", Problem: "has a command and a shell line", Remedy: "give one of them"}
	case cfg.Shell != "":
		argv = shellCommand(cfg.Shell)
	case len(argv) == 0 || argv[0] == "":
		return nil, &cell.FieldError{Field: "exec", Problem: "names no program", Remedy: "give a command"}
	}
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, &cell.FieldError{Field: "exec", Problem: fmt.Sprintf("cannot run: %v", err), Remedy: "give the path of a program"}
	}
	if cfg.KillGrace < 0 {
		return nil, &cell.FieldError{Field: "kill_grace", Problem: fmt.Sprintf("is %v, below 0", cfg.KillGrace), Remedy: "leave it 0 for 5 s"}
	}
	if cfg.KillGrace == 0 {
		cfg.KillGrace = KillGraceDefault
	}
	p := &program{cfg: cfg, path: path, argv: argv, env: append(inheritedEnv(os.Environ()), cfg.Env...)}
	return p.run, nil
}

// program runs one process per attempt.
type program struct {
	cfg  ExecConfig
	path string
	argv []string
	env  []string
}

func (p *program) run(ctx context.Context, task *Task) (client.Payload, error) {
	stdout, stderr := &headBuffer{max: ResultBytesMax}, &tailBuffer{max: stderrBytesMax}
	used := newUsageFile()
	defer used.finish(ctx)
	cmd := &exec.Cmd{
		Path: p.path, Args: p.argv, Dir: p.cfg.Dir, Env: slices.Concat(p.env, taskEnv(ctx, task), used.env()),
		Stdin: bytes.NewReader(task.Payload.Body()), Stdout: stdout, Stderr: stderr,
		WaitDelay: pipeGrace,
	}
	ownGroup(cmd)
	// The kernel ends the program when the thread that started it ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return client.Payload{}, fmt.Errorf("start: %w", err)
	}
	stopped := make(chan struct{})
	killer := make(chan struct{})
	go func() {
		defer close(killer)
		terminate(ctx, cmd, p.cfg.KillGrace, stopped)
	}()
	err := waitGroup(cmd, func() {
		close(stopped)
		<-killer
	})
	return p.result(err, stdout, stderr)
}

func (*program) result(err error, stdout *headBuffer, stderr *tailBuffer) (client.Payload, error) {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		failure := withStderr(errors.New(exit.String()), stderr)
		if exit.ExitCode() == ExitFatal {
			return client.Payload{}, Fatal(failure)
		}
		return client.Payload{}, failure
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // the program itself had succeeded
		return client.Payload{}, withStderr(err, stderr)
	}
	if stdout.total > ResultBytesMax {
		return client.Payload{}, Fatal(fmt.Errorf("standard output has %d bytes, of at most %d: store the result elsewhere and print where",
			stdout.total, ResultBytesMax))
	}
	return outputPayload(stdout.kept), nil
}

func outputPayload(out []byte) client.Payload {
	switch {
	case len(out) == 0:
		return client.Payload{}
	case json.Valid(out) && utf8.Valid(out):
		return client.JSON(json.RawMessage(out))
	case utf8.Valid(out):
		return client.Bytes("text/plain; charset=utf-8", out)
	default:
		return client.Bytes("", out)
	}
}

func withStderr(err error, stderr *tailBuffer) error {
	text := strings.TrimSpace(strings.ToValidUTF8(string(stderr.kept), "\uFFFD"))
	if text == "" {
		return err
	}
	// The end of standard error says most, and an outcome's text is cut at its end.
	if room := ErrorBytesMax - len(err.Error()) - len(": "); len(text) > room {
		text = strings.ToValidUTF8(text[len(text)-max(0, room):], "")
	}
	return fmt.Errorf("%w: %s", err, text)
}

// inheritedEnv is env without the key, which is the worker's and not the program's, and without what each attempt sets.
func inheritedEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		switch name {
		case "FAIRLEAD_TOKEN", "FAIRLEAD_JOB_ID", "FAIRLEAD_OPERATION", "FAIRLEAD_TENANT", "FAIRLEAD_CLASS", "FAIRLEAD_ATTEMPT",
			"FAIRLEAD_DEADLINE", envUsageFile, "TRACEPARENT":
			return true
		default:
			return false
		}
	})
}

func taskEnv(ctx context.Context, task *Task) []string {
	env := []string{
		"FAIRLEAD_JOB_ID=" + task.ID,
		"FAIRLEAD_OPERATION=" + task.Operation,
		"FAIRLEAD_ATTEMPT=" + strconv.Itoa(task.Attempt),
	}
	if task.Tenant != "" {
		env = append(env, "FAIRLEAD_TENANT="+task.Tenant)
	}
	if task.Class.Valid() {
		env = append(env, "FAIRLEAD_CLASS="+task.Class.String())
	}
	if deadline, ok := ctx.Deadline(); ok {
		env = append(env, "FAIRLEAD_DEADLINE="+deadline.UTC().Format(time.RFC3339Nano))
	}
	if task.Traceparent != "" {
		env = append(env, "TRACEPARENT="+task.Traceparent)
	}
	return env
}

// headBuffer keeps the first max bytes and counts the rest, so that a program that prints too much still ends by itself.
type headBuffer struct {
	kept  []byte
	max   int
	total int64
}

func (b *headBuffer) Write(p []byte) (int, error) {
	b.total += int64(len(p))
	b.kept = append(b.kept, p[:min(len(p), b.max-len(b.kept))]...)
	return len(p), nil
}

// tailBuffer keeps the last max bytes.
type tailBuffer struct {
	kept []byte
	max  int
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[max(0, len(p)-b.max):]...)
	if over := len(b.kept) - b.max; over > 0 {
		b.kept = b.kept[:copy(b.kept, b.kept[over:])]
	}
	return len(p), nil
}
