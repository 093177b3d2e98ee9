//go:build unix

package worker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
)

func execTask(payload client.Payload) *Task {
	return &Task{
		ID: "job_1", Tenant: "acme", Operation: "op", Class: cell.ClassBatch, Payload: payload, Attempt: 3, Traceparent: "00-aa-bb-01",
		ExecutionTimeout: time.Minute,
	}
}

func runShell(ctx context.Context, t *testing.T, line string, task *Task) Outcome {
	t.Helper()
	h, err := Exec(ExecConfig{Shell: line, KillGrace: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	reg := NewRegistry()
	if err := reg.Add("op", h); err != nil {
		t.Fatal(err)
	}
	return Execute(ctx, reg, task)
}

func TestExecOutcomes(t *testing.T) {
	tests := map[string]struct {
		line    string
		payload client.Payload
		want    Outcome
		body    string
		content string
	}{
		"JSON result": {line: "cat", payload: client.JSON([]int{1, 2}), body: "[1,2]", content: client.ContentTypeJSON},
		"JSON with a line end": {
			line: `echo '{"n": 9007199254740993}'`, body: `{"n": 9007199254740993}`, content: client.ContentTypeJSON,
		},
		"text":                {line: "echo hello", body: "hello\n", content: "text/plain; charset=utf-8"},
		"bytes":               {line: `printf '\377\376'`, body: "\xff\xfe", content: client.ContentTypeBytes},
		"no result":           {line: "true"},
		"unread input":        {line: "exit 0", payload: client.Bytes("", make([]byte, 1<<20))},
		"at the bound":        {line: "head -c 65536 /dev/zero", body: strings.Repeat("\x00", ResultBytesMax), content: "text/plain; charset=utf-8"},
		"failure":             {line: "echo bad >&2; echo out; exit 3", want: Outcome{Verdict: VerdictFailure, Error: "exit status 3: bad"}},
		"failure, no text":    {line: "exit 4", want: Outcome{Verdict: VerdictFailure, Error: "exit status 4"}},
		"temporary":           {line: "exit 75", want: Outcome{Verdict: VerdictFailure, Error: "exit status 75"}},
		"fatal":               {line: "echo no >&2; exit 100", want: Outcome{Verdict: VerdictFailure, Fatal: true, Error: "exit status 100: no"}},
		"killed":              {line: "kill -9 $$", want: Outcome{Verdict: VerdictFailure, Error: "signal: killed"}},
		"result is too large": {line: "head -c 70000 /dev/zero", want: Outcome{Verdict: VerdictFailure, Fatal: true, Error: "standard output has 70000 bytes, of at most 65536: store the result elsewhere and print where"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := runShell(t.Context(), t, tt.line, execTask(tt.payload))
			if tt.want.Verdict == 0 {
				tt.want.Verdict = VerdictSuccess
			}
			if got.Verdict != tt.want.Verdict || got.Error != tt.want.Error || got.Fatal != tt.want.Fatal {
				t.Errorf("outcome %+v, want %+v", got, tt.want)
			}
			if string(got.Result.Body()) != tt.body || got.Result.ContentType() != tt.content {
				t.Errorf("result %s %.100q, want %s %.100q", got.Result.ContentType(), got.Result.Body(), tt.content, tt.body)
			}
		})
	}
}

func TestExecKeepsTheEndOfStderr(t *testing.T) {
	got := runShell(t.Context(), t, "head -c 100000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 1", execTask(client.Payload{}))
	if len(got.Error) > ErrorBytesMax || !strings.HasPrefix(got.Error, "exit status 1: xxx") || !strings.HasSuffix(got.Error, "the end") {
		t.Errorf("%d bytes: %.40q ... %q", len(got.Error), got.Error, got.Error[max(0, len(got.Error)-20):])
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("FAIRLEAD_TOKEN", "secret")
	t.Setenv("FAIRLEAD_TENANT", "of the worker")
	t.Setenv("KEPT", "yes")
	h, err := Exec(ExecConfig{Command: []string{"env"}, Env: []string{"ADDED=1"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	out, err := h(ctx, execTask(client.Payload{}))
	if err != nil {
		t.Fatal(err)
	}
	env := make(map[string]string)
	for line := range strings.Lines(string(out.Body())) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	for name, want := range map[string]string{
		"FAIRLEAD_JOB_ID": "job_1", "FAIRLEAD_OPERATION": "op", "FAIRLEAD_TENANT": "acme", "FAIRLEAD_CLASS": "batch", "FAIRLEAD_ATTEMPT": "3",
		"TRACEPARENT": "00-aa-bb-01", "KEPT": "yes", "ADDED": "1",
	} {
		if env[name] != want {
			t.Errorf("%s=%q, want %q", name, env[name], want)
		}
	}
	if at, err := time.Parse(time.RFC3339, env["FAIRLEAD_DEADLINE"]); err != nil || time.Until(at) > time.Hour || time.Until(at) < time.Minute {
		t.Errorf("FAIRLEAD_DEADLINE=%q", env["FAIRLEAD_DEADLINE"])
	}
	if _, ok := env["FAIRLEAD_TOKEN"]; ok || strings.Contains(string(out.Body()), "secret") {
		t.Error("the worker's key is in the program's environment")
	}
}

// familyScript starts a grandchild and writes both process ids to the pipe at $1; trap makes both deaf to SIGTERM.
const familyScript = `
[ "$2" = deaf ] && trap '' TERM
sleep 600 & echo $$ $! > "$1"
[ "$2" = leave ] && exit 0
wait`

// family runs familyScript until its processes run, and returns their ids and what becomes of the attempt.
func family(ctx context.Context, t *testing.T, how string, grace time.Duration) ([]int, <-chan error) {
	t.Helper()
	pipe := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := Exec(ExecConfig{Command: []string{"/bin/sh", "-c", familyScript, "sh", pipe, how}, KillGrace: grace})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := h(ctx, execTask(client.Payload{}))
		ended <- err
	}()
	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var pids []int
	for s := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 2 {
		t.Fatalf("processes %q", line)
	}
	return pids, ended
}

// alive reports whether pid runs. One that was killed and waits for its reaper is not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestExecLeavesNobodyBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		how    string
		cancel bool
		grace  time.Duration
		wantOK bool
	}{
		"asked to end":          {how: "plain", cancel: true, grace: time.Minute},
		"deaf":                  {how: "deaf", cancel: true, grace: 100 * time.Millisecond},
		"leaves its child":      {how: "leave", grace: time.Minute, wantOK: true},
		"leaves, and cancelled": {how: "leave", cancel: true, grace: time.Minute, wantOK: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			pids, ended := family(ctx, t, tt.how, tt.grace)
			if tt.cancel {
				cancel()
			}
			select {
			case err := <-ended:
				if (err == nil) != tt.wantOK && tt.how != "leave" {
					t.Errorf("handler returned %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("handler does not return")
			}
			deadline := time.Now().Add(5 * time.Second)
			for _, pid := range pids {
				for alive(pid) { // the kernel takes a moment
					if time.Now().After(deadline) {
						t.Fatalf("process %d is still there", pid)
					}
					runtime.Gosched()
				}
			}
		})
	}
}

func TestExecRefusesBadConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  ExecConfig
		want string
	}{
		"nothing":       {ExecConfig{}, "exec names no program"},
		"both":          {ExecConfig{Command: []string{"true"}, Shell: "true"}, "has a command and a shell line"},
		"not there":     {ExecConfig{Command: []string{"/no/such/program"}}, "exec cannot run"},
		"negative wait": {ExecConfig{Shell: "true", KillGrace: -1}, "kill_grace is -1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Exec(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Exec = %v, want %q", err, tt.want)
			}
		})
	}
}

// A program says what it used in a file of its own, which is gone afterwards. What it says wrong fails no job.
func TestExecUsage(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(envUsageFile, "/the/worker's/own") // which is not the program's
	for name, c := range map[string]struct {
		line    string
		verdict Verdict
		want    cell.Resources
		fault   string
	}{
		"told":          {`echo tokens=812 >"$FAIRLEAD_USAGE_FILE"; echo cpu_ms=0.6 >>"$FAIRLEAD_USAGE_FILE"`, VerdictSuccess, cell.Resources{cell.ResourceTokens: 812_000_000, cell.ResourceCPU: 600_000}, ""},
		"told, failed":  {`echo calls=1 >"$FAIRLEAD_USAGE_FILE"; exit 1`, VerdictFailure, cell.Resources{cell.ResourceCalls: 1_000_000}, ""},
		"told, killed":  {`echo calls=1 >"$FAIRLEAD_USAGE_FILE"; kill -9 $$`, VerdictFailure, cell.Resources{cell.ResourceCalls: 1_000_000}, ""},
		"nothing":       {"true", VerdictSuccess, cell.Resources{}, ""},
		"removed":       {`rm "$FAIRLEAD_USAGE_FILE"`, VerdictSuccess, cell.Resources{}, ""},
		"no resource":   {`echo gpu=1 >"$FAIRLEAD_USAGE_FILE"`, VerdictSuccess, cell.Resources{}, `"gpu" is not a resource`},
		"far too much":  {`head -c 70000 /dev/zero >"$FAIRLEAD_USAGE_FILE"`, VerdictSuccess, cell.Resources{}, "more than 65536 bytes"},
		"is a stranger": {`stat -c %a "$FAIRLEAD_USAGE_FILE" 2>/dev/null | grep -v 600 | sed 's/.*/calls=1/' >"$FAIRLEAD_USAGE_FILE"`, VerdictSuccess, cell.Resources{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := runShell(t.Context(), t, c.line, execTask(client.Payload{}))
			if out.Verdict != c.verdict || out.Used != c.want || (out.UsageFault == "") != (c.fault == "") || !strings.Contains(out.UsageFault, c.fault) {
				t.Errorf("%+v", out)
			}
		})
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere")) // the program runs all the same
	if out := runShell(t.Context(), t, `test -z "$FAIRLEAD_USAGE_FILE"`, execTask(client.Payload{})); out.Verdict != VerdictSuccess {
		t.Errorf("%+v", out)
	}
}
