package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fairlead": main})
}

// awaitMax bounds waiting for what is sure to happen.
const awaitMax = 20 * time.Second

// script is what the commands of one script share.
type script struct{ server *fakeServer }

type scriptKey struct{}

// concurrent names the scripts of commands that do several things at once. -short runs these only, for the race detector: every command is a process of its
// own, which takes it long to start.
var concurrent = []string{"batch", "interrupt", "sim_capture", "worker"}

// TestScripts runs testdata/script. FAIRLEAD_TEST_REWRITE=1 writes the expected files anew.
func TestScripts(t *testing.T) {
	dir, files := filepath.Join("testdata", "script"), []string(nil)
	if testing.Short() {
		for _, name := range concurrent {
			files = append(files, filepath.Join(dir, name+".txtar"))
		}
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir:           dir,
		Files:         files,
		UpdateScripts: os.Getenv("FAIRLEAD_TEST_REWRITE") != "",
		Setup: func(e *testscript.Env) error {
			e.Values[scriptKey{}] = &script{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server":      command(1, startServer),
			"exits":       command(2, exits),
			"await-calls": command(2, awaitCalls),
			"credentials": command(1, writeCredentials),
			"repeat":      command(3, repeat),
			"unhex":       command(2, unhex),
		},
	})
}

// command makes a command of a script from a function that wants at least n arguments.
func command(n int, run func(ts *testscript.TestScript, s *script, args []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		s, ok := ts.Value(scriptKey{}).(*script)
		if !ok || neg || len(args) < n {
			ts.Fatalf("the command wants %d arguments and no !", n)
		}
		ts.Check(run(ts, s, args))
	}
}

// startServer starts a fake server: FAIRLEAD_ADDR is its address, and FAIRLEAD_TOKEN the key of the name given, unless that is none.
func startServer(ts *testscript.TestScript, s *script, args []string) error {
	s.server = newFakeServer()
	ts.Defer(s.server.Close)
	ts.Setenv("FAIRLEAD_ADDR", s.server.URL)
	if args[0] != "none" {
		ts.Setenv("FAIRLEAD_TOKEN", "flk_"+args[0])
	}
	return nil
}

// exits runs a program and wants its exit code to be the first argument.
func exits(ts *testscript.TestScript, _ *script, args []string) error {
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

func awaitCalls(_ *testscript.TestScript, s *script, args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), awaitMax)
	defer cancel()
	return s.server.awaitCalls(ctx, args[0], n)
}

// writeCredentials writes a dev credentials file for the server into a directory, with another mode or address if they are given.
func writeCredentials(ts *testscript.TestScript, s *script, args []string) error {
	c := config.Credentials{Addr: s.server.URL, Keys: []config.CredentialKey{
		{Name: "admin", Scopes: []string{"operate", "admin"}, Secret: "flk_admin"},
		{Name: "worker", Scopes: []string{"work"}, Secret: "flk_worker"},
		{Name: "acme", Tenant: "acme", Scopes: []string{"submit", "read"}, Secret: "flk_acme"},
		{Name: "globex", Tenant: "globex", Scopes: []string{"submit", "read"}, Secret: "flk_globex"},
	}}
	mode := uint64(0o600)
	for _, arg := range args[1:] {
		if strings.Contains(arg, "://") {
			c.Addr = arg
			continue
		}
		var err error
		if mode, err = strconv.ParseUint(arg, 8, 32); err != nil {
			return err
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	dir := ts.MkAbs(args[0])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, config.CredentialsFile)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return os.Chmod(path, os.FileMode(mode))
}

// repeat writes a line n times to a file, with # standing for the line's number.
func repeat(ts *testscript.TestScript, _ *script, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(args[1], "#", strconv.Itoa(i+1)) + "\n")
	}
	return os.WriteFile(ts.MkAbs(args[2]), []byte(b.String()), 0o600)
}

// unhex writes bytes to a file.
func unhex(ts *testscript.TestScript, _ *script, args []string) error {
	b, err := hex.DecodeString(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile(ts.MkAbs(args[1]), b, 0o600)
}
