//go:build unix

package harness

import (
	"os/exec"
	"syscall"
	"testing"
)

type signal = syscall.Signal

const (
	signalKill      = syscall.SIGKILL
	signalTerminate = syscall.SIGTERM
	signalStop      = syscall.SIGSTOP
	signalContinue  = syscall.SIGCONT
)

// NeedSignals skips the test on a platform whose processes cannot be stopped, continued and asked to end.
func NeedSignals(testing.TB) {}

func signalOne(cmd *exec.Cmd, s signal) error { return cmd.Process.Signal(s) }

// signalGroup reaches what the process started, too. It fails only where nobody is left.
func signalGroup(cmd *exec.Cmd, s signal) { _ = syscall.Kill(-cmd.Process.Pid, s) }
