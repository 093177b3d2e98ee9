//go:build unix

package localcluster

import (
	"os/exec"
	"syscall"
)

// apart gives the child a process group of its own: a terminal's Ctrl-C is for the parent, which ends its children in order.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
