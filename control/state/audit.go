package state

import (
	"crypto/sha256"
	"fmt"
	"iter"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// AuditRecord is one change that somebody asked for. Each is chained to the one before by a hash, so that none can be changed, left out or put in
// without changing all that follow.
type AuditRecord struct {
	Sequence uint64 // from 1, without gaps
	Time     cell.Instant
	Actor    string // the key or the agent that asked
	Action   string // the command's name, such as create-tenant
	Subject  string // what it is about
	Detail   string // what it says, at most command.DetailBytesMax
	Index    uint64 // of the entry in control's log
	Hash     [sha256.Size]byte
}

// Chain returns what Hash is when the record before has the hash before; before the first record of all it is zero. It covers every other field.
func (r AuditRecord) Chain(before [sha256.Size]byte) [sha256.Size]byte {
	r.Hash = [sha256.Size]byte{}
	return sha256.Sum256(append(before[:], appendAudit(nil, r)...))
}

// AuditBounds says which records of the audit are kept.
type AuditBounds struct {
	First, Last uint64            // sequences; 0 for none
	Before      [sha256.Size]byte // the hash of the record before First; zero when that was the first of all
}

// Audit returns the records whose sequence is below before, newest first; 0 for all.
func (v View) Audit(before uint64) iter.Seq[AuditRecord] {
	from := v.head.audit.Last
	if before != 0 {
		from = min(from, before-1)
	}
	return func(yield func(AuditRecord) bool) {
		for n := from; n > 0 && n >= v.head.audit.First; n-- {
			if r, ok := get[AuditRecord](v.db, tableAudit, byID, number8(n)); !ok || !yield(r) {
				return
			}
		}
	}
}

// AuditBounds returns which records are kept.
func (v View) AuditBounds() AuditBounds { return v.head.audit }

// audit adds a record of a command that took effect, and drops the oldest beyond [AuditMax].
func (s *State) audit(index uint64, c command.Audited) {
	s.putAudit(AuditRecord{
		Sequence: s.head.audit.Last + 1, Time: s.head.clock, Actor: c.Actor, Action: c.Type().String(), Subject: command.Subject(c),
		Detail: command.Detail(c), Index: index,
	})
	if b := &s.head.audit; b.Last-b.First >= s.auditMax {
		oldest, ok := get[AuditRecord](s.View().db, tableAudit, byID, number8(b.First))
		if !ok {
			panic(fmt.Sprintf("state: record %d of the audit is missing", b.First))
		}
		s.drop(tableAudit, &oldest)
		b.First, b.Before = b.First+1, oldest.Hash
	}
}

// putAudit chains r to the last record.
func (s *State) putAudit(r AuditRecord) {
	b := &s.head.audit
	before := b.Before
	if last, ok := get[AuditRecord](s.View().db, tableAudit, byID, number8(b.Last)); ok {
		before = last.Hash
	}
	if b.First == 0 {
		b.First = r.Sequence
	}
	r.Hash = r.Chain(before)
	b.Last = r.Sequence
	s.put(tableAudit, &r)
}

// appendAudit leaves the hash out: it follows from the rest and the hash before the first record, which the head of a snapshot has.
func appendAudit(b []byte, r AuditRecord) []byte {
	b = number(b, 1, r.Sequence)
	b = number(b, 2, uint64(r.Time))
	b = text(b, 3, r.Actor)
	b = text(b, 4, r.Action)
	b = text(b, 5, r.Subject)
	b = text(b, 6, r.Detail)
	return number(b, 7, r.Index)
}

func (s *State) restoreAudit(body []byte) error {
	var r AuditRecord
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			r.Sequence = n
		case 2:
			r.Time = cell.Instant(n)
		case 3:
			r.Actor = string(b)
		case 4:
			r.Action = string(b)
		case 5:
			r.Subject = string(b)
		case 6:
			r.Detail = string(b)
		case 7:
			r.Index = n
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if b := s.head.audit; r.Sequence == 0 || b.Last != 0 && r.Sequence != b.Last+1 {
		return fmt.Errorf("%w: record %d of the audit follows %d", ErrSnapshot, r.Sequence, b.Last)
	}
	s.putAudit(r)
	return nil
}
