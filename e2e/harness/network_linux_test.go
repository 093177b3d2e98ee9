package harness

import (
	"os/exec"
	"testing"
)

// Hosts reach each other, a cut in one direction is one, and a healed network is whole.
func TestNetworkCutsAndHeals(t *testing.T) {
	n := NewNetwork(t)
	a, b := n.Host(), n.Host()
	// A connection that is refused has reached the host; one that is cut off hangs.
	reaches := func(from, to *Host) bool {
		cmd := from.Command(exec.CommandContext(t.Context(), "ip", "-V"))
		cmd.Args = append(cmd.Args[:4], "bash", "-c", "timeout 0.5 bash -c ': > /dev/tcp/"+to.IP+"/9'")
		err := cmd.Run()
		exit, ok := err.(*exec.ExitError) //nolint:errorlint // nothing wraps it
		return ok && exit.ExitCode() == 1
	}
	if !reaches(a, b) || !reaches(b, a) {
		t.Fatal("two hosts of one network do not reach each other")
	}
	b.Cut(a)
	if reaches(a, b) {
		t.Fatal("a packet passed a cut")
	}
	n.Heal()
	if !reaches(a, b) || !reaches(b, a) {
		t.Fatal("a healed network is not whole")
	}
}
