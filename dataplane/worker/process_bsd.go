//go:build unix && !linux

package worker

import (
	"os/exec"
	"syscall"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// waitGroup waits for the program, calls ended and kills what is left of its group. There is no portable way to wait for a program without
// reaping it, so what the group left behind holds the output open until [pipeGrace] is over.
func waitGroup(cmd *exec.Cmd, ended func()) error {
	err := cmd.Wait()
	ended()
	signalGroup(cmd, syscall.SIGKILL)
	return err
}
