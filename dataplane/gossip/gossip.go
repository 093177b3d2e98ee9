package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/fairlead/fairlead/cell"
)

const (
	// updateEvery is how often a changed load is told, and loadStep from which difference on: it is a hint, and costs a packet to everybody.
	updateEvery = 2 * time.Second
	loadStep    = 5 // percent points
	// updateTimeout bounds telling it.
	updateTimeout = time.Second
	// deadMax bounds how many dead agents are remembered, and deadFor for how long: a fleet that replaces its agents makes new names for ever.
	deadMax = 1000
	deadFor = 24 * time.Hour
)

// State is what is thought of an agent.
type State string

// The states. Agents that memberlist suspects are alive here until it has made up its mind, which takes some seconds.
const (
	StateAlive State = "alive"
	StateDead  State = "dead"
	StateLeft  State = "left"
)

// Member is an agent as gossip sees it.
type Member struct {
	Name          string
	Role          string // control, cell or gateway; empty for one of a later version
	Cell          string
	GossipAddress string
	APIAddress    string
	State         State
	LoadPercent   int // a hint of how busy it is
}

// Gossip is this agent's part. Close ends it. Its methods may be called concurrently.
type Gossip struct {
	cfg  Config
	log  *slog.Logger
	list *memberlist.Memberlist
	ring *memberlist.Keyring
	stop chan struct{} // closed by Close
	done chan struct{} // closed when run has ended
	once sync.Once

	mu      sync.Mutex
	self    meta
	told    int // the load that others know
	members map[string]entry
}

type entry struct {
	Member
	since   time.Time // of State
	leaving bool      // it has said that it goes
}

// Open starts gossip and asks the seeds. It returns once it listens, whether or not one of them answered: they are asked again. It returns
// what [Config.Validate] does, a *[cell.FieldError] when what the agent says of itself is too long, and errors of listening.
func Open(cfg Config) (*Gossip, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ring, err := memberlist.NewKeyring(cfg.Keys, cfg.Keys[0])
	if err != nil {
		return nil, fmt.Errorf("gossip keys: %w", err)
	}
	g := &Gossip{
		cfg: cfg, log: cfg.Logger.With("component", "gossip"), ring: ring, stop: make(chan struct{}), done: make(chan struct{}), members: map[string]entry{},
		self: meta{cluster: clusterOf(cfg.Cluster), role: roleOf(cfg.Role), cell: cfg.Cell, api: cfg.APIAddress},
	}
	if _, err := g.self.encode(); err != nil {
		return nil, err
	}
	mc, err := g.listConfig()
	if err != nil {
		return nil, err
	}
	if g.list, err = memberlist.Create(mc); err != nil {
		return nil, fmt.Errorf("gossip on %s: %w", cfg.ListenAddress, err)
	}
	go g.run()
	return g, nil
}

func (g *Gossip) listConfig() (*memberlist.Config, error) {
	mc := memberlist.DefaultLANConfig()
	mc.Name, mc.Label, mc.Keyring, mc.Transport = g.cfg.Name, g.cfg.Cluster, g.ring, g.cfg.Transport
	mc.DeadNodeReclaimTime = reclaimTime
	mc.EnableCompression = false // what is encrypted here has a hundred bytes: there is nothing to gain
	d := delegate{g}
	mc.Delegate, mc.Events, mc.Merge, mc.Alive, mc.Conflict = d, d, d, d, d
	mc.Logger = slog.NewLogLogger(levels{g.log.Handler()}, slog.LevelInfo)
	if g.cfg.Transport != nil {
		return mc, nil
	}
	var err error
	if mc.BindAddr, mc.BindPort, err = hostPort(g.cfg.ListenAddress); err != nil {
		return nil, err
	}
	mc.AdvertisePort = mc.BindPort
	if g.cfg.AdvertiseAddress == "" {
		return mc, nil
	}
	// memberlist takes an address only, and a name is what people have.
	to, err := net.ResolveTCPAddr("tcp", g.cfg.AdvertiseAddress)
	if err != nil {
		return nil, fmt.Errorf("gossip advertise address: %w", err)
	}
	if to.IP == nil {
		return nil, fmt.Errorf("gossip advertise address %q has no host: give one that the other agents reach", g.cfg.AdvertiseAddress)
	}
	mc.AdvertiseAddr, mc.AdvertisePort = to.IP.String(), to.Port
	return mc, nil
}

func hostPort(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("gossip listen address %q: %w", address, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("gossip listen address %q: its port is no number", address)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, int(port), nil
}

// run asks the seeds that are not alive, now and then, and tells of a changed load.
func (g *Gossip) run() {
	defer close(g.done)
	rejoin, update := time.NewTicker(g.cfg.RejoinInterval), time.NewTicker(updateEvery)
	defer rejoin.Stop()
	defer update.Stop()
	g.rejoin()
	for {
		select {
		case <-g.stop:
			return
		case <-rejoin.C:
			g.rejoin()
		case <-update.C:
			g.tell()
		}
	}
}

// rejoin asks every seed that is not seen alive. Its state is exchanged as a whole with each that answers, so that two halves of a cluster
// that have given each other up for dead find each other again.
func (g *Gossip) rejoin() {
	own := g.list.LocalNode().Address()
	alive := map[string]bool{own: true}
	for _, m := range g.Members() {
		if m.State == StateAlive {
			alive[m.GossipAddress] = true
		}
	}
	for _, seed := range g.cfg.Seeds() {
		if seed == "" || alive[seed] || seed == g.cfg.AdvertiseAddress || seed == g.cfg.ListenAddress {
			continue
		}
		if _, err := g.list.Join([]string{seed}); err != nil {
			g.log.Debug("a seed does not answer", "seed", seed, "error", err)
		}
	}
	g.forget(time.Now())
}

// tell lets others know of the load when it is another than they know.
func (g *Gossip) tell() {
	g.mu.Lock()
	changed := g.self.load-g.told >= loadStep || g.told-g.self.load >= loadStep
	if changed {
		g.told = g.self.load
	}
	g.mu.Unlock()
	if !changed {
		return
	}
	if err := g.list.UpdateNode(updateTimeout); err != nil {
		g.log.Debug("the load was not told", "error", err)
	}
}

// forget drops agents that have been dead for long, and the longest dead beyond a number.
func (g *Gossip) forget(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var dead []entry
	for _, e := range g.members { // order-free: they are sorted below
		if e.State != StateAlive {
			dead = append(dead, e)
		}
	}
	slices.SortFunc(dead, func(a, b entry) int { return cmp.Or(a.since.Compare(b.since), strings.Compare(a.Name, b.Name)) })
	for i, e := range dead {
		if len(dead)-i > deadMax || now.Sub(e.since) > deadFor {
			delete(g.members, e.Name)
		}
	}
}

// Members returns the agents that are known, this one among them, in the order of their names.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Member, 0, len(g.members))
	for _, e := range g.members { // order-free: they are sorted below
		out = append(out, e.Member)
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Address returns the host and port by which others reach this agent's gossip.
func (g *Gossip) Address() string { return g.list.LocalNode().Address() }

// SetLoad says how busy this agent is, in percent. Others hear of it within seconds, in steps.
func (g *Gossip) SetLoad(percent int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.self.load = max(0, min(percent, 255))
}

// Rotate makes keys the only ones, the first of which encrypts. The steps are such that agents that are rotated one after the other
// understand each other all the time, in three rounds over all of them: Rotate(old, new), Rotate(new, old), Rotate(new). It returns an error
// and changes nothing when a key has a wrong length, or there is none.
func (g *Gossip) Rotate(keys [][]byte) error {
	if len(keys) == 0 {
		return &cell.FieldError{Field: "gossip keys", Problem: "are missing", Remedy: "give at least one, of 32 bytes"}
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	var errs []error
	for _, k := range keys {
		errs = append(errs, g.ring.AddKey(k))
	}
	errs = append(errs, g.ring.UseKey(keys[0]))
	for _, old := range g.ring.GetKeys() {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return slices.Equal(k, old) }) {
			errs = append(errs, g.ring.RemoveKey(old))
		}
	}
	return errors.Join(errs...)
}

// Leave tells the others that this agent goes on purpose, and returns once the word has gone round, or an error when that takes longer than the
// time-out. Call Close after it whatever it returns.
func (g *Gossip) Leave(timeout time.Duration) error {
	// What memberlist tells of an agent that is gone does not say whether it wanted to go, so that it is said in a message of its own.
	text := append([]byte{messageLeaving}, g.cfg.Name...)
	for _, m := range g.Members() {
		if m.State != StateAlive || m.Name == g.cfg.Name {
			continue
		}
		if err := g.list.SendToAddress(memberlist.Address{Addr: m.GossipAddress, Name: m.Name}, text); err != nil {
			g.log.Debug("an agent was not told that this one leaves", "agent", m.Name, "error", err)
		}
	}
	return g.list.Leave(timeout)
}

// messageLeaving begins the message of an agent that goes; its name follows.
const messageLeaving = 1

// Close ends gossip without a word: others find out. It waits for what is under way.
func (g *Gossip) Close() error {
	g.once.Do(func() { close(g.stop) })
	<-g.done
	return g.list.Shutdown()
}
