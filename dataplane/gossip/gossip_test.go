package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/fairlead/fairlead/cell"
)

func secret(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

func address(n int) string { return fmt.Sprintf("10.0.0.%d:7946", n) }

// config is that of agent n at its address, whose seeds are agents 1 and 2.
func config(net *fakeNetwork, n int) Config { return configAt(net, n, n) }

// configAt is that of agent n at the address of another.
func configAt(net *fakeNetwork, n, at int) Config {
	return Config{
		Cluster: "c-1", Name: fmt.Sprintf("agent-%d", n), Role: "cell", Cell: "cell-1", APIAddress: fmt.Sprintf("10.0.0.%d:8000", at),
		Keys: [][]byte{secret(1)}, Seeds: func() []string { return []string{address(1), address(2)} },
		Transport: net.open(address(at)), Logger: slog.New(slog.DiscardHandler),
	}
}

func start(t *testing.T, cfg Config) *Gossip {
	t.Helper()
	g, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func stop(t *testing.T, gs ...*Gossip) {
	t.Helper()
	for _, g := range gs {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// settle lets what memberlist leaves behind come to its end in the bubble.
func settle() { time.Sleep(5 * time.Minute) }

// within looks each second of the bubble's time whether cond holds, and fails when it does not in time.
func within(t *testing.T, bound time.Duration, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(bound); !cond(); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// alive reports whether g sees exactly those agents alive.
func alive(g *Gossip, want ...int) bool {
	var got, names []string
	for _, m := range g.Members() {
		if m.State == StateAlive {
			got = append(got, m.Name)
		}
	}
	for _, n := range want {
		names = append(names, fmt.Sprintf("agent-%d", n))
	}
	slices.Sort(names)
	return slices.Equal(got, names)
}

func member(g *Gossip, n int) Member {
	for _, m := range g.Members() {
		if m.Name == fmt.Sprintf("agent-%d", n) {
			return m
		}
	}
	return Member{}
}

// startAll starts agents 1 to n and waits until all see all.
func startAll(t *testing.T, net *fakeNetwork, n int) []*Gossip {
	t.Helper()
	var gs []*Gossip
	var all []int
	for i := 1; i <= n; i++ {
		gs = append(gs, start(t, config(net, i)))
		all = append(all, i)
	}
	within(t, time.Minute, "all see all", func() bool {
		return !slices.ContainsFunc(gs, func(g *Gossip) bool { return !alive(g, all...) })
	})
	return gs
}

// Agents find each other by the seeds, and know of each what it says of itself.
func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer settle()
		gs := startAll(t, newNetwork(), 5)
		want := Member{
			Name: "agent-3", Role: "cell", Cell: "cell-1", GossipAddress: address(3), APIAddress: "10.0.0.3:8000", State: StateAlive,
		}
		if got := member(gs[4], 3); got != want {
			t.Errorf("%v", got)
		}
		if gs[2].Address() != address(3) {
			t.Errorf("%s", gs[2].Address())
		}
		gs[2].SetLoad(70)
		within(t, 30*time.Second, "the load is known", func() bool { return member(gs[4], 3).LoadPercent == 70 })
		gs[2].SetLoad(1000)
		within(t, 30*time.Second, "a large load is known", func() bool { return member(gs[4], 3).LoadPercent == 255 })
		stop(t, gs...)
	})
}

// An agent that dies is found dead, and one that leaves has left.
func TestDeadAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer settle()
		gs := startAll(t, newNetwork(), 5)
		stop(t, gs[4])
		if err := gs[3].Leave(LeaveTimeoutDefault); err != nil {
			t.Log(err) // the word of it is lost when memberlist refutes a suspicion at that moment: then it is found out
		}
		stop(t, gs[3])
		within(t, 2*time.Minute, "one dead and one left", func() bool {
			return alive(gs[0], 1, 2, 3) && member(gs[0], 5).State == StateDead && member(gs[0], 4).State == StateLeft
		})
		stop(t, gs[:3]...)
	})
}

// Two halves that were apart for so long that each holds the other for dead find each other again. By itself, memberlist would not.
func TestPartitionHeals(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		heals bool
	}{"seeds are asked again": {RejoinIntervalDefault, true}, "seeds are asked once": {24 * time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer settle()
				net := newNetwork()
				var gs []*Gossip
				for i := 1; i <= 4; i++ {
					cfg := config(net, i)
					cfg.RejoinInterval = c.every
					gs = append(gs, start(t, cfg))
				}
				together := func() bool {
					return !slices.ContainsFunc(gs, func(g *Gossip) bool { return !alive(g, 1, 2, 3, 4) })
				}
				within(t, time.Minute, "all see all", together)
				// One seed is on each side: 1 and 3 against 2 and 4.
				net.cut(map[string]int{address(1): 1, address(3): 1})
				time.Sleep(2 * time.Minute)
				if !alive(gs[0], 1, 3) || !alive(gs[1], 2, 4) {
					t.Errorf("apart: %v and %v", gs[0].Members(), gs[1].Members())
				}
				net.cut(nil)
				if c.heals {
					within(t, time.Minute, "they see each other again", together)
				} else if time.Sleep(3 * time.Minute); together() {
					t.Error("memberlist heals by itself now: rejoin is not needed any more")
				}
				stop(t, gs...)
			})
		})
	}
}

// An agent that died without a word is itself again under its name, at another address too.
func TestRestartedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer settle()
		net := newNetwork()
		gs := startAll(t, net, 4)
		stop(t, gs[3])
		cfg := configAt(net, 4, 44)
		again := start(t, cfg)
		within(t, 5*time.Minute, "it is known at its new address", func() bool {
			m := member(gs[2], 4)
			return m.State == StateAlive && m.GossipAddress == address(44) && m.APIAddress == cfg.APIAddress && alive(again, 1, 2, 3, 4)
		})
		stop(t, append(gs[:3], again)...)
	})
}

// At the same address it is itself at once.
func TestRestartedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer settle()
		net := newNetwork()
		gs := startAll(t, net, 4)
		stop(t, gs[3])
		cfg := config(net, 4)
		cfg.APIAddress = "10.0.0.4:9000"
		again := start(t, cfg)
		within(t, time.Minute, "it is known as it is now", func() bool {
			m := member(gs[2], 4)
			return m.State == StateAlive && m.APIAddress == cfg.APIAddress && alive(again, 1, 2, 3, 4)
		})
		stop(t, append(gs[:3], again)...)
	})
}

// Keys are replaced one agent after the other while everybody understands everybody, and the old one is worth nothing afterwards.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer settle()
		net := newNetwork()
		gs := startAll(t, net, 4)
		old, fresh := secret(1), secret(2)
		for _, keys := range [][][]byte{{old, fresh}, {fresh, old}, {fresh}} {
			for _, g := range gs {
				if err := g.Rotate(keys); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				for i, other := range gs {
					if !alive(other, 1, 2, 3, 4) {
						t.Fatalf("agent-%d in between: %v", i+1, other.Members())
					}
				}
			}
		}
		late := start(t, config(net, 5)) // it has the old key only
		time.Sleep(2 * time.Minute)
		if !alive(late, 5) || !alive(gs[0], 1, 2, 3, 4) {
			t.Errorf("with the old key: %v", gs[0].Members())
		}
		if err := late.Rotate([][]byte{fresh}); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "with the new key it is in", func() bool { return alive(gs[0], 1, 2, 3, 4, 5) })
		for name, keys := range map[string][][]byte{"none": nil, "short": {fresh, []byte("short")}} {
			if err := gs[0].Rotate(keys); err == nil {
				t.Errorf("%s: taken", name)
			}
		}
		if !slices.EqualFunc(gs[0].ring.GetKeys(), [][]byte{fresh}, bytes.Equal) {
			t.Error("a refused rotation has changed the keys")
		}
		stop(t, append(gs, late)...)
	})
}

// An agent of another cluster with the same keys and seeds stays outside.
func TestOtherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer settle()
		net := newNetwork()
		gs := startAll(t, net, 3)
		cfg := config(net, 9)
		cfg.Cluster = "c-2"
		stranger := start(t, cfg)
		time.Sleep(3 * time.Minute)
		if !alive(gs[0], 1, 2, 3) || !alive(stranger, 9) {
			t.Errorf("%v and %v", gs[0].Members(), stranger.Members())
		}
		// Nor would it with the same label.
		m := meta{cluster: clusterOf("c-2"), role: roleOf("cell")}
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		d := delegate{gs[0]}
		node := &memberlist.Node{Name: "x", Meta: b}
		if d.NotifyAlive(node) == nil || d.NotifyMerge([]*memberlist.Node{node}) == nil {
			t.Error("an agent of another cluster is taken in")
		}
		if node.Meta = nil; d.NotifyAlive(node) == nil {
			t.Error("an agent that says nothing is taken in")
		}
		stop(t, append(gs, stranger)...)
	})
}

// What an agent says of itself has a bound, which is checked before memberlist would panic, and comes back as it was.
func TestMeta(t *testing.T) {
	m := meta{cluster: clusterOf("c"), role: roleOf("gateway"), load: 99, cell: "x", api: "host.example:8000"}
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeMeta(b); err != nil || got != m {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := decodeMeta(append(b, 1, 2, 3)); err != nil || got != m {
		t.Errorf("of a later version: %v, %v", got, err)
	}
	for i := range b {
		if got, err := decodeMeta(b[:i]); !errors.Is(err, errMeta) {
			t.Errorf("of %d bytes: %v, %v", i, got, err)
		}
	}
	if roleName(200) != "" {
		t.Error("a role of a later version has a name")
	}
	m.api = strings.Repeat("x", MetaBytesMax-metaFixed-2-len(m.cell))
	if b, err := m.encode(); err != nil || len(b) != MetaBytesMax {
		t.Errorf("as long as it may be: %d, %v", len(b), err)
	}
	cfg := config(newNetwork(), 1)
	cfg.APIAddress = strings.Repeat("x", MetaBytesMax)
	var field *cell.FieldError
	if _, err := Open(cfg); !errors.As(err, &field) || field.Field != "gossip meta" {
		t.Errorf("%v", err)
	}
}

func TestValidate(t *testing.T) {
	good := config(newNetwork(), 1)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for word, change := range map[string]func(*Config){
		"cluster": func(c *Config) { c.Cluster = "" },
		"name":    func(c *Config) { c.Name = "a b" },
		"cell":    func(c *Config) { c.Cell = "" },
		"role":    func(c *Config) { c.Role = "boss" },
		"listen":  func(c *Config) { c.Transport = nil },
		"keys":    func(c *Config) { c.Keys = nil },
		"32":      func(c *Config) { c.Keys = [][]byte{[]byte("short")} },
		"rejoin":  func(c *Config) { c.RejoinInterval = -1 },
	} {
		cfg := good
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// Dead agents are remembered for a day, and so many of them.
func TestForget(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	g := &Gossip{members: map[string]entry{"alive": {Member: Member{Name: "alive", State: StateAlive}}}}
	for i := range deadMax + 10 {
		name := fmt.Sprintf("dead-%04d", i)
		g.members[name] = entry{Member: Member{Name: name, State: StateDead}, since: now.Add(time.Duration(i) * time.Second)}
	}
	g.forget(now)
	if _, ok := g.members["dead-0009"]; ok || len(g.members) != deadMax+1 {
		t.Errorf("%d remembered", len(g.members))
	}
	g.forget(now.Add(deadFor + time.Hour))
	if len(g.members) != 1 {
		t.Errorf("%d remembered after a day", len(g.members))
	}
}

// Over real sockets, two agents find each other by what they listen on.
func TestSockets(t *testing.T) {
	cfg := config(newNetwork(), 1)
	cfg.Transport, cfg.ListenAddress, cfg.Seeds = nil, "127.0.0.1:0", nil
	a := start(t, cfg)
	cfg.Name, cfg.RejoinInterval = "agent-2", 50*time.Millisecond
	cfg.Seeds = func() []string { return []string{a.Address()} }
	b := start(t, cfg)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(time.Minute); !alive(a, 1, 2) || !alive(b, 1, 2); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("%v and %v", a.Members(), b.Members())
		}
	}
	stop(t, a, b)
	stop(t, a) // once more does nothing
	for _, advertise := range []string{":7946", "127.0.0.1", "127.0.0.1:x"} {
		cfg.AdvertiseAddress = advertise
		if g, err := Open(cfg); err == nil {
			t.Errorf("%q: taken", advertise)
			stop(t, g)
		}
	}
	cfg.AdvertiseAddress, cfg.ListenAddress = "", "127.0.0.1:many"
	if _, err := Open(cfg); err == nil {
		t.Error("a port that is no number: taken")
	}
}
