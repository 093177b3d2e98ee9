package worker

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrAddressRefused is returned when a URL leads to an address that [HTTP] does not connect to.
var ErrAddressRefused = errors.New("address refused")

// addressRange is a range of addresses that is not the public internet.
type addressRange struct {
	prefix  netip.Prefix
	what    string
	private bool // opened by HTTPConfig.AllowPrivate
}

// addressRanges are from IANA's registries of special-purpose addresses and, for the hosts' metadata, from the clouds' manuals. Whoever
// reaches a metadata service has the machine's credentials, so nothing opens those. The first match counts.
func addressRanges() []addressRange {
	p := netip.MustParsePrefix
	return []addressRange{
		{p("169.254.169.254/32"), "cloud metadata", false},
		{p("100.100.100.200/32"), "cloud metadata", false},
		{p("168.63.129.16/32"), "cloud metadata", false},
		{p("192.0.0.192/32"), "cloud metadata", false},
		{p("fd00:ec2::254/128"), "cloud metadata", false},
		{p("fd20:ce::254/128"), "cloud metadata", false},
		{p("0.0.0.0/8"), "unspecified", false},
		{p("127.0.0.0/8"), "loopback", true},
		{p("10.0.0.0/8"), "private", true},
		{p("172.16.0.0/12"), "private", true},
		{p("192.168.0.0/16"), "private", true},
		{p("100.64.0.0/10"), "shared by carriers", true},
		{p("169.254.0.0/16"), "link-local", false},
		{p("192.0.0.0/24"), "reserved", false},
		{p("192.0.2.0/24"), "for documentation", false},
		{p("198.18.0.0/15"), "for benchmarks", false},
		{p("198.51.100.0/24"), "for documentation", false},
		{p("203.0.113.0/24"), "for documentation", false},
		{p("224.0.0.0/4"), "multicast", false},
		{p("240.0.0.0/4"), "reserved", false},
		{p("::1/128"), "loopback", true},
		{p("::/96"), "unspecified", false},
		{p("fc00::/7"), "private", true},
		{p("fe80::/10"), "link-local", false},
		{p("fec0::/10"), "site-local", false},
		{p("ff00::/8"), "multicast", false},
		{p("100::/64"), "reserved", false},
		{p("2001::/23"), "reserved", false},
		{p("2001:db8::/32"), "for documentation", false},
		{p("3fff::/20"), "for documentation", false},
		{p("64:ff9b:1::/48"), "private translation", false},
	}
}

// addressGuard decides which addresses may be connected to.
type addressGuard struct {
	ranges       []addressRange
	allowPrivate bool
}

// check returns an error that wraps [ErrAddressRefused] unless a may be connected to. An address that carries an IPv4 address in it is judged
// as that one too: it may be translated on the way.
func (g addressGuard) check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return fmt.Errorf("%w: not an address", ErrAddressRefused)
	}
	for _, r := range g.ranges {
		if !r.prefix.Contains(a) {
			continue
		}
		if r.private && g.allowPrivate {
			return nil
		}
		if r.private {
			return fmt.Errorf("%w: %s is %s; allow private addresses if it is meant", ErrAddressRefused, a, r.what)
		}
		return fmt.Errorf("%w: %s is %s", ErrAddressRefused, a, r.what)
	}
	if v4, ok := embeddedIPv4(a); ok {
		return g.check(v4)
	}
	return nil
}

// embeddedIPv4 returns the IPv4 address inside a: of NAT64 (RFC 6052) and 6to4 (RFC 3056).
func embeddedIPv4(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	default:
		return netip.Addr{}, false
	}
}
