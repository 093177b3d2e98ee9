package command

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
)

// version is the form in which this release writes every command. A change of a command's meaning, as opposed to a new command, raises it.
const version = 1

// MalformedError is returned when bytes are not a command of any release: they were damaged, or are something else.
type MalformedError struct {
	Type    Type // 0 when it was not reached
	Problem string
}

func (e *MalformedError) Error() string {
	if e.Type == 0 {
		return "malformed command: " + e.Problem
	}
	return fmt.Sprintf("malformed %s command: %s", e.Type, e.Problem)
}

// UnknownError is returned when bytes are a command that a later release wrote. Applying what is understood of it would make this
// replica differ from the others.
type UnknownError struct {
	Type    Type
	Version uint64
	Field   int  // the field that is not known, 0 when it is the type or the version
	Ignore  bool // the proposer says that whoever does not know it may pass over it
}

func (e *UnknownError) Error() string {
	if e.Field != 0 {
		return fmt.Sprintf("unknown field %d of a %s command of version %d: run the release that wrote it", e.Field, e.Type, e.Version)
	}
	return fmt.Sprintf("unknown %s command of version %d: run the release that wrote it", e.Type, e.Version)
}

// Numbers of the envelope's fields.
const (
	envelopeType    = 1
	envelopeVersion = 2
	envelopeIgnore  = 3
	envelopeBody    = 4
	envelopeActor   = 5
)

// envelope is what every release can read of every command.
type envelope struct {
	typ     Type
	version uint64
	ignore  bool
	body    []byte
	actor   string
}

// Encode returns c's bytes. It panics for a command that is not of this package.
func Encode(c Command) []byte {
	actor := ""
	if audited, ok := c.(Audited); ok {
		actor, c = audited.Actor, audited.Command
	}
	return encodeEnvelope(envelope{typ: c.Type(), version: version, body: encodeBody(c), actor: actor})
}

func encodeEnvelope(e envelope) []byte {
	b := appendVarint(nil, envelopeType, uint64(e.typ))
	b = appendVarint(b, envelopeVersion, e.version)
	if e.ignore {
		b = appendVarint(b, envelopeIgnore, 1)
	}
	b = appendBytes(b, envelopeBody, e.body)
	return appendText(b, envelopeActor, e.actor)
}

// Decode returns the command in data and keeps no part of data. It returns a *[MalformedError] or an *[UnknownError]; it does not [Check].
func Decode(data []byte) (Command, error) {
	e := envelope{}
	unknown := 0
	err := fields(data, func(f field) error {
		switch {
		case f.is(envelopeType, varint) && f.n <= math.MaxUint16:
			e.typ = Type(f.n)
		case f.is(envelopeVersion, varint):
			e.version = f.n
		case f.is(envelopeIgnore, varint):
			e.ignore = f.n != 0
		case f.is(envelopeBody, bytes):
			e.body = f.b
		case f.is(envelopeActor, bytes):
			e.actor = string(f.b)
		case f.num <= envelopeActor:
			return fmt.Errorf("field %d of the envelope has wire type %d or is out of range", f.num, f.typ)
		default:
			unknown = int(f.num)
		}
		return nil
	})
	if err != nil {
		return nil, &MalformedError{Problem: err.Error()}
	}
	if e.typ == 0 || e.version == 0 {
		return nil, &MalformedError{Problem: "the envelope has no type or no version"}
	}
	if unknown != 0 || e.version != version {
		return nil, &UnknownError{Type: e.typ, Version: e.version, Field: unknown, Ignore: e.ignore}
	}
	c, err := decodeBody(e)
	if err != nil || e.actor == "" {
		return c, err
	}
	return Audited{Actor: e.actor, Command: c}, nil
}

func encodeBody(c Command) []byte {
	switch c := c.(type) {
	case CreateTenant:
		b := appendText(nil, 1, string(c.Tenant))
		b = appendText(b, 2, c.DisplayName)
		b = appendNumber(b, 3, c.Weight)
		b = appendNumber(b, 4, c.BacklogJobsMax)
		b = appendNumber(b, 5, c.BacklogBytesMax)
		b = appendNumber(b, 6, c.Time)
		return appendPromises(b, c)
	case UpdateTenant:
		b := appendText(nil, 1, string(c.Tenant))
		if c.DisplayName != nil {
			b = appendBytes(b, 2, []byte(*c.DisplayName))
		}
		b = appendGiven(b, 3, c.Weight)
		b = appendGiven(b, 4, c.BacklogJobsMax)
		b = appendGiven(b, 5, c.BacklogBytesMax)
		b = appendNumber(b, 6, c.Time)
		return appendGivenPromises(b, c)
	case CreateKey:
		return appendKey(c)
	case RevokeKey:
		return appendNumber(appendText(nil, 1, string(c.Key)), 2, c.Time)
	case CreateOrganization:
		return appendOrganization(c)
	case UpdateOrganization:
		return appendGivenOrganization(c)
	case CreateCluster:
		return c.body()
	case SetFeatureLevel:
		return c.body()
	case CreateCell:
		return c.body()
	case UpdateCell:
		return c.body()
	case SetCellPhase:
		return c.body()
	case SetCellVoters:
		return c.body()
	case DeleteCell:
		return c.body()
	case Assign:
		return c.body()
	case CreateJoinToken:
		return c.body()
	case UseJoinToken:
		return c.body()
	case RegisterAgent:
		return c.body()
	case ForgetAgent:
		return c.body()
	case RecordDemand:
		return c.body()
	case Restored:
		return c.body()
	case StartMigration:
		return c.body()
	case AdvanceMigration:
		return c.body()
	case ForgetMigration:
		return c.body()
	default:
		panic(fmt.Sprintf("command: %T is not a command of control's log", c))
	}
}

func appendKey(c CreateKey) []byte {
	b := appendText(nil, 1, string(c.Key))
	b = appendText(b, 2, string(c.Tenant))
	for _, p := range c.Permissions {
		b = appendVarint(b, 3, uint64(p))
	}
	b = appendText(b, 4, c.Description)
	for _, op := range c.Operations {
		b = appendBytes(b, 5, []byte(op))
	}
	b = appendBytes(b, 6, c.Hash[:])
	b = appendNumber(b, 7, c.Time)
	return appendNumber(b, 8, c.Expires)
}

func decodeBody(e envelope) (Command, error) {
	switch e.typ {
	case TypeCreateTenant:
		return decodeWith(e, setCreateTenant)
	case TypeUpdateTenant:
		return decodeWith(e, setUpdateTenant)
	case TypeCreateKey:
		return decodeWith(e, setCreateKey)
	case TypeRevokeKey:
		return decodeWith(e, setRevokeKey)
	case TypeCreateOrganization:
		return decodeWith(e, setCreateOrganization)
	case TypeUpdateOrganization:
		return decodeWith(e, setUpdateOrganization)
	case TypeCreateCluster:
		return decodeWith(e, setCreateCluster)
	case TypeSetFeatureLevel:
		return decodeWith(e, setSetFeatureLevel)
	case TypeCreateCell:
		return decodeWith(e, setCreateCell)
	case TypeUpdateCell:
		return decodeWith(e, setUpdateCell)
	case TypeSetCellPhase:
		return decodeWith(e, setSetCellPhase)
	case TypeSetCellVoters:
		return decodeWith(e, setSetCellVoters)
	case TypeDeleteCell:
		return decodeWith(e, setDeleteCell)
	case TypeAssign:
		return decodeWith(e, setAssign)
	case TypeCreateJoinToken:
		return decodeWith(e, setCreateJoinToken)
	case TypeUseJoinToken:
		return decodeWith(e, setUseJoinToken)
	case TypeRegisterAgent:
		return decodeWith(e, setRegisterAgent)
	case TypeForgetAgent:
		return decodeWith(e, setForgetAgent)
	case TypeRecordDemand:
		return decodeWith(e, setRecordDemand)
	case TypeRestored:
		return decodeWith(e, setRestored)
	case TypeStartMigration:
		return decodeWith(e, setStartMigration)
	case TypeAdvanceMigration:
		return decodeWith(e, setAdvanceMigration)
	case TypeForgetMigration:
		return decodeWith(e, setForgetMigration)
	default:
		return nil, &UnknownError{Type: e.typ, Version: e.version, Ignore: e.ignore}
	}
}

// decodeWith reads the body's fields into a C by set, which reports whether it knows the field.
func decodeWith[C Command](e envelope, set func(*C, field) bool) (Command, error) {
	var c C
	unknown := 0
	err := fields(e.body, func(f field) error {
		if !set(&c, f) && unknown == 0 {
			unknown = int(f.num)
		}
		return nil
	})
	if err != nil {
		return nil, &MalformedError{Type: e.typ, Problem: err.Error()}
	}
	if unknown != 0 {
		return nil, &UnknownError{Type: e.typ, Version: e.version, Field: unknown, Ignore: e.ignore}
	}
	return c, nil
}

func setCreateTenant(c *CreateTenant, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Tenant = cell.TenantID(f.b)
	case f.is(2, bytes):
		c.DisplayName = string(f.b)
	case f.is(3, varint):
		c.Weight = cell.Weight(f.n)
	case f.is(4, varint):
		c.BacklogJobsMax = int64(f.n)
	case f.is(5, varint):
		c.BacklogBytesMax = int64(f.n)
	case f.is(6, varint):
		c.Time = cell.Instant(f.n)
	default:
		return setPromise(c, f)
	}
	return true
}

func setUpdateTenant(c *UpdateTenant, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Tenant = cell.TenantID(f.b)
	case f.is(2, bytes):
		c.DisplayName = new(string(f.b))
	case f.is(3, varint):
		c.Weight = new(cell.Weight(f.n))
	case f.is(4, varint):
		c.BacklogJobsMax = new(int64(f.n))
	case f.is(5, varint):
		c.BacklogBytesMax = new(int64(f.n))
	case f.is(6, varint):
		c.Time = cell.Instant(f.n)
	default:
		return setGivenPromise(c, f)
	}
	return true
}

func setCreateKey(c *CreateKey, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Key = KeyID(f.b)
	case f.is(2, bytes):
		c.Tenant = cell.TenantID(f.b)
	case f.is(3, varint) && f.n <= math.MaxUint8:
		c.Permissions = append(c.Permissions, cell.Permission(f.n))
	case f.is(4, bytes):
		c.Description = string(f.b)
	case f.is(5, bytes):
		c.Operations = append(c.Operations, cell.Operation(f.b))
	case f.is(6, bytes) && len(f.b) == len(c.Hash):
		c.Hash = [len(c.Hash)]byte(f.b)
	case f.is(7, varint):
		c.Time = cell.Instant(f.n)
	case f.is(8, varint):
		c.Expires = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func setRevokeKey(c *RevokeKey, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Key = KeyID(f.b)
	case f.is(2, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

// The two wire types that commands use.
const (
	varint = protowire.VarintType
	bytes  = protowire.BytesType
)

// field is one field as it stands in the bytes: n for a varint, b for bytes.
type field struct {
	num protowire.Number
	typ protowire.Type
	n   uint64
	b   []byte
}

func (f field) is(num protowire.Number, typ protowire.Type) bool { return f.num == num && f.typ == typ }

// fields calls each with every field of data, in its order.
func fields(data []byte, each func(field) error) error {
	for at := 0; at < len(data); {
		num, typ, n := protowire.ConsumeTag(data[at:])
		if n < 0 {
			return fmt.Errorf("at byte %d: %w", at, protowire.ParseError(n))
		}
		at += n
		f := field{num: num, typ: typ}
		switch typ {
		case varint:
			f.n, n = protowire.ConsumeVarint(data[at:])
		case bytes:
			f.b, n = protowire.ConsumeBytes(data[at:])
		default: // commands have no others; a later release's may
			n = protowire.ConsumeFieldValue(num, typ, data[at:])
		}
		if n < 0 {
			return fmt.Errorf("at byte %d: %w", at, protowire.ParseError(n))
		}
		at += n
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

func appendVarint(b []byte, num protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, varint), n)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, bytes), v)
}

// appendText and appendNumber leave a zero value out; appendGiven only what is nil.
func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendBytes(b, num, []byte(s))
}

func appendNumber[N ~int64](b []byte, num protowire.Number, n N) []byte {
	if n == 0 {
		return b
	}
	return appendVarint(b, num, uint64(n))
}

func appendGiven[N ~int64](b []byte, num protowire.Number, n *N) []byte {
	if n == nil {
		return b
	}
	return appendVarint(b, num, uint64(*n))
}
