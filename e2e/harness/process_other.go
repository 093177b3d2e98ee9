//go:build !unix

package harness

import (
	"errors"
	"os/exec"
	"testing"
)

type signal int

const (
	signalKill signal = iota
	signalTerminate
	signalStop
	signalContinue
)

// NeedSignals skips the test on a platform whose processes cannot be stopped, continued and asked to end.
func NeedSignals(tb testing.TB) {
	tb.Helper()
	tb.Skip("this platform has no SIGSTOP, SIGCONT and SIGTERM")
}

func ownGroup(*exec.Cmd) {}

func signalOne(cmd *exec.Cmd, s signal) error {
	if s == signalKill {
		return cmd.Process.Kill()
	}
	return errors.ErrUnsupported
}

func signalGroup(cmd *exec.Cmd, s signal) { _ = signalOne(cmd, s) } // it fails only where nobody is left
