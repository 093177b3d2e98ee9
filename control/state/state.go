// Package state is control's replicated state: which organizations and tenants there are, what each is promised, where each is at home and where it
// is moving, which cells, agents and keys there are, and who changed what.
//
// It owns the tables and the only way to change them, [State.Apply], a function of the state, the index and the command: it asks no
// clock (its time is the latest that any command carried), chooses nothing, and answers what it refuses as a typed value. [State.View] is a
// generation of the state, taken in constant time and readable from any goroutine while Apply goes on; snapshots and hashes are
// made from it, so that equal states give equal bytes.
//
// Invariants, checked by check in tests after every step: every key's tenant and every tenant's organization exists; what an
// organization's tenants reserve is as summed, and fits in its reservation and its limit; every key and every secret's hash is there
// once; no tenant has more live keys, or remembers more ended ones, than its bounds; an epoch is at least 1; nothing is from after the
// clock; a tenant's lanes are at home in cells that exist, or nowhere and then listed as unplaced; its policy has the larger epoch of the two; its
// lanes are in two cells only while it is moving, and then where its migration says, at the epochs that it says; a tenant has at most one migration
// that has not ended; a cell has as many tenants as counted; a forming cell has neither voters nor tenants; the audit has no gap and its chain holds.
package state

import (
	"fmt"

	"github.com/hashicorp/go-memdb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// The bounds of the state, by the names that refusals give.
const (
	// TenantsMax keeps control's memory below a gigabyte.
	TenantsMax = 1_000_000
	// OrganizationsMax keeps a cell's memory for them, some kilobytes each, below a gigabyte.
	OrganizationsMax = 100_000
	// KeysPerTenantMax bounds a tenant's live keys: one per service and one more to rotate to, many times over.
	KeysPerTenantMax = 100
	// KeysPlatformMax bounds the platform's live keys.
	KeysPlatformMax = 1000
	// KeysEndedMax bounds the revoked and expired keys that are remembered for each tenant, and for the platform; the one that ended first
	// is forgotten. A forgotten key is as dead as before.
	KeysEndedMax = 100
	// CellsMax bounds the cells, each of which every gateway knows and every decision looks at.
	CellsMax = 1_000
	// AgentsMax bounds the agents that are remembered: those of every cell, control's, and gateways beside them.
	AgentsMax = 5_000
	// JoinTokensMax bounds the join tokens that have not expired. Expired ones are forgotten when another is made.
	JoinTokensMax = 1_000
	// AuditMax bounds the records of the audit that are kept: some 50 MB. The oldest is dropped, and its hash stays.
	AuditMax = 100_000
	// DecisionsBytesMax bounds the texts of decisions that are kept, all together. The oldest is forgotten: the tenant stays where it is, and what would
	// be decided now can be asked for.
	DecisionsBytesMax = 64 << 20
	// MigrationsLiveMax bounds the migrations that have not ended: many times more than can copy at a time. Whoever moves more starts them in turns.
	MigrationsLiveMax = 1_000
	// MigrationsEndedMax bounds the migrations that have ended and are remembered, some kilobytes each. The one that ended first is forgotten.
	MigrationsEndedMax = 1_000

	limitTenants       = "tenants_max"
	limitOrganizations = "organizations_max"
	limitKeysPerTenant = "keys_per_tenant_max"
	limitKeysPlatform  = "keys_platform_max"
	limitCells         = "cells_max"
	limitAgents        = "agents_max"
	limitJoinTokens    = "join_tokens_max"
	limitMigrations    = "migrations_live_max"
)

// State is the present generation. Apply must not be called concurrently; Views may be read by anybody.
type State struct {
	db   *memdb.MemDB
	head head
	// The bounds that have these names, but for tests of what happens at them.
	auditMax          uint64
	decisionsBytesMax int
	liveMax, endedMax int // MigrationsLiveMax, MigrationsEndedMax
}

// head is what there is beside the tables.
type head struct {
	index uint64 // of the last entry
	clock cell.Instant
	// Rows, which a radix tree does not count.
	organizations, tenants, keys, cells, assignments, agents, tokens, profiles, decisions, migrations int
	// live are the migrations that have not ended: a part of migrations.
	live int

	decisionBytes int // of the texts of decisions
	cluster       Cluster
	audit         AuditBounds
	// reserved is what organizations, and tenants without one, reserve in each class. Like Organization.Reserved it is in no snapshot.
	reserved [2]cell.Rate
}

// New returns the empty state.
func New() *State {
	return &State{
		db: newDB(), auditMax: AuditMax, decisionsBytesMax: DecisionsBytesMax, liveMax: MigrationsLiveMax, endedMax: MigrationsEndedMax,
	}
}

// Index returns the index of the last entry applied or passed over; 0 for none.
func (s *State) Index() uint64 { return s.head.index }

// View returns the present generation, in constant time.
func (s *State) View() View { return View{db: s.db.Snapshot(), head: s.head} }

// Result is the answer to a command: the row as it stands after it, or why it was refused.
type Result struct {
	Organization Organization // of CreateOrganization and UpdateOrganization
	Tenant       Tenant       // of CreateTenant and UpdateTenant
	Key          Key          // of CreateKey and RevokeKey
	Cluster      Cluster      // of CreateCluster, SetFeatureLevel and Restored
	Cell         Cell         // of what is about a cell; the record that went with DeleteCell
	Assignment   Assignment   // of Assign: the interactive lane's, like which the other's is; Tenant is set too
	Agent        Agent        // of RegisterAgent and ForgetAgent
	JoinToken    JoinToken    // of CreateJoinToken and UseJoinToken
	Migration    Migration    // of what is about one; Tenant is set too when an event changed where its lanes are or their epochs
	Recorded     int          // of RecordDemand: samples of tenants that are at home in the cell
	// Repeated says that nothing was changed: it had taken effect before.
	Repeated bool
	// Refused is nil when the command took effect, then or before: a *[cell.FieldError], a *[cell.LimitError], an *[ExistsError], a
	// *[NotFoundError], a *[LastAdminError], a *[StaleError], a *[PhaseError], an *[InUseError], a *[TokenError] or a *[MigrationExistsError]; and
	// of AdvanceMigration whatever package migrate refuses an event with.
	Refused error
}

// Kind says what an error is about.
type Kind string

// The kinds.
const (
	KindOrganization Kind = "organization"
	KindTenant       Kind = "tenant"
	KindKey          Kind = "key"
	KindSecret       Kind = "secret"
	KindCluster      Kind = "cluster"
	KindCell         Kind = "cell"
	KindAssignment   Kind = "assignment"
	KindAgent        Kind = "agent"
	KindJoinToken    Kind = "join token"
	KindMigration    Kind = "migration"
)

// ExistsError is returned when there is one of that name already, and it is another.
type ExistsError struct {
	Kind Kind
	ID   string // empty for a secret
}

func (e *ExistsError) Error() string {
	switch e.Kind {
	case KindSecret:
		return "the secret belongs to another key: make a fresh one"
	case KindCluster:
		return fmt.Sprintf("this is cluster %s already: start agents of another one on empty directories", e.ID)
	case KindOrganization, KindTenant, KindKey, KindCell, KindAssignment, KindAgent, KindJoinToken, KindMigration:
	}
	return fmt.Sprintf("%s %s exists already: choose another id, or change the one that exists", e.Kind, e.ID)
}

// NotFoundError is returned when there is none of that name.
type NotFoundError struct {
	Kind Kind
	ID   string
}

func (e *NotFoundError) Error() string {
	if e.Kind == KindCluster {
		return "the cluster has no record yet: bootstrap it first"
	}
	return fmt.Sprintf("%s %.140q does not exist: check the id, or list what there is", e.Kind, e.ID)
}

// LastAdminError is returned when a key is the only live one that may manage keys: without it nobody could make another.
type LastAdminError struct{ Key command.KeyID }

func (e *LastAdminError) Error() string {
	return fmt.Sprintf("key %s is the last live key with the scope admin: create another first", e.Key)
}

// Pass notes that the entry at index has no effect: an ignorable command of a later release.
func (s *State) Pass(index uint64) { s.advance(index) }

func (s *State) advance(index uint64) {
	if index <= s.head.index {
		panic(fmt.Sprintf("state: entry %d after entry %d", index, s.head.index))
	}
	s.head.index = index
}
