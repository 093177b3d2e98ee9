package command

import (
	"crypto/sha256"
	"fmt"
	"math"

	"github.com/fairlead/fairlead/cell"
)

// Bounds of agents and join tokens.
const (
	// AddressBytesMax bounds a host and a port: the longest name of a host has 253 bytes.
	AddressBytesMax = 260
	// JoinTokenLifetimeMax bounds how long a join token may be used.
	JoinTokenLifetimeMax = 24 * 3600 * 1e9
)

// AgentName names an agent for as long as it is part of the cluster: its certificate, its log's votes and its record all say it.
type AgentName string

// Role is what an agent does in a cluster. The numbers are part of control's log format.
type Role uint8

// The roles.
const (
	RoleControl Role = 1
	RoleCell    Role = 2
	RoleGateway Role = 3
)

// Roles lists every role.
func Roles() []Role { return []Role{RoleControl, RoleCell, RoleGateway} }

func (r Role) String() string {
	switch r {
	case RoleControl:
		return "control"
	case RoleCell:
		return "cell"
	case RoleGateway:
		return "gateway"
	default:
		return fmt.Sprintf("role(%d)", uint8(r))
	}
}

// ParseRole returns the role named s. It returns a *[cell.FieldError] for any other word.
func ParseRole(field, s string) (Role, error) {
	for _, r := range Roles() {
		if s == r.String() {
			return r, nil
		}
	}
	return 0, &cell.FieldError{Field: field, Problem: fmt.Sprintf("%.40q is not a role", s), Remedy: "use control, cell or gateway"}
}

// Agent is one process as it says it is. Two agents are equal when == says so.
type Agent struct {
	Name        AgentName
	Role        Role
	Cell        cell.ID // of the role cell
	APIAddress  string  // host and port, as others dial it
	RaftAddress string  // empty for a gateway
	Version     string
	// FeatureLevelMax is the highest feature level that it understands.
	FeatureLevelMax int
	// LogOpen is whether it has its part of a log. The record never forgets it: an agent that once had a log and says that it has none lost
	// what it voted for, and must not be given the first voters again.
	LogOpen bool
}

// RegisterAgent records an agent, or what changed of it. What only says that it is alive is not worth an entry.
type RegisterAgent struct {
	Agent Agent
	Time  cell.Instant
}

// ForgetAgent removes an agent's record.
type ForgetAgent struct {
	Name AgentName
	Time cell.Instant
}

// CreateJoinToken makes a token with which one agent gets its certificate. The token itself never enters the log.
type CreateJoinToken struct {
	Hash    [sha256.Size]byte // of the token
	Role    Role
	Cell    cell.ID   // for the role cell
	Name    AgentName // the one agent that may use it; empty for any
	Expires cell.Instant
	Time    cell.Instant
}

// UseJoinToken spends a token.
type UseJoinToken struct {
	Hash [sha256.Size]byte
	Name AgentName
	Time cell.Instant
}

// Type implements [Command].
func (RegisterAgent) Type() Type { return TypeRegisterAgent }

// Type implements [Command].
func (ForgetAgent) Type() Type { return TypeForgetAgent }

// Type implements [Command].
func (CreateJoinToken) Type() Type { return TypeCreateJoinToken }

// Type implements [Command].
func (UseJoinToken) Type() Type { return TypeUseJoinToken }

// At implements [Command].
func (c RegisterAgent) At() cell.Instant { return c.Time }

// At implements [Command].
func (c ForgetAgent) At() cell.Instant { return c.Time }

// At implements [Command].
func (c CreateJoinToken) At() cell.Instant { return c.Time }

// At implements [Command].
func (c UseJoinToken) At() cell.Instant { return c.Time }

func (c RegisterAgent) check() error {
	a := c.Agent
	if a.FeatureLevelMax < FeatureLevelFirst || a.FeatureLevelMax > featureLevelBound {
		return &cell.FieldError{
			Field: "feature_level_max", Problem: fmt.Sprintf("is %d, outside %d to %d", a.FeatureLevelMax, FeatureLevelFirst, featureLevelBound),
			Remedy: "run a release of Fairlead",
		}
	}
	return first(
		cell.CheckID("name", string(a.Name)),
		checkRole(a.Role, a.Cell),
		checkAddress("api_address", a.APIAddress),
		checkAddress("raft_address", a.RaftAddress),
		checkText("version", a.Version),
		checkTime(c.Time),
	)
}

func (c ForgetAgent) check() error {
	return first(cell.CheckID("name", string(c.Name)), checkTime(c.Time))
}

func (c CreateJoinToken) check() error {
	var name error
	if c.Name != "" {
		name = cell.CheckID("name", string(c.Name))
	}
	if err := first(checkRole(c.Role, c.Cell), name, checkTime(c.Time)); err != nil {
		return err
	}
	if lifetime := c.Expires.Sub(c.Time); lifetime <= 0 || lifetime > JoinTokenLifetimeMax {
		return &cell.FieldError{Field: "lifetime", Problem: fmt.Sprintf("is %v, outside 0 to 24h", lifetime), Remedy: "give 1m to 24h"}
	}
	return nil
}

func (c UseJoinToken) check() error {
	return first(cell.CheckID("name", string(c.Name)), checkTime(c.Time))
}

func checkRole(r Role, of cell.ID) error {
	switch {
	case r < RoleControl || r > RoleGateway:
		return &cell.FieldError{Field: "role", Problem: fmt.Sprintf("is %v, which is none", r), Remedy: "use control, cell or gateway"}
	case r == RoleCell:
		return cell.CheckID("cell", string(of))
	case of != "":
		return &cell.FieldError{
			Field: "cell", Problem: fmt.Sprintf("is set for the role %v", r), Remedy: "leave it out, or use the role cell",
		}
	default:
		return nil
	}
}

// checkAddress takes what is empty: a gateway has no log, and a process that holds everything dials nobody.
func checkAddress(field, s string) error {
	if len(s) > AddressBytesMax {
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("has %d bytes, of at most %d", len(s), AddressBytesMax), Remedy: "give a host and a port",
		}
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has %q at byte %d", s[i:i+1], i), Remedy: "give a host and a port"}
		}
	}
	return nil
}

// Numbers of the fields of an agent within its command.
const (
	agentName     = 1
	agentRole     = 2
	agentCell     = 3
	agentAPI      = 4
	agentRaft     = 5
	agentVersion  = 6
	agentLevelMax = 7
	agentLogOpen  = 8
	agentTime     = 9
)

func (c RegisterAgent) body() []byte {
	a := c.Agent
	b := appendText(nil, agentName, string(a.Name))
	b = appendNumber(b, agentRole, int64(a.Role))
	b = appendText(b, agentCell, string(a.Cell))
	b = appendText(b, agentAPI, a.APIAddress)
	b = appendText(b, agentRaft, a.RaftAddress)
	b = appendText(b, agentVersion, a.Version)
	b = appendNumber(b, agentLevelMax, int64(a.FeatureLevelMax))
	b = appendFlag(b, agentLogOpen, a.LogOpen)
	return appendNumber(b, agentTime, c.Time)
}

func setRegisterAgent(c *RegisterAgent, f field) bool {
	a := &c.Agent
	switch {
	case f.is(agentName, bytes):
		a.Name = AgentName(f.b)
	case f.is(agentRole, varint) && f.n <= math.MaxUint8:
		a.Role = Role(f.n)
	case f.is(agentCell, bytes):
		a.Cell = cell.ID(f.b)
	case f.is(agentAPI, bytes):
		a.APIAddress = string(f.b)
	case f.is(agentRaft, bytes):
		a.RaftAddress = string(f.b)
	case f.is(agentVersion, bytes):
		a.Version = string(f.b)
	case f.is(agentLevelMax, varint):
		a.FeatureLevelMax = int(f.n)
	case f.is(agentLogOpen, varint) && f.n == 1:
		a.LogOpen = true
	case f.is(agentTime, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func (c ForgetAgent) body() []byte {
	return appendNumber(appendText(nil, 1, string(c.Name)), 2, c.Time)
}

func setForgetAgent(c *ForgetAgent, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Name = AgentName(f.b)
	case f.is(2, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func (c CreateJoinToken) body() []byte {
	b := appendBytes(nil, 1, c.Hash[:])
	b = appendNumber(b, 2, int64(c.Role))
	b = appendText(b, 3, string(c.Cell))
	b = appendText(b, 4, string(c.Name))
	b = appendNumber(b, 5, c.Expires)
	return appendNumber(b, 6, c.Time)
}

func setCreateJoinToken(c *CreateJoinToken, f field) bool {
	switch {
	case f.is(1, bytes) && len(f.b) == len(c.Hash):
		c.Hash = [len(c.Hash)]byte(f.b)
	case f.is(2, varint) && f.n <= math.MaxUint8:
		c.Role = Role(f.n)
	case f.is(3, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(4, bytes):
		c.Name = AgentName(f.b)
	case f.is(5, varint):
		c.Expires = cell.Instant(f.n)
	case f.is(6, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func (c UseJoinToken) body() []byte {
	return appendNumber(appendText(appendBytes(nil, 1, c.Hash[:]), 2, string(c.Name)), 3, c.Time)
}

func setUseJoinToken(c *UseJoinToken, f field) bool {
	switch {
	case f.is(1, bytes) && len(f.b) == len(c.Hash):
		c.Hash = [len(c.Hash)]byte(f.b)
	case f.is(2, bytes):
		c.Name = AgentName(f.b)
	case f.is(3, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}
