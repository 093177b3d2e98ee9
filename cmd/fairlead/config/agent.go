package config

import (
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/placement"
)

// Agent says how fairlead agent runs one role of a cluster.
type Agent struct {
	// Name is the agent's, and no other agent of the cluster has it. Required.
	Name string `mapstructure:"name"`
	// Role is control, cell or gateway. Required.
	Role string `mapstructure:"role"`
	// Cell is the cell that the agent is a replica of. For the role cell, and required there.
	Cell string `mapstructure:"cell"`
	// Dir is the state directory; it is made when it is missing. Default ./fairlead-agent.
	Dir string `mapstructure:"dir"`
	// Listen is the address and port of the API. Default :7700; port 0 takes a free one, and then Advertise is needed.
	Listen string `mapstructure:"listen"`
	// Advertise is the host and port that the other agents reach the API by. Default the agent's name with the port of Listen.
	Advertise string `mapstructure:"advertise"`
	// RaftListen is the address and port of the log; for the roles control and cell. Default :7701.
	RaftListen string `mapstructure:"raft-listen"`
	// RaftAdvertise is the host and port that the other replicas reach the log by. Default the agent's name with the port of RaftListen.
	RaftAdvertise string `mapstructure:"raft-advertise"`
	// GossipListen is the address and port of gossip, UDP and TCP. Default :7702.
	GossipListen string `mapstructure:"gossip-listen"`
	// GossipAdvertise is the host and port that the other agents reach gossip by. Default the agent's name with the port of GossipListen.
	GossipAdvertise string `mapstructure:"gossip-advertise"`
	// Control are the hosts and ports of the control agents' APIs. Required, but for a control agent that is the only one. At most 7.
	Control []string `mapstructure:"control"`
	// GossipSeeds are the hosts and ports of gossip to begin with. Default the hosts of Control with the port of GossipListen. At most 32.
	GossipSeeds []string `mapstructure:"gossip-seeds"`
	// TLSDir holds the agent's certificate and keys. Default tls in Dir.
	TLSDir string `mapstructure:"tls-dir"`
	// JoinTokenFile holds the token that gets the agent its certificate when TLSDir has none.
	JoinTokenFile string `mapstructure:"join-token-file"`
	// Hosts are the names and addresses that users reach the agent by: a certificate that it joins for is good for them, beside the host of
	// Advertise. At most 16.
	Hosts []string `mapstructure:"hosts"`
	// Policy is how the cell schedules and charges: fairlead, fifo to compare with, or a policy file. For the role cell. Default fairlead.
	Policy string `mapstructure:"policy"`
	// KeysStaleMax is how long a gateway that control does not reach serves the keys it knows. Default 1 h.
	KeysStaleMax time.Duration `mapstructure:"keys-stale-max"`
	// ParkMax is how long a gateway holds a request whose cell has no leader. Default 5 s.
	ParkMax time.Duration `mapstructure:"park-max"`
	// Whales says what control does about tenants that are too large for a pool. For the role control.
	Whales Whales `mapstructure:"whales"`
	// WipeDelay is how long the source of a migration that was completed keeps what it had. For the role control. Default 10 min.
	WipeDelay time.Duration `mapstructure:"wipe-delay"`
	// DemandHour is how long an hour of demand is, by which tenants are measured and whales are found: less than an hour for demonstrations and tests only.
	// For the role control, and the same for each control agent, from the first start of the cluster on. Default 1 h.
	DemandHour time.Duration `mapstructure:"demand-hour"`
	// LogLevel is the least level that is logged. Default info.
	LogLevel string `mapstructure:"log-level"`
	// LogFormat is text or json. Default text.
	LogFormat string `mapstructure:"log-format"`
}

// Whales says what control does about tenants that are too large for a pool.
type Whales struct {
	// Auto lets control begin a migration by itself for a tenant that placement calls a whale, when an open dedicated cell is its own and nothing is in
	// it. Otherwise it proposes it in fairlead placement plan. Default false.
	Auto bool `mapstructure:"auto"`
}

// The defaults and bounds of an agent.
const (
	DefaultAgentDir      = "./fairlead-agent"
	DefaultAgentListen   = ":7700"
	DefaultRaftListen    = ":7701"
	DefaultGossipListen  = ":7702"
	DefaultKeysStaleMax  = time.Hour
	DefaultParkMax       = 5 * time.Second
	DefaultWipeDelay     = 10 * time.Minute
	DefaultDemandHour    = time.Duration(placement.HourMax)
	keysStaleMin         = 5 * time.Second // a heartbeat comes each second: less would refuse keys for a hiccup
	keysStaleMax         = 7 * 24 * time.Hour
	parkMaxMax           = time.Minute
	wipeDelayMin         = time.Second
	wipeDelayMax         = 7 * 24 * time.Hour
	controlMax           = 7 // five voters, and two on their way in
	gossipSeedsMax       = 32
	agentHostsMax        = 16
	roleControl          = "control"
	roleCell             = "cell"
	roleGateway          = "gateway"
	agentSection         = "agent."
	tlsDirBelow          = "tls"
	remedyAddress        = "give an address and a port, such as 10.0.0.7:7700, or :7700 for every address"
	remedyAdvertise      = "give what the other agents reach it by, such as agent-1.example.com:7700"
	remedyOnlyCell       = "leave it out, or use the role cell"
	remedyControlMissing = "name the control agents, as in --control control-1:7700"
)

// AgentRoles lists the roles of an agent.
func AgentRoles() []string { return []string{roleControl, roleCell, roleGateway} }

// DefaultAgent returns the defaults.
func DefaultAgent() Agent {
	return Agent{
		Dir: DefaultAgentDir, Listen: DefaultAgentListen, RaftListen: DefaultRaftListen, GossipListen: DefaultGossipListen, Policy: DefaultPolicy,
		KeysStaleMax: DefaultKeysStaleMax, ParkMax: DefaultParkMax, WipeDelay: DefaultWipeDelay, DemandHour: DefaultDemandHour, LogLevel: DefaultLogLevel, LogFormat: DefaultLogFormat,
	}
}

// HasLog reports whether an agent of this role is a replica of a log.
func (a Agent) HasLog() bool { return a.Role == roleControl || a.Role == roleCell }

// TLSPath returns where the agent's certificate and keys are.
func (a Agent) TLSPath() string {
	if a.TLSDir != "" {
		return a.TLSDir
	}
	return filepath.Join(a.Dir, tlsDirBelow)
}

// APIAddress returns what the other agents reach the API by, derived where it is not set.
func (a Agent) APIAddress() string { return a.advertised(a.Advertise, a.Listen) }

// RaftAddress returns what the other replicas reach the log by.
func (a Agent) RaftAddress() string { return a.advertised(a.RaftAdvertise, a.RaftListen) }

// GossipAddress returns what the other agents reach gossip by.
func (a Agent) GossipAddress() string { return a.advertised(a.GossipAdvertise, a.GossipListen) }

func (a Agent) advertised(advertise, listen string) string {
	if advertise != "" {
		return advertise
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(a.Name, port)
}

// ControlAddresses returns the control agents' APIs: the agent's own when it is a control agent that knows no other.
func (a Agent) ControlAddresses() []string {
	if len(a.Control) == 0 && a.Role == roleControl {
		return []string{a.APIAddress()}
	}
	return slices.Clone(a.Control)
}

// Seeds returns where gossip begins, without the agent itself.
func (a Agent) Seeds() []string {
	seeds := slices.Clone(a.GossipSeeds)
	if len(seeds) == 0 {
		_, port, err := net.SplitHostPort(a.GossipListen)
		for _, c := range a.Control {
			if host, _, bad := net.SplitHostPort(c); bad == nil && err == nil {
				seeds = append(seeds, net.JoinHostPort(host, port))
			}
		}
	}
	own := a.GossipAddress()
	return slices.DeleteFunc(seeds, func(s string) bool { return s == own })
}

// CertificateHosts returns the names and addresses that a certificate of the agent has to be good for.
func (a Agent) CertificateHosts() []string {
	hosts := slices.Clone(a.Hosts)
	if host, _, err := net.SplitHostPort(a.APIAddress()); err == nil && !slices.Contains(hosts, host) {
		hosts = append(hosts, host)
	}
	return hosts
}

// ReadPolicy returns the policy that Policy names, as [Dev.ReadPolicy] does.
func (a Agent) ReadPolicy() (policy.File, []Fault) {
	return readPolicy(agentSection+"policy", a.Policy)
}

// Validate returns every fault, those of a policy file included.
func (a Agent) Validate() []Fault {
	faults := slices.Concat(a.validateWho(), a.validateAddresses(), a.validateLists(), a.validateBounds())
	if a.Dir == "" {
		faults = append(faults, faultf("agent.dir", "give a directory such as "+DefaultAgentDir, "is empty"))
	}
	if _, f := a.ReadPolicy(); a.Role == roleCell || a.Role == "" {
		faults = append(faults, f...)
	} else if a.Policy != DefaultPolicy {
		faults = append(faults, faultf("agent.policy", remedyOnlyCell, "is %.100q for the role %.40s", a.Policy, a.Role))
	}
	elsewhere := slices.Contains([]string{roleCell, roleGateway}, a.Role)
	if a.Whales.Auto && elsewhere {
		faults = append(faults, faultf("agent.whales.auto", "leave it out, or use the role control", "is true for the role %s", a.Role))
	}
	if a.DemandHour != DefaultDemandHour && elsewhere {
		faults = append(faults, faultf("agent.demand-hour", "leave it out, or use the role control", "is %v for the role %s", a.DemandHour, a.Role))
	}
	return append(faults, validateLog("agent", a.LogLevel, a.LogFormat)...)
}

func (a Agent) validateWho() []Fault {
	var faults []Fault
	if err := cell.CheckID("agent.name", a.Name); err != nil {
		faults = append(faults, fieldFault(err))
	}
	if !slices.Contains(AgentRoles(), a.Role) {
		faults = append(faults, enumFault("agent.role", a.Role, AgentRoles()))
		return faults
	}
	switch {
	case a.Role == roleCell:
		if _, err := cell.ParseCellID("agent.cell", a.Cell); err != nil {
			faults = append(faults, fieldFault(err))
		}
	case a.Cell != "":
		faults = append(faults, faultf("agent.cell", remedyOnlyCell, "is %.40q for the role %s", a.Cell, a.Role))
	}
	if a.Role == roleGateway && a.RaftAdvertise != "" {
		faults = append(faults, faultf("agent.raft-advertise", "leave it out: a gateway has no log", "is %.100q for the role gateway", a.RaftAdvertise))
	}
	return faults
}

func (a Agent) validateAddresses() []Fault {
	var faults []Fault
	for _, p := range []struct{ key, listen, advertise string }{
		{"", a.Listen, a.Advertise}, {"raft-", a.RaftListen, a.RaftAdvertise}, {"gossip-", a.GossipListen, a.GossipAdvertise},
	} {
		if p.key == "raft-" && a.Role == roleGateway {
			continue
		}
		key := agentSection + p.key
		port, problem := checkListen(p.listen)
		if problem != "" {
			faults = append(faults, faultf(key+"listen", remedyAddress, "%.100q %s", p.listen, problem))
		}
		switch {
		case p.advertise != "":
			if problem := checkHostPort(p.advertise); problem != "" {
				faults = append(faults, faultf(key+"advertise", remedyAdvertise, "%.100q %s", p.advertise, problem))
			}
		case problem == "" && port == 0:
			faults = append(faults, faultf(key+"advertise", remedyAdvertise, "is empty, and the port of %slisten is 0: nobody would know it", key))
		case cell.CheckID("", a.Name) == nil && strings.ContainsAny(a.Name, ":_"):
			faults = append(faults, faultf(key+"advertise", remedyAdvertise, "is empty, and the name %.100q cannot be a host's", a.Name))
		}
	}
	return append(faults, a.validateApart()...)
}

// validateApart finds two ports that are one.
func (a Agent) validateApart() []Fault {
	type port struct{ key, listen string }
	ports := []port{{"agent.listen", a.Listen}, {"agent.gossip-listen", a.GossipListen}}
	if a.HasLog() {
		ports = append(ports, port{"agent.raft-listen", a.RaftListen})
	}
	var faults []Fault
	for i, p := range ports {
		for _, q := range ports[:i] {
			if n, problem := checkListen(p.listen); problem == "" && n != 0 && p.listen == q.listen {
				faults = append(faults, faultf(p.key, "give each a port of its own", "is %.100q, and so is %s", p.listen, q.key))
			}
		}
	}
	return faults
}

// checkListen returns the port of an address to listen on, or says what is wrong with it.
func checkListen(s string) (port uint64, problem string) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return 0, "is not an address and a port"
	}
	if host != "" && net.ParseIP(host) == nil && host != "localhost" {
		return 0, "has no address of this machine"
	}
	if port, err = strconv.ParseUint(text, 10, 16); err != nil {
		return 0, "has no port from 0 to 65535"
	}
	return port, ""
}

// checkHostPort says what is wrong with s as the host and port of another machine, or returns the empty text.
func checkHostPort(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "is not a host and a port"
	}
	if problem := checkHost(host); problem != "" {
		return problem
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "has no port from 1 to 65535"
	}
	return ""
}

// checkHost says what is wrong with an address or a name of a host.
func checkHost(host string) string {
	ip := net.ParseIP(host)
	switch {
	case host == "":
		return "has no host"
	case ip != nil && ip.IsUnspecified():
		return "is every address and not one that others can reach"
	case ip == nil && (len(host) > 253 || strings.ContainsFunc(host, notOfHost)):
		return "has a host with a character that no name has"
	}
	return ""
}

func notOfHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
}

func (a Agent) validateLists() []Fault {
	var faults []Fault
	for _, l := range []struct {
		key   string
		items []string
		most  int
		check func(string) string
	}{
		{"agent.control", a.Control, controlMax, checkHostPort},
		{"agent.gossip-seeds", a.GossipSeeds, gossipSeedsMax, checkHostPort},
		{"agent.hosts", a.Hosts, agentHostsMax, checkHost},
	} {
		if len(l.items) > l.most {
			faults = append(faults, faultf(l.key, "name fewer", "has %d, of at most %d", len(l.items), l.most))
		}
		for i, item := range l.items {
			if problem := l.check(item); problem != "" {
				faults = append(faults, faultf(l.key, "give it as control-1.example.com:7700; for hosts without a port", "%.100q %s", item, problem))
			}
			if slices.Contains(l.items[:i], item) {
				faults = append(faults, faultf(l.key, "leave one", "has %.100q twice", item))
			}
		}
	}
	if len(a.Control) == 0 && a.Role != roleControl {
		faults = append(faults, faultf("agent.control", remedyControlMissing, "is empty"))
	}
	if len(a.Control) == 0 && a.JoinTokenFile != "" && a.Role == roleControl {
		faults = append(faults, faultf("agent.control", remedyControlMissing, "is empty, and agent.join-token-file is set: somebody has to take the token"))
	}
	return faults
}

func (a Agent) validateBounds() []Fault {
	var faults []Fault
	if a.KeysStaleMax < keysStaleMin || a.KeysStaleMax > keysStaleMax {
		faults = append(faults, faultf("agent.keys-stale-max", "give a duration such as 1h", "is %v, outside %v to %v", a.KeysStaleMax, keysStaleMin, keysStaleMax))
	}
	if a.WipeDelay < wipeDelayMin || a.WipeDelay > wipeDelayMax {
		faults = append(faults, faultf("agent.wipe-delay", "give a duration such as 10m", "is %v, outside %v to %v", a.WipeDelay, wipeDelayMin, wipeDelayMax))
	}
	if least := time.Duration(placement.HourMin); a.DemandHour < least || a.DemandHour > DefaultDemandHour {
		faults = append(faults, faultf("agent.demand-hour", "leave it at 1h; a demonstration may give seconds", "is %v, outside %v to %v", a.DemandHour, least, DefaultDemandHour))
	}
	if a.ParkMax < 0 || a.ParkMax > parkMaxMax {
		faults = append(faults, faultf("agent.park-max", "give a duration such as 5s", "is %v, outside 0s to %v", a.ParkMax, parkMaxMax))
	}
	return faults
}

// ReloadKeys lists what may change while the agent runs. The certificate and the keys in TLSDir are read again as well.
func ReloadKeys() []string { return []string{"agent.control", "agent.gossip-seeds", "agent.log-level"} }

// Reload returns the configuration with what of next may change while the agent runs, and a fault for each key that differs and may not. next has
// been validated.
func (a Agent) Reload(next Agent) (Agent, []Fault) {
	out, faults := a, []Fault(nil)
	was, wants, becomes := reflect.ValueOf(a), reflect.ValueOf(next), reflect.ValueOf(&out).Elem()
	for _, k := range Keys() {
		if !strings.HasPrefix(k.Path, agentSection) {
			continue
		}
		at := k.index[1:] // below the agent's own place in [Config]
		switch old, wanted := was.FieldByIndex(at), wants.FieldByIndex(at); {
		case same(old, wanted):
		case slices.Contains(ReloadKeys(), k.Path):
			becomes.FieldByIndex(at).Set(wanted)
		default:
			faults = append(faults, faultf(k.Path, fmt.Sprintf("restart the agent; what can change while it runs is %s", strings.Join(ReloadKeys(), ", ")),
				"cannot change from %.100q to %.100q while the agent runs", text(old), text(wanted)))
		}
	}
	return out, faults
}

// same reports whether two values of one key are equal; a list that is empty is as one that is not there.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
