//go:build unix && !linux

package harness

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a group. There is no way here to have the process end with this one, should this one be killed.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
