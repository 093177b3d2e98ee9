package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// awaitMax bounds waiting for what is sure to happen, on a machine that does much else.
const awaitMax = 60 * time.Second

// scriptMax bounds all scripts together: a command that should have ended must not hold up whoever runs the tests.
const scriptMax = 4 * time.Minute

// TestScripts runs testdata/script against the real binary. Each script has a working directory of its own; what it leaves running is
// interrupted at its end.
func TestScripts(t *testing.T) {
	harness.NeedSignals(t)
	binary := harness.Binary(t)
	testscript.Run(t, testscript.Params{
		Dir:      filepath.Join("testdata", "script"),
		Deadline: time.Now().Add(scriptMax),
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready":  command(1, ready),
			"exits":  command(2, exits),
			"await":  command(2, await),
			"keep":   command(1, keep),
			"fill":   command(2, fill),
			"flip":   command(1, flip),
			"unhex":  command(2, unhex),
			"gone":   command(1, gone),
			"target": command(1, target),
		},
	})
}

// command makes a command of a script from a function that wants at least n arguments.
func command(n int, run func(ts *testscript.TestScript, args []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < n {
			ts.Fatalf("the command wants %d arguments and no !", n)
		}
		ts.Check(run(ts, args))
	}
}

// until looks at done until it is nil.
func until(done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), awaitMax) //nolint:forbidigo // a script's command is given no context
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", awaitMax, err)
		}
	}
}

// ready waits until the fairlead dev of a state directory answers, and keeps its address as ADDR.
func ready(ts *testscript.TestScript, args []string) error {
	return until(func(ctx context.Context) error {
		creds, err := config.ReadCredentials(ts.MkAbs(args[0]))
		if err != nil {
			return err
		}
		for _, k := range creds.Keys {
			if k.Name != "admin" {
				continue
			}
			conn, err := client.Dial(client.Config{Addr: creds.Addr, Token: client.Token(k.Secret)})
			if err != nil {
				return err
			}
			defer conn.Close()
			ts.Setenv("ADDR", creds.Addr)
			_, err = fairleadv1connect.NewStatusServiceClient(conn.HTTP, conn.URL, conn.Options...).GetStatus(ctx, &fairleadv1.GetStatusRequest{})
			return err
		}
		return errors.New("there is no admin key")
	})
}

// exits runs a program and wants its exit code to be the first argument.
func exits(ts *testscript.TestScript, args []string) error {
	want, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			return err
		}
		got = exit.ExitCode()
	}
	if got != want {
		return fmt.Errorf("the exit code is %d, not %d", got, want)
	}
	return nil
}

// await runs a program again and again until its standard output matches the first argument.
func await(ts *testscript.TestScript, args []string) error {
	re, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return err
	}
	return until(func(context.Context) error {
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			return err
		}
		if !re.MatchString(ts.ReadFile("stdout")) {
			return fmt.Errorf("the output does not match %q", args[0])
		}
		return nil
	})
}

// keep makes a variable of the last standard output, or of the part of it that a pattern's group matches.
func keep(ts *testscript.TestScript, args []string) error {
	value := strings.TrimSpace(ts.ReadFile("stdout"))
	if len(args) > 1 {
		m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(value)
		if m == nil {
			return fmt.Errorf("the output does not match %q", args[1])
		}
		value = m[1]
	}
	ts.Setenv(args[0], value)
	return nil
}

// fill writes a file of that many bytes: a JSON string of x.
func fill(ts *testscript.TestScript, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 2 {
		return fmt.Errorf("a size of %q", args[0])
	}
	return os.WriteFile(ts.MkAbs(args[1]), []byte(`"`+strings.Repeat("x", n-2)+`"`), 0o600)
}

// flip changes a byte in the middle of the largest log file below a directory.
func flip(ts *testscript.TestScript, args []string) error {
	var path string
	var middle int
	err := filepath.WalkDir(ts.MkAbs(args[0]), func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".wal" {
			return err
		}
		content, err := os.ReadFile(name)
		used := len(strings.TrimRight(string(content), "\x00"))
		if used/2 > middle {
			path, middle = name, used/2
		}
		return err
	})
	if err != nil || path == "" {
		return fmt.Errorf("no log below %s: %w", args[0], err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	content[middle] ^= 0x55
	return os.WriteFile(path, content, 0o600)
}

// unhex writes a file of bytes that a script cannot hold.
func unhex(ts *testscript.TestScript, args []string) error {
	var b []byte
	if _, err := fmt.Sscanf(args[0], "%x", &b); err != nil {
		return err
	}
	return os.WriteFile(ts.MkAbs(args[1]), b, 0o600)
}

// gone waits until the process whose id a file holds has ended.
func gone(ts *testscript.TestScript, args []string) error {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	if err != nil {
		return err
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return until(func(context.Context) error {
		if there := p.Signal(syscall.Signal(0)) == nil; !there {
			return nil
		}
		// One that nobody has waited for has ended, too.
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return fmt.Errorf("process %d still runs", pid)
	})
}

// target starts an HTTP server that jobs can be posted to, and keeps its address under a name: /echo answers the job's payload, /refuse says
// that no retry can help, /break fails.
func target(ts *testscript.TestScript, args []string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body) // a caller that is gone is not missed
	})
	mux.HandleFunc("POST /refuse", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "never", http.StatusUnprocessableEntity) })
	mux.HandleFunc("POST /break", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) })
	s := httptest.NewServer(mux)
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL)
	return nil
}
