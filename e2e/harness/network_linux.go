package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// Network is a bridge of this machine with hosts on it: network namespaces that the test made, each with an address of its own, whose links can
// be cut in either direction. Everything is gone when the test ends. Its methods are for one goroutine at a time.
type Network struct {
	tb     testing.TB
	prefix string // of every name in the kernel: it has room for 15 bytes
	subnet int
	hosts  []*Host
}

// Host is one network namespace.
type Host struct {
	net  *Network
	name string
	// IP is its address on the bridge.
	IP string
}

// networks numbers the networks of this process: two tests never share an address.
var networks atomic.Int64

// NewNetwork returns a network without hosts. It skips the test where namespaces cannot be made: without root, or without ip and nft.
func NewNetwork(tb testing.TB) *Network {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("network namespaces need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			tb.Skipf("network namespaces need %s: install iproute2 and nftables", tool)
		}
	}
	n := &Network{tb: tb, subnet: (os.Getpid() + int(networks.Add(1))) % 200} // test binaries run beside each other
	n.prefix = fmt.Sprintf("fl%x", os.Getpid()&0xffff)
	// The bridge has a namespace of its own: this machine's firewall, which may drop what is forwarded, does not hold there.
	if out, err := exec.CommandContext(tb.Context(), "ip", "netns", "add", n.hub()).CombinedOutput(); err != nil {
		tb.Skipf("network namespaces cannot be made here: %v: %s", err, out)
	}
	tb.Cleanup(n.remove)
	n.ip("-n", n.hub(), "link", "add", bridge, "type", "bridge")
	n.ip("-n", n.hub(), "link", "set", bridge, "up")
	n.ip("link", "add", n.link(), "type", "veth", "peer", "name", "up0", "netns", n.hub())
	n.ip("-n", n.hub(), "link", "set", "up0", "master", bridge, "up")
	n.ip("addr", "add", fmt.Sprintf("10.231.%d.254/24", n.subnet), "dev", n.link())
	n.ip("link", "set", n.link(), "up")
	return n
}

const bridge = "br0"

// hub names the namespace of the bridge, and link what joins this machine to it.
func (n *Network) hub() string  { return fmt.Sprintf("%sn%dhub", n.prefix, n.subnet) }
func (n *Network) link() string { return fmt.Sprintf("%sv%d", n.prefix, n.subnet) }

// Host adds a host.
func (n *Network) Host() *Host {
	n.tb.Helper()
	i := len(n.hosts) + 1
	h := &Host{net: n, name: fmt.Sprintf("%sn%dh%d", n.prefix, n.subnet, i), IP: fmt.Sprintf("10.231.%d.%d", n.subnet, i)}
	n.hosts = append(n.hosts, h)
	outer := fmt.Sprintf("h%d", i)
	n.ip("netns", "add", h.name)
	n.ip("-n", n.hub(), "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", h.name)
	n.ip("-n", n.hub(), "link", "set", outer, "master", bridge, "up")
	n.ip("-n", h.name, "addr", "add", h.IP+"/24", "dev", "eth0")
	n.ip("-n", h.name, "link", "set", "lo", "up")
	n.ip("-n", h.name, "link", "set", "eth0", "up")
	h.nft("add table inet fairlead; add chain inet fairlead in { type filter hook input priority 0; }")
	return h
}

// Command returns cmd as it runs on the host.
func (h *Host) Command(cmd *exec.Cmd) *exec.Cmd {
	args := append([]string{"netns", "exec", h.name, cmd.Path}, cmd.Args[1:]...)
	in := exec.CommandContext(h.net.tb.Context(), "ip", args...)
	in.Dir, in.Env = cmd.Dir, cmd.Env
	return in
}

// Refuse drops what arrives at the host from the others: a cut in one direction.
func (h *Host) Refuse(others ...*Host) {
	h.net.tb.Helper()
	for _, o := range others {
		h.nft("add rule inet fairlead in ip saddr " + o.IP + " drop")
	}
}

// Cut drops what goes between the host and the others, in both directions.
func (h *Host) Cut(others ...*Host) {
	h.net.tb.Helper()
	h.Refuse(others...)
	for _, o := range others {
		o.Refuse(h)
	}
}

// Heal ends every cut of the network.
func (n *Network) Heal() {
	n.tb.Helper()
	for _, h := range n.hosts {
		h.nft("flush chain inet fairlead in")
	}
}

func (h *Host) nft(script string) {
	h.net.tb.Helper()
	h.net.ip("netns", "exec", h.name, "nft", script)
}

func (n *Network) ip(args ...string) {
	n.tb.Helper()
	out, err := exec.CommandContext(n.tb.Context(), "ip", args...).CombinedOutput()
	if err != nil {
		n.tb.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// remove takes everything down. The links go with their namespaces.
func (n *Network) remove() {
	names := []string{n.hub()}
	for _, h := range n.hosts {
		names = append(names, h.name)
	}
	ctx := context.WithoutCancel(n.tb.Context()) // which has ended when a test is cleaned up after
	for _, name := range names {
		if out, err := exec.CommandContext(ctx, "ip", "netns", "del", name).CombinedOutput(); err != nil {
			n.tb.Logf("removing %s: %v: %s", name, err, out)
		}
	}
}

// Network returns the network that the host is on.
func (h *Host) Network() *Network { return h.net }
