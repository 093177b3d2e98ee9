package cell

import (
	"encoding/hex"
	"fmt"
)

// IDBytesMax bounds every identifier that a caller chooses: tenants, operations, idempotency keys, sessions. It keeps a job's record
// small and a log line readable.
const IDBytesMax = 128

// TenantID names a tenant for as long as it exists. It comes from the authenticated caller, never from a message of a tenant.
type TenantID string

// OrganizationID names a parent of tenants: what it is promised it shares among them.
type OrganizationID string

// Operation is the name of a kind of job, which a worker registers a handler for.
type Operation string

// ParseTenantID returns s as a tenant's id. It returns a *[FieldError] when s is not an identifier.
func ParseTenantID(field, s string) (TenantID, error) {
	return TenantID(s), CheckID(field, s)
}

// ParseOrganizationID returns s as an organization's id. It returns a *[FieldError] when s is not an identifier.
func ParseOrganizationID(field, s string) (OrganizationID, error) {
	return OrganizationID(s), CheckID(field, s)
}

// ParseOperation returns s as an operation's name. It returns a *[FieldError] when s is not an identifier.
func ParseOperation(field, s string) (Operation, error) {
	return Operation(s), CheckID(field, s)
}

// CheckID returns a *[FieldError] naming field unless s is an identifier: 1 to [IDBytesMax] bytes, a letter or digit first, then letters,
// digits and any of . _ : and -.
func CheckID(field, s string) error {
	const remedy = "use 1 to 128 letters, digits and . _ : - with a letter or digit first"
	if s == "" {
		return &FieldError{Field: field, Problem: "is empty", Remedy: remedy}
	}
	if len(s) > IDBytesMax {
		return &FieldError{Field: field, Problem: fmt.Sprintf("has %d bytes, of at most %d", len(s), IDBytesMax), Remedy: remedy}
	}
	for i := range len(s) {
		if !idByte(s[i], i == 0) {
			return &FieldError{Field: field, Problem: fmt.Sprintf("%.40q has %q at byte %d", s, s[i:i+1], i), Remedy: remedy}
		}
	}
	return nil
}

func idByte(c byte, first bool) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return !first && (c == '.' || c == '_' || c == ':' || c == '-')
	}
}

// JobID is a UUIDv7, made where a job enters: it never comes from the state machine. Later ids compare greater, roughly.
type JobID [16]byte

// JobIDPrefix stands before the UUID in an id's text form.
const JobIDPrefix = "job_"

const uuidTextLen = 36

// String returns the id as job_ and the UUID's usual form.
func (id JobID) String() string {
	var b [len(JobIDPrefix) + uuidTextLen]byte
	copy(b[:], JobIDPrefix)
	u := b[len(JobIDPrefix):]
	hex.Encode(u[0:8], id[0:4])
	u[8] = '-'
	hex.Encode(u[9:13], id[4:6])
	u[13] = '-'
	hex.Encode(u[14:18], id[6:8])
	u[18] = '-'
	hex.Encode(u[19:23], id[8:10])
	u[23] = '-'
	hex.Encode(u[24:36], id[10:16])
	return string(b[:])
}

// ParseJobID returns the id whose text form is s. It returns a *[FieldError] when s has another form.
func ParseJobID(field, s string) (JobID, error) {
	var id JobID
	if len(s) != len(JobIDPrefix)+uuidTextLen || s[:len(JobIDPrefix)] != JobIDPrefix {
		return id, notAJobID(field, s)
	}
	u := s[len(JobIDPrefix):]
	if u[8] != '-' || u[13] != '-' || u[18] != '-' || u[23] != '-' {
		return id, notAJobID(field, s)
	}
	var text [32]byte
	n := copy(text[:], u[0:8])
	n += copy(text[n:], u[9:13])
	n += copy(text[n:], u[14:18])
	n += copy(text[n:], u[19:23])
	copy(text[n:], u[24:36])
	if _, err := hex.Decode(id[:], text[:]); err != nil {
		return JobID{}, notAJobID(field, s)
	}
	return id, nil
}

func notAJobID(field, s string) error {
	return &FieldError{
		Field: field, Problem: fmt.Sprintf("%.60q is not a job's id", s),
		Remedy: "give it as it was returned on submission: job_ and a UUID",
	}
}

// ID names a cell.
type ID string

// ParseCellID returns s as a cell's name. It returns a *[FieldError] when s is not an identifier.
func ParseCellID(field, s string) (ID, error) {
	return ID(s), CheckID(field, s)
}
