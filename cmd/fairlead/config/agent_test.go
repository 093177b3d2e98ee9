package config_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
)

// goodAgent is an agent of a cell with nothing wrong.
func goodAgent() config.Agent {
	a := config.DefaultAgent()
	a.Name, a.Role, a.Cell, a.Control = "cell-a-1", "cell", "cell-a", []string{"control-1:7700"}
	return a
}

// TestAgentFaults: each key is checked, every fault is told with its key, and all of them at once.
func TestAgentFaults(t *testing.T) {
	isolate(t)
	for name, c := range map[string]struct {
		change func(*config.Agent)
		want   []string // beginnings of the faults; none when there is nothing wrong
	}{
		"a cell's":                 {func(*config.Agent) {}, nil},
		"a lone control agent's":   {func(a *config.Agent) { a.Role, a.Cell, a.Control = "control", "", nil }, nil},
		"a gateway's":              {func(a *config.Agent) { a.Role, a.Cell, a.RaftListen = "gateway", "", "" }, nil},
		"a free port":              {func(a *config.Agent) { a.Listen, a.Advertise = "127.0.0.1:0", "127.0.0.1:9" }, nil},
		"an IPv6 address":          {func(a *config.Agent) { a.Listen, a.Advertise = "[::1]:1", "[2001:db8::1]:1" }, nil},
		"no name":                  {func(a *config.Agent) { a.Name = "" }, []string{"agent.name is empty"}},
		"a name that is no host's": {func(a *config.Agent) { a.Name = "a:b" }, []string{"agent.advertise is empty", "agent.raft-advertise is empty", "agent.gossip-advertise is empty"}},
		"no role":                  {func(a *config.Agent) { a.Role = "" }, []string{`agent.role is ""`}},
		"another role":             {func(a *config.Agent) { a.Role = "cel" }, []string{`agent.role is "cel"`}},
		"no cell":                  {func(a *config.Agent) { a.Cell = "" }, []string{"agent.cell is empty"}},
		"a cell too many":          {func(a *config.Agent) { a.Role = "control" }, []string{`agent.cell is "cell-a" for the role control`}},
		"a gateway's log":          {func(a *config.Agent) { a.Role, a.Cell, a.RaftAdvertise = "gateway", "", "a:1" }, []string{"agent.raft-advertise is"}},
		"no directory":             {func(a *config.Agent) { a.Dir = "" }, []string{"agent.dir is empty"}},
		"no port":                  {func(a *config.Agent) { a.Listen = "127.0.0.1" }, []string{`agent.listen "127.0.0.1" is not`}},
		"a large port":             {func(a *config.Agent) { a.RaftListen = ":65536" }, []string{`agent.raft-listen ":65536" has no port`}},
		"a name to listen on": {func(a *config.Agent) { a.GossipListen = "example.com:1" }, []string{
			`agent.gossip-listen "example.com:1" has no address of this machine`,
		}},
		"two ports that are one": {func(a *config.Agent) { a.RaftListen = ":7700" }, []string{`agent.raft-listen is ":7700", and so is agent.listen`}},
		"a free port unsaid":     {func(a *config.Agent) { a.Listen = ":0" }, []string{"agent.advertise is empty, and the port"}},
		"every address":          {func(a *config.Agent) { a.Advertise = "0.0.0.0:7700" }, []string{`agent.advertise "0.0.0.0:7700" is every address`}},
		"no host":                {func(a *config.Agent) { a.Advertise = ":7700" }, []string{`agent.advertise ":7700" has no host`}},
		"port 0 to others":       {func(a *config.Agent) { a.RaftAdvertise = "a:0" }, []string{`agent.raft-advertise "a:0" has no port from 1`}},
		"no control":             {func(a *config.Agent) { a.Control = nil }, []string{"agent.control is empty"}},
		"a token for nobody": {func(a *config.Agent) { a.Role, a.Cell, a.Control, a.JoinTokenFile = "control", "", nil, "f" }, []string{
			"agent.control is empty, and agent.join-token-file is set",
		}},
		"a bad control":    {func(a *config.Agent) { a.Control = []string{"a b:1", "c"} }, []string{`agent.control "a b:1" has a host`, `agent.control "c" is not`}},
		"control twice":    {func(a *config.Agent) { a.Control = []string{"a:1", "a:1"} }, []string{`agent.control has "a:1" twice`}},
		"many control":     {func(a *config.Agent) { a.Control = hosts(8, ":1") }, []string{"agent.control has 8, of at most 7"}},
		"many seeds":       {func(a *config.Agent) { a.GossipSeeds = hosts(33, ":1") }, []string{"agent.gossip-seeds has 33, of at most 32"}},
		"many hosts":       {func(a *config.Agent) { a.Hosts = hosts(17, "") }, []string{"agent.hosts has 17, of at most 16"}},
		"a host's port":    {func(a *config.Agent) { a.Hosts = []string{"a:1"} }, []string{`agent.hosts "a:1" has a host with`}},
		"a bad policy":     {func(a *config.Agent) { a.Policy = "fiof" }, []string{`agent.policy is "fiof"`}},
		"a policy unasked": {func(a *config.Agent) { a.Role, a.Cell, a.Policy = "gateway", "", "fifo" }, []string{`agent.policy is "fifo" for the role gateway`}},
		"whales elsewhere": {func(a *config.Agent) { a.Whales.Auto = true }, []string{"agent.whales.auto is true for the role cell"}},
		"whales":           {func(a *config.Agent) { a.Role, a.Cell, a.Whales.Auto = "control", "", true }, nil},
		"short keys":       {func(a *config.Agent) { a.KeysStaleMax = time.Second }, []string{"agent.keys-stale-max is 1s, outside 5s to"}},
		"hasty wiping":     {func(a *config.Agent) { a.WipeDelay = 0 }, []string{"agent.wipe-delay is 0s, outside 1s to 168h0m0s"}},
		"hours elsewhere":  {func(a *config.Agent) { a.DemandHour = time.Minute }, []string{"agent.demand-hour is 1m0s for the role cell"}},
		"short hours":      {func(a *config.Agent) { a.Role, a.Cell, a.DemandHour = "control", "", time.Second }, nil},
		"hours too short": {func(a *config.Agent) { a.Role, a.Cell, a.DemandHour = "control", "", time.Second-1 }, []string{
			"agent.demand-hour is 999.999999ms, outside 1s to 1h0m0s",
		}},
		"hours too long": {func(a *config.Agent) { a.Role, a.Cell, a.DemandHour = "control", "", time.Hour+1 }, []string{
			"agent.demand-hour is 1h0m0.000000001s, outside 1s to 1h0m0s",
		}},
		"long parking": {func(a *config.Agent) { a.ParkMax = time.Hour }, []string{"agent.park-max is 1h0m0s, outside 0s to 1m0s"}},
		"a bad log": {func(a *config.Agent) { a.LogLevel, a.LogFormat = "loud", "xml" }, []string{
			`agent.log-level is "loud"`, `agent.log-format is "xml"`,
		}},
		"nothing": {func(a *config.Agent) { *a = config.Agent{} }, []string{
			"agent.name is empty", `agent.role is ""`, `agent.listen "" is`, `agent.raft-listen "" is`, `agent.gossip-listen "" is`, "agent.control is empty",
			"agent.keys-stale-max is 0s", "agent.wipe-delay is 0s", "agent.demand-hour is 0s", "agent.dir is empty", `agent.policy is ""`, `agent.log-level is ""`, `agent.log-format is ""`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := goodAgent()
			c.change(&a)
			var got []string
			for _, f := range a.Validate() {
				got = append(got, f.String())
				if f.Remedy == "" {
					t.Errorf("%s says not what to do", f)
				}
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
					t.Errorf("no fault begins with %q:\n%s", want, strings.Join(got, "\n"))
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%d faults, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
		})
	}
}

func hosts(n int, port string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "host-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + port
	}
	return list
}

// TestAgentDerived: what is not set follows from what is.
func TestAgentDerived(t *testing.T) {
	a := goodAgent()
	if a.APIAddress() != "cell-a-1:7700" || a.RaftAddress() != "cell-a-1:7701" || a.GossipAddress() != "cell-a-1:7702" {
		t.Errorf("it is reached by %s, %s, %s", a.APIAddress(), a.RaftAddress(), a.GossipAddress())
	}
	if got := a.Seeds(); !slices.Equal(got, []string{"control-1:7702"}) {
		t.Errorf("gossip begins at %q", got)
	}
	if a.TLSPath() != "fairlead-agent/tls" || !a.HasLog() || !slices.Equal(a.CertificateHosts(), []string{"cell-a-1"}) {
		t.Errorf("%s, %v, %q", a.TLSPath(), a.HasLog(), a.CertificateHosts())
	}
	a.GossipSeeds = []string{"cell-a-1:7702", "seed:1"}
	a.Hosts, a.Advertise, a.TLSDir = []string{"api.example.com"}, "10.0.0.7:7700", "pki"
	if got := a.Seeds(); !slices.Equal(got, []string{"seed:1"}) {
		t.Errorf("gossip begins at itself: %q", got)
	}
	if got := a.CertificateHosts(); !slices.Equal(got, []string{"api.example.com", "10.0.0.7"}) || a.TLSPath() != "pki" {
		t.Errorf("a certificate for %q in %s", got, a.TLSPath())
	}
	a.Role, a.Control = "control", nil
	if got := a.ControlAddresses(); !slices.Equal(got, []string{"10.0.0.7:7700"}) {
		t.Errorf("control is %q", got)
	}
}

// TestAgentReload: for each key by itself, it changes while the agent runs, or is named as one that may not.
func TestAgentReload(t *testing.T) {
	base := goodAgent()
	for _, k := range config.Keys() {
		name, ofAgent := strings.CutPrefix(k.Path, "agent.")
		if !ofAgent {
			continue
		}
		key := k.Path
		t.Run(key, func(t *testing.T) {
			next := goodAgent()
			switch f := field(reflect.ValueOf(&next).Elem(), name); f.Interface().(type) {
			case string:
				f.SetString("other")
			case []string:
				f.Set(reflect.ValueOf([]string{"other:1"}))
			case time.Duration:
				f.Set(reflect.ValueOf(7 * time.Minute))
			case bool:
				f.SetBool(true)
			default:
				t.Fatalf("a key of an unknown kind: %v", f.Kind())
			}
			got, faults := base.Reload(next)
			if slices.Contains(config.ReloadKeys(), key) {
				if len(faults) > 0 || !reflect.DeepEqual(got, next) {
					t.Errorf("it does not change: %v", faults)
				}
				return
			}
			if len(faults) != 1 || faults[0].Key != key || !strings.Contains(faults[0].Remedy, "agent.log-level") || !reflect.DeepEqual(got, base) {
				t.Errorf("it changes, or nothing is said: %v", faults)
			}
		})
	}
	next := goodAgent()
	next.GossipSeeds = []string{}
	if got, faults := base.Reload(next); len(faults) > 0 || !reflect.DeepEqual(got, base) {
		t.Errorf("nothing has changed, and it says %v", faults)
	}
}

// field returns the field that a key names, in v or in a struct in it.
func field(v reflect.Value, key string) reflect.Value {
	name, rest, deeper := strings.Cut(key, ".")
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("mapstructure") == name {
			if deeper {
				return field(v.Field(i), rest)
			}
			return v.Field(i)
		}
	}
	panic("no field for the key " + key)
}
