package worker

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitGroup waits for the program, calls ended, kills what is left of its group, and reaps it. Reaping comes last: until then nobody else
// can get the group's number.
func waitGroup(cmd *exec.Cmd, ended func()) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	ended()
	signalGroup(cmd, syscall.SIGKILL)
	return cmd.Wait()
}
