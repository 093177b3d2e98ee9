// Package command is the vocabulary of control's log: everything that can change what the platform has promised to whom.
//
// It owns the commands, their bounds ([Check]) and their bytes ([Encode], [Decode]). It decides nothing: whether a command takes effect is for
// the state it is applied to. Times and ids are inside a command, put there by whoever proposes it, because replicas that apply it must
// not ask a clock or a random source.
//
// The bytes are an envelope of type, version, ignorable bit and body, and outlive every release: numbers are never reused, golden files
// hold one example of each form that was ever written. A reader that meets a type, a version or a field that it does not know refuses with
// an [UnknownError] instead of applying a part of it; the state machine may pass over the command only if the proposer marked it ignorable.
package command

import (
	"crypto/sha256"
	"fmt"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// Type numbers a command in the log. Numbers are never reused.
type Type uint16

// The types of commands.
const (
	TypeCreateTenant Type = 1
	TypeUpdateTenant Type = 2
	TypeCreateKey    Type = 3
	TypeRevokeKey    Type = 4

	TypeCreateOrganization Type = 5
	TypeUpdateOrganization Type = 6

	TypeCreateCluster   Type = 7
	TypeSetFeatureLevel Type = 8
	TypeCreateCell      Type = 9
	TypeUpdateCell      Type = 10
	TypeSetCellPhase    Type = 11
	TypeSetCellVoters   Type = 12
	TypeDeleteCell      Type = 13
	TypeAssign          Type = 14
	TypeCreateJoinToken Type = 15
	TypeUseJoinToken    Type = 16
	TypeRegisterAgent   Type = 17
	TypeForgetAgent     Type = 18
	TypeRecordDemand    Type = 19
	TypeRestored        Type = 20

	TypeStartMigration   Type = 21
	TypeAdvanceMigration Type = 22
	TypeForgetMigration  Type = 23
)

func (t Type) String() string {
	switch t {
	case TypeCreateTenant:
		return "create-tenant"
	case TypeUpdateTenant:
		return "update-tenant"
	case TypeCreateKey:
		return "create-key"
	case TypeRevokeKey:
		return "revoke-key"
	case TypeCreateOrganization:
		return "create-organization"
	case TypeUpdateOrganization:
		return "update-organization"
	case TypeCreateCluster:
		return "create-cluster"
	case TypeSetFeatureLevel:
		return "set-feature-level"
	case TypeCreateCell:
		return "create-cell"
	case TypeUpdateCell:
		return "update-cell"
	case TypeSetCellPhase:
		return "set-cell-phase"
	case TypeSetCellVoters:
		return "set-cell-voters"
	case TypeDeleteCell:
		return "delete-cell"
	case TypeAssign:
		return "assign"
	case TypeCreateJoinToken:
		return "create-join-token"
	case TypeUseJoinToken:
		return "use-join-token"
	case TypeRegisterAgent:
		return "register-agent"
	case TypeForgetAgent:
		return "forget-agent"
	case TypeRecordDemand:
		return "record-demand"
	case TypeRestored:
		return "restored"
	case TypeStartMigration:
		return "start-migration"
	case TypeAdvanceMigration:
		return "advance-migration"
	case TypeForgetMigration:
		return "forget-migration"
	default:
		return fmt.Sprintf("type(%d)", uint16(t))
	}
}

// Command is one of this package's commands.
type Command interface {
	// Type returns the command's number.
	Type() Type
	// At returns when it was proposed, by the proposer's clock.
	At() cell.Instant
}

// KeyID names an API key. It is made where a key is created and is no secret.
type KeyID string

// CreateTenant opens a tenant.
type CreateTenant struct {
	Tenant      cell.TenantID
	DisplayName string
	Weight      cell.Weight
	// 0 leaves a bound to the cell.
	BacklogJobsMax  int64
	BacklogBytesMax int64
	Time            cell.Instant

	// What it is promised beside its weight; see [cell.TenantPolicy].
	Organization cell.OrganizationID // empty for none
	Reservation  [2]cell.Rate
	Limit        cell.Rate
	Credit       cell.Credit
	RunningMax   int64
	Starts       cell.StartRate
	// Capacity is what the reservations of a class may come to with it, by Class.Index; 0 for whatever they do. It is the proposer's to know,
	// and Apply's to check.
	Capacity [2]cell.Rate
	// Rules say where it may be placed.
	Rules placement.Rules
}

// Policy returns what the tenant is promised, without an epoch.
func (c CreateTenant) Policy() cell.TenantPolicy {
	return cell.TenantPolicy{
		Tenant: c.Tenant, Organization: c.Organization, Weight: c.Weight, Reservation: c.Reservation, Limit: c.Limit, Credit: c.Credit,
		RunningMax: c.RunningMax, Starts: c.Starts, BacklogJobsMax: c.BacklogJobsMax, BacklogBytesMax: c.BacklogBytesMax,
	}
}

// UpdateTenant changes what is not nil.
type UpdateTenant struct {
	Tenant          cell.TenantID
	DisplayName     *string
	Weight          *cell.Weight
	BacklogJobsMax  *int64
	BacklogBytesMax *int64
	Time            cell.Instant

	Organization *cell.OrganizationID // of empty: none any more
	Reservation  [2]*cell.Rate
	Limit        *cell.Rate
	Credit       *cell.Credit
	RunningMax   *int64
	Starts       *cell.StartRate
	Capacity     [2]cell.Rate // as in CreateTenant; changes nothing by itself

	Rules *placement.Rules // replaces all of them
}

// Onto returns p with what c changes of it.
func (c UpdateTenant) Onto(p cell.TenantPolicy) cell.TenantPolicy {
	set(&p.Weight, c.Weight)
	set(&p.BacklogJobsMax, c.BacklogJobsMax)
	set(&p.BacklogBytesMax, c.BacklogBytesMax)
	set(&p.Organization, c.Organization)
	for i, r := range c.Reservation {
		set(&p.Reservation[i], r)
	}
	set(&p.Limit, c.Limit)
	set(&p.Credit, c.Credit)
	set(&p.RunningMax, c.RunningMax)
	set(&p.Starts, c.Starts)
	return p
}

// set makes to what from points to, if that is anything.
func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// CreateKey makes an API key live. The secret itself never enters the log.
type CreateKey struct {
	Key         KeyID
	Tenant      cell.TenantID     // empty for the platform
	Permissions []cell.Permission // at least one, rising
	Description string
	Operations  []cell.Operation  // what a work key may lease; all when empty
	Hash        [sha256.Size]byte // of the secret
	Time        cell.Instant
	Expires     cell.Instant // 0 for never
}

// RevokeKey ends an API key.
type RevokeKey struct {
	Key  KeyID
	Time cell.Instant
}

// Type implements [Command].
func (CreateTenant) Type() Type { return TypeCreateTenant }

// Type implements [Command].
func (UpdateTenant) Type() Type { return TypeUpdateTenant }

// Type implements [Command].
func (CreateKey) Type() Type { return TypeCreateKey }

// Type implements [Command].
func (RevokeKey) Type() Type { return TypeRevokeKey }

// At implements [Command].
func (c CreateTenant) At() cell.Instant { return c.Time }

// At implements [Command].
func (c UpdateTenant) At() cell.Instant { return c.Time }

// At implements [Command].
func (c CreateKey) At() cell.Instant { return c.Time }

// At implements [Command].
func (c RevokeKey) At() cell.Instant { return c.Time }
