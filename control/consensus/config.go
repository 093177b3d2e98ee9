package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"
)

// ExitStorage is the exit code of a process whose log or vote store failed (EX_IOERR of sysexits.h).
const ExitStorage = 74

// proposalsMax bounds Config.ProposalsMax: raft takes at most 1,024 entries into one write and has a queue of that length,
// and its own entries need some room in it.
const proposalsMax = 1000

// With a Transport, raft's one number for both also says how many entries go into one message to a lagging replica. A
// message of 1,024 entries of 1 MiB each would be a GiB in the memory of both.
const (
	sentEntriesMax   = 64
	proposalsMaxSent = 40
)

// raftOwnEntries is the room in raft's queue for entries of its own.
const raftOwnEntries = 24

// Peer is one replica of a group as its membership names it.
type Peer struct {
	ID      string // fixed for the life of the replica's directory
	Address string // of its raft port, as the other replicas dial it
	Voter   bool   // whether it counts towards a majority
}

// Transport carries what replicas say to each other. Both directions must be authenticated by whoever provides it: a
// replica does what it is told by any connection.
type Transport interface {
	net.Listener

	// Dial connects to a replica's raft address.
	Dial(address string, timeout time.Duration) (net.Conn, error)
}

// Config is one group's configuration. The zero value of a field takes its default in [Open], except Dir and ID.
type Config struct {
	// Dir is the group's directory, created when missing. One process at a time. Required.
	Dir string

	// ID is this voter's name, fixed for the life of the directory. Required.
	ID string

	// Transport connects the replicas of a group with several. Nil: the group has one voter, in this process, and nothing
	// listens. The group owns it from Open on and closes it, also when Open fails.
	Transport Transport

	// Advertise is the raft address of this replica as the others dial it. Required with a Transport.
	Advertise string

	// Voters are the first members, this replica among them, the same for each of them. They are written once, into an empty
	// directory; a directory that is in use knows its own. Empty with a Transport: the replica waits until a leader adds it.
	Voters []Peer

	// SnapshotBytes is how many bytes of entries may follow a snapshot before the next one is taken. When the last
	// snapshot was larger than this, its size counts instead, so that writing snapshots never costs more than writing the
	// log. Default 64 MiB.
	SnapshotBytes int64

	// SnapshotRetain is how many snapshots are kept. Default 2: the newest and, as a second chance for a person, the one
	// before it. The group itself never falls back to an older one.
	SnapshotRetain int

	// TrailingLogs is how many entries stay behind a snapshot, for replicas that lag a little. An entry is at most
	// EntryBytesMax, so that it bounds bytes too. Default 256.
	TrailingLogs uint64

	// SegmentBytes is the size of the log's files, which are allocated whole. A compaction frees whole files. Default 64 MiB,
	// one per snapshot; at least 64 KiB.
	SegmentBytes int

	// EntryBytesMax is the largest proposal, in bytes. Larger ones end as ErrTooLarge. Default 1 MiB.
	EntryBytesMax int

	// ProposalsMax is how many proposals may be unfinished. Propose waits at it. Default and most 1,000, which is what raft
	// stores in one write; with a Transport 40, for raft sends as many in one message.
	ProposalsMax int

	// WriteDeadline is how long one write to the log or the vote store may last before the process ends. Default 5 s; with a
	// Transport 3 s: until then a leader whose disk hangs keeps the others from taking over.
	WriteDeadline time.Duration

	// ElectionTimeout is how long a replica waits without a leader before it stands for election; a leader without a majority
	// steps down after half of it. Default 1 s with a Transport. With one voter it is the wait at a restart, by default 50 ms.
	// At least 5 ms.
	ElectionTimeout time.Duration

	// Logger receives the group's lines and raft's. Default: slog.Default().
	Logger *slog.Logger

	// OnFatal is called once, from any goroutine, when the store failed or hung or was found corrupt. It must not return
	// to a process that goes on serving. Default: log and os.Exit(ExitStorage).
	OnFatal func(error)
}

// The defaults that differ with a Transport.
const (
	sentElectionTimeout = time.Second
	sentWriteDeadline   = 3 * time.Second
)

// DefaultConfig returns the defaults for a voter named id in dir that is the only one. Those that a Transport changes are
// left to Open when they are set to zero.
func DefaultConfig(dir, id string) Config {
	return Config{
		Dir:             dir,
		ID:              id,
		SnapshotBytes:   64 << 20,
		SnapshotRetain:  2,
		TrailingLogs:    256,
		SegmentBytes:    64 << 20,
		EntryBytesMax:   1 << 20,
		ProposalsMax:    proposalsMax,
		WriteDeadline:   5 * time.Second,
		ElectionTimeout: 50 * time.Millisecond,
	}
}

// withDefaults fills in what was left zero.
func (c Config) withDefaults() Config {
	d := DefaultConfig(c.Dir, c.ID)
	if c.Transport != nil {
		d.ElectionTimeout, d.WriteDeadline, d.ProposalsMax = sentElectionTimeout, sentWriteDeadline, proposalsMaxSent
	}
	orDefault(&c.SnapshotBytes, d.SnapshotBytes)
	orDefault(&c.SnapshotRetain, d.SnapshotRetain)
	orDefault(&c.TrailingLogs, d.TrailingLogs)
	orDefault(&c.SegmentBytes, d.SegmentBytes)
	orDefault(&c.EntryBytesMax, d.EntryBytesMax)
	orDefault(&c.ProposalsMax, d.ProposalsMax)
	orDefault(&c.WriteDeadline, d.WriteDeadline)
	orDefault(&c.ElectionTimeout, d.ElectionTimeout)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.OnFatal == nil {
		logger := c.Logger
		c.OnFatal = func(err error) {
			logger.Error("the replicated log cannot go on; ending the process", "error", err)
			os.Exit(ExitStorage)
		}
	}
	return c
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every fault of the configuration at once, after defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(c.Dir == "", "dir is empty: name the group's directory")
	fault(c.ID == "", "id is empty: name this voter")
	fault(len(c.ID) > 128, "id is %d bytes, at most 128", len(c.ID))
	fault(c.SnapshotBytes < 4<<10, "snapshot bytes is %d, at least 4096", c.SnapshotBytes)
	fault(c.SnapshotRetain < 1, "snapshot retain is %d, at least 1", c.SnapshotRetain)
	fault(c.SegmentBytes < 64<<10 || c.SegmentBytes > 1<<30, "segment bytes is %d, between 65536 and 1073741824", c.SegmentBytes)
	fault(c.EntryBytesMax < 1 || c.EntryBytesMax > 16<<20, "entry bytes max is %d, between 1 and 16777216", c.EntryBytesMax)
	most := proposalsMax
	if c.Transport != nil {
		most = proposalsMaxSent
	}
	fault(c.ProposalsMax < 1 || c.ProposalsMax > most, "proposals max is %d, between 1 and %d", c.ProposalsMax, most)
	fault(c.WriteDeadline < time.Millisecond, "write deadline is %s, at least 1ms", c.WriteDeadline)
	fault(c.ElectionTimeout < 5*time.Millisecond, "election timeout is %s, at least 5ms", c.ElectionTimeout)
	return errors.Join(append(faults, c.validatePeers()...)...)
}

// validatePeers reports the faults of what makes a group of several.
func (c Config) validatePeers() (faults []error) {
	if c.Transport == nil {
		if len(c.Voters) > 0 || c.Advertise != "" {
			faults = append(faults, errors.New("voters or advertise without a transport: a group of several needs one"))
		}
		return faults
	}
	if c.Advertise == "" {
		faults = append(faults, errors.New("advertise is empty: say how the other replicas dial this one"))
	}
	ids, addresses := make(map[string]bool), make(map[string]bool)
	for i, p := range c.Voters {
		switch {
		case p.ID == "" || len(p.ID) > 128 || p.Address == "":
			faults = append(faults, fmt.Errorf("voters[%d] is %q at %q: give an id of 1 to 128 bytes and an address", i, p.ID, p.Address))
		case ids[p.ID] || addresses[p.Address]:
			faults = append(faults, fmt.Errorf("voters[%d] repeats the id %q or the address %q", i, p.ID, p.Address))
		}
		ids[p.ID], addresses[p.Address] = true, true
	}
	if len(c.Voters) > 0 && !slices.ContainsFunc(c.Voters, func(p Peer) bool { return p.ID == c.ID && p.Voter }) {
		faults = append(faults, fmt.Errorf("voters do not name %q: a replica that is added later starts without", c.ID))
	}
	return faults
}
