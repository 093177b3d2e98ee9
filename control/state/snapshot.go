package state

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// ErrSnapshot is returned when what should be a snapshot is not one that this release can read whole. A state restored from a part of one
// would look right and have lost tenants, so that nothing is restored.
var ErrSnapshot = errors.New("unreadable snapshot of control's state")

// A snapshot is a sequence of records, each a field of the protobuf wire format: the number is the record's type, the content its bytes. The
// first is the head, the last the end with the counts of the others, so that one that was cut off between two records is not taken for whole.
// Numbers are never reused.
const (
	recordHead         = 1
	recordTenant       = 2
	recordKey          = 3
	recordOrganization = 4 // before the tenants, which name them
	recordCell         = 5 // before the assignments, which name them
	recordAssignment   = 6 // after the tenants
	recordAgent        = 7
	recordToken        = 8
	recordProfile      = 9  // after the tenants
	recordDecision     = 10 // after the tenants
	recordAudit        = 11 // by sequence
	recordCluster      = 12
	recordMigration    = 13 // after the assignments
	recordEnd          = 15

	// snapshotVersion rises when a reader of an older release would misunderstand a record.
	snapshotVersion = 1
	// recordBytesMax bounds a record, many times above the largest: a length beyond it is damage.
	recordBytesMax = 1 << 20
	// writeBytes is how much is gathered before it is written.
	writeBytes = 64 << 10
)

// WriteTo writes the generation as [Restore] reads it. Equal generations give equal bytes.
func (v View) WriteTo(w io.Writer) (int64, error) {
	var b []byte
	var written int64
	var err error
	record := func(num protowire.Number, body []byte) bool {
		b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), body)
		if len(b) < writeBytes && num != recordEnd {
			return true
		}
		var n int
		n, err = w.Write(b)
		written += int64(n)
		b = b[:0]
		return err == nil
	}
	var body []byte
	body = number(body, 1, snapshotVersion)
	body = number(body, 2, v.head.index)
	body = number(body, 3, uint64(v.head.clock))
	if before := v.head.audit.Before; before != [sha256.Size]byte{} {
		body = text(body, 4, string(before[:]))
	}
	record(recordHead, body)
	v.records(record)
	if err == nil {
		record(recordEnd, appendCounts(nil, v.head))
	}
	return written, err
}

// records hands over each row's record until one is not taken. The order is that of [Restore]: what is named comes before what names it.
func (v View) records(record func(protowire.Number, []byte) bool) {
	var body []byte
	if c, ok := v.Cluster(); ok && !record(recordCluster, appendCluster(nil, c)) {
		return
	}
	for o := range v.Organizations("") {
		if body = appendOrganization(body[:0], o); !record(recordOrganization, body) {
			return
		}
	}
	for c := range v.Cells("") {
		if body = appendCell(body[:0], c); !record(recordCell, body) {
			return
		}
	}
	for t := range v.Tenants("") {
		if body = appendTenant(body[:0], t); !record(recordTenant, body) {
			return
		}
	}
	for k := range v.Keys("") {
		if body = appendKey(body[:0], k); !record(recordKey, body) {
			return
		}
	}
	for a := range v.Assignments("") {
		if body = appendAssignment(body[:0], a); !record(recordAssignment, body) {
			return
		}
	}
	v.clusterRecords(record)
}

func (v View) clusterRecords(record func(protowire.Number, []byte) bool) {
	var body []byte
	for a := range v.Agents("") {
		if body = appendAgent(body[:0], a); !record(recordAgent, body) {
			return
		}
	}
	for t := range v.JoinTokens() {
		if body = appendToken(body[:0], t); !record(recordToken, body) {
			return
		}
	}
	for p := range v.profiles() {
		if !record(recordProfile, p.body) {
			return
		}
	}
	for d := range above(v.db, tableDecisions, byID, func(decision) bool { return true }, "") {
		if body = appendDecision(body[:0], d); !record(recordDecision, body) {
			return
		}
	}
	for m := range above(v.db, tableMigrations, byID, func(Migration) bool { return true }, "") {
		if body = appendMigration(body[:0], m); !record(recordMigration, body) {
			return
		}
	}
	for r := range above(v.db, tableAudit, byID, func(AuditRecord) bool { return true }, "") {
		if body = appendAudit(body[:0], r); !record(recordAudit, body) {
			return
		}
	}
}

// Hash returns the SHA-256 of the generation's snapshot: replicas at the same index have the same.
func (v View) Hash() [sha256.Size]byte {
	h := sha256.New()
	_, err := v.WriteTo(h)
	must(err) // a hash takes everything
	return [sha256.Size]byte(h.Sum(nil))
}

// Restore returns the state whose snapshot r holds. It returns [ErrSnapshot] when r is cut off, damaged, or of a later release, and r's
// own error.
func Restore(r io.Reader) (*State, error) {
	s := New()
	in := &reader{from: r}
	version := uint64(0)
	for {
		num, body, err := in.record()
		if err != nil {
			return nil, err
		}
		if (num == recordHead) != (version == 0) {
			return nil, fmt.Errorf("%w: the head is not its first record, or not its only one", ErrSnapshot)
		}
		if num == recordEnd {
			if err := s.restoreEnd(body); err != nil {
				return nil, err
			}
			return s, in.end()
		}
		if num == recordHead {
			version, err = s.restoreHead(body)
		} else {
			err = s.restoreRecord(num, body)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *State) restoreRecord(num int, body []byte) error {
	switch num {
	case recordTenant:
		return s.restoreTenant(body)
	case recordKey:
		return s.restoreKey(body)
	case recordOrganization:
		return s.restoreOrganization(body)
	case recordCell:
		return s.restoreCell(body)
	case recordAssignment:
		return s.restoreAssignment(body)
	case recordAgent:
		return s.restoreAgent(body)
	case recordToken:
		return s.restoreToken(body)
	case recordProfile:
		return s.restoreProfile(body)
	case recordDecision:
		return s.restoreDecision(body)
	case recordAudit:
		return s.restoreAudit(body)
	case recordCluster:
		return s.restoreCluster(body)
	case recordMigration:
		return s.restoreMigration(body)
	default:
		return fmt.Errorf("%w: record type %d is of a later release", ErrSnapshot, num)
	}
}

func (s *State) restoreHead(body []byte) (version uint64, err error) {
	err = fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			version = n
		case 2:
			s.head.index = n
		case 3:
			s.head.clock = cell.Instant(n)
		case 4:
			copy(s.head.audit.Before[:], b)
			return len(b) == len(s.head.audit.Before)
		default:
			return false
		}
		return true
	})
	if err == nil && version != snapshotVersion {
		err = fmt.Errorf("%w: version %d, and this release reads %d", ErrSnapshot, version, snapshotVersion)
	}
	return version, err
}

func (s *State) restoreKey(body []byte) error {
	var k Key
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			k.ID = command.KeyID(b)
		case 2:
			k.Tenant = cell.TenantID(b)
		case 3:
			k.Permissions = append(k.Permissions, cell.Permission(n))
		case 4:
			k.Description = string(b)
		case 5:
			k.Operations = append(k.Operations, cell.Operation(b))
		case 6:
			copy(k.Hash[:], b)
			return len(b) == len(k.Hash)
		case 7:
			k.Created = cell.Instant(n)
		case 8:
			k.Expires = cell.Instant(n)
		case 9:
			k.Revoked = cell.Instant(n)
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	v := s.View()
	_, sameID := v.Key(k.ID)
	_, sameHash := v.KeyByHash(k.Hash)
	if _, tenant := v.Tenant(k.Tenant); sameID || sameHash || k.ID == "" || k.Tenant != "" && !tenant {
		return fmt.Errorf("%w: key %q is there twice, or has no id, or its tenant is missing", ErrSnapshot, k.ID)
	}
	s.put(tableKeys, &k)
	s.head.keys++
	return nil
}

// counts returns the counts of h's rows, in the order of the end's fields. Later releases add to it.
func (h *head) counts() []*int {
	return []*int{&h.tenants, &h.keys, &h.organizations, &h.cells, &h.assignments, &h.agents, &h.tokens, &h.profiles, &h.decisions, &h.migrations}
}

// appendCounts writes the end: the counts of each kind of rows, and how many records of the audit there are.
func appendCounts(b []byte, h head) []byte {
	for i, n := range h.counts() {
		b = number(b, protowire.Number(i+1), uint64(*n))
	}
	return number(b, auditCount, h.auditLen())
}

// auditCount is the number of the end's field of the audit.
const auditCount = 15

func (h *head) auditLen() uint64 {
	if h.audit.Last == 0 {
		return 0
	}
	return h.audit.Last - h.audit.First + 1
}

func (s *State) restoreEnd(body []byte) error {
	var want head
	audit := uint64(0)
	err := fields(body, func(num int, n uint64, _ []byte) bool {
		if num == auditCount {
			audit = n
			return true
		}
		if counts := want.counts(); num >= 1 && num <= len(counts) {
			*counts[num-1] = int(n)
			return true
		}
		return false
	})
	if err != nil {
		return err
	}
	got := s.head
	for i, n := range got.counts() {
		if w := *want.counts()[i]; *n != w {
			return fmt.Errorf("%w: it has %d records of the kind %d, and should have %d", ErrSnapshot, *n, i+1, w)
		}
	}
	if n := got.auditLen(); n != audit {
		return fmt.Errorf("%w: it has %d records of the audit, and should have %d", ErrSnapshot, n, audit)
	}
	return nil
}

func appendKey(b []byte, k Key) []byte {
	b = text(b, 1, string(k.ID))
	b = text(b, 2, string(k.Tenant))
	for _, p := range k.Permissions {
		b = number(b, 3, uint64(p))
	}
	b = text(b, 4, k.Description)
	for _, op := range k.Operations {
		b = text(b, 5, string(op))
	}
	b = text(b, 6, string(k.Hash[:]))
	b = number(b, 7, uint64(k.Created))
	b = number(b, 8, uint64(k.Expires))
	return number(b, 9, uint64(k.Revoked))
}
