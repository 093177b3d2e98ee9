//go:build !linux

package harness

import (
	"os/exec"
	"testing"
)

// Network is a network of the test's own. There is none on this system.
type Network struct{}

// Host is a host of it.
type Host struct {
	// IP is its address.
	IP string
}

// NewNetwork skips the test.
func NewNetwork(tb testing.TB) *Network {
	tb.Helper()
	tb.Skip("network namespaces are Linux's")
	return nil
}

// Host returns a host.
func (n *Network) Host() *Host { return &Host{} }

// Heal does nothing.
func (n *Network) Heal() {}

// Command returns cmd.
func (h *Host) Command(cmd *exec.Cmd) *exec.Cmd { return cmd }

// Refuse does nothing.
func (h *Host) Refuse(...*Host) {}

// Cut does nothing.
func (h *Host) Cut(...*Host) {}

// Network returns a network.
func (h *Host) Network() *Network { return &Network{} }
