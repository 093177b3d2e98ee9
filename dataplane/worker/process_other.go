//go:build !unix

package worker

import (
	"context"
	"os/exec"
	"time"
)

func shellCommand(line string) []string { return []string{"cmd", "/C", line} }

func ownGroup(*exec.Cmd) {}

// terminate kills the program when ctx ends before stopped is closed: there is no signal to ask it with.
func terminate(ctx context.Context, cmd *exec.Cmd, _ time.Duration, stopped <-chan struct{}) {
	select {
	case <-stopped:
	case <-ctx.Done():
		_ = cmd.Process.Kill() // it fails only when the program has ended
	}
}

// waitGroup waits for the program and calls ended.
func waitGroup(cmd *exec.Cmd, ended func()) error {
	err := cmd.Wait()
	ended()
	return err
}
