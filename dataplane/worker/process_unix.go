//go:build unix

package worker

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

func shellCommand(line string) []string { return []string{"/bin/sh", "-c", line} }

// terminate ends the group of cmd when ctx ends before stopped is closed: politely, and after the grace by force.
func terminate(ctx context.Context, cmd *exec.Cmd, grace time.Duration, stopped <-chan struct{}) {
	select {
	case <-stopped:
		return
	case <-ctx.Done():
	}
	signalGroup(cmd, syscall.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-stopped:
	case <-t.C:
		signalGroup(cmd, syscall.SIGKILL)
	}
}

func signalGroup(cmd *exec.Cmd, sig syscall.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, sig) // it fails only where nobody is left
}
