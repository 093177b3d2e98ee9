package state

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

func appendMigration(b []byte, m Migration) []byte {
	b = text(b, 1, string(m.ID))
	b = text(b, 2, string(m.Tenant))
	b = text(b, 3, string(m.Source))
	b = text(b, 4, string(m.Target))
	b = text(b, 5, m.Reason)
	b = text(b, 6, m.Actor)
	b = part(b, 7, appendOptions(nil, m.Options))
	b = number(b, 8, uint64(m.State))
	b = text(b, 9, m.Held)
	b = number(b, 10, uint64(m.Attempt))
	b = number(b, 11, m.Generation)
	b = number(b, 12, uint64(m.Order[0]))
	b = number(b, 13, uint64(m.Order[1]))
	b = part(b, 14, appendLane(nil, m.Lanes[0]))
	b = part(b, 15, appendLane(nil, m.Lanes[1]))
	for _, g := range m.Gates {
		b = part(b, 16, text(number(text(nil, 1, g.Name), 2, uint64(g.Verdict)), 3, g.Evidence))
	}
	b = part(b, 17, appendProgress(nil, m.Progress))
	b = number(b, 18, uint64(m.Created))
	b = number(b, 19, uint64(m.Entered))
	b = number(b, 20, uint64(m.Ended))
	for _, n := range m.Notes {
		b = part(b, 21, appendNote(nil, n))
	}
	b = number(b, 22, m.Number)
	b = number(b, 23, m.EndNumber)
	b = number(b, 24, m.Groups[0])
	b = number(b, 25, m.Groups[1])
	b = part(b, 26, appendUsed(nil, m.used[0]))
	b = part(b, 27, appendUsed(nil, m.used[1]))
	b = number(b, 28, uint64(m.Retries))
	b = number(b, 29, uint64(m.GatesAt))
	return number(b, 30, uint64(m.Resumed))
}

func (s *State) restoreMigration(body []byte) error {
	var m Migration
	err := fields(body, func(num int, n uint64, b []byte) bool {
		return restoreText(&m, num, b) || restoreMark(&m, num, n) || restorePart(&m, num, b)
	})
	if err != nil {
		return err
	}
	v := s.View()
	_, twice := v.Migration(m.ID)
	if _, known := v.Tenant(m.Tenant); m.ID == "" || m.Number == 0 || twice || !known {
		return fmt.Errorf("%w: migration %q is there twice, or has no id, or its tenant is missing", ErrSnapshot, m.ID)
	}
	if _, same := get[Migration](v.db, tableMigrations, byAge, newest(m.Number)); same {
		return fmt.Errorf("%w: migration %q was declared with another", ErrSnapshot, m.ID)
	}
	if m.Done() {
		_, same := get[Migration](v.db, tableMigrations, byEnd, number8(m.EndNumber))
		if same || m.EndNumber == 0 {
			return fmt.Errorf("%w: migration %q has ended with another, or never", ErrSnapshot, m.ID)
		}
	} else if err := s.restoreLive(m); err != nil {
		return err
	}
	s.put(tableMigrations, &m)
	s.head.migrations++
	return nil
}

// restoreLive demands of a migration that has not ended that its lanes are where it says, in cells that exist, and that it is the tenant's only one.
func (s *State) restoreLive(m Migration) error {
	v := s.View()
	for i, a := range v.Homes(m.Tenant) {
		if a.Cell == "" || !m.Names(a.Cell) || a.Cell != m.Lanes[i].Owner || a.Epoch != m.Lanes[i].Epoch {
			return fmt.Errorf("%w: lane %d of migration %q is not where that says", ErrSnapshot, i, m.ID)
		}
	}
	for _, id := range []cell.ID{m.Source, m.Target} {
		if _, ok := v.Cell(id); !ok {
			return fmt.Errorf("%w: cell %q of migration %q is missing", ErrSnapshot, id, m.ID)
		}
	}
	if latest, ok := v.MigrationOf(m.Tenant); ok && (!latest.Done() || latest.Number > m.Number) || m.EndNumber != 0 {
		return fmt.Errorf("%w: migration %q is not the latest of its tenant, or has ended and not", ErrSnapshot, m.ID)
	}
	s.head.live++
	return nil
}

func restoreText(m *Migration, num int, b []byte) bool {
	if b == nil {
		return false
	}
	switch num {
	case 1:
		m.ID = cell.MigrationID(b)
	case 2:
		m.Tenant = cell.TenantID(b)
	case 3:
		m.Source = cell.ID(b)
	case 4:
		m.Target = cell.ID(b)
	case 5:
		m.Reason = string(b)
	case 6:
		m.Actor = string(b)
	case 9:
		m.Held = string(b)
	default:
		return false
	}
	return true
}

// restoreMark sets a number. What a later release knows more states or classes than this one for is refused.
func restoreMark(m *Migration, num int, n uint64) bool {
	switch num {
	case 8:
		m.State = migrate.State(n)
		return n >= uint64(migrate.Declared) && n <= uint64(migrate.RolledBack)
	case 10:
		m.Attempt = uint32(n)
	case 11:
		m.Generation = n
	case 12, 13:
		m.Order[num-12] = cell.Class(n)
		return n <= uint64(cell.ClassBatch)
	case 18:
		m.Created = cell.Instant(n)
	case 19:
		m.Entered = cell.Instant(n)
	case 20:
		m.Ended = cell.Instant(n)
	case 22:
		m.Number = n
	case 23:
		m.EndNumber = n
	case 24, 25:
		m.Groups[num-24] = n
	case 28:
		m.Retries = uint32(n)
	case 29:
		m.GatesAt = cell.Instant(n)
	case 30:
		m.Resumed = cell.Instant(n)
	default:
		return false
	}
	return true
}

func restorePart(m *Migration, num int, b []byte) bool {
	switch num {
	case 7:
		return restoreOptions(&m.Options, b)
	case 14, 15:
		return restoreLane(&m.Lanes[num-14], b)
	case 16:
		return restoreGate(&m.Gates, b)
	case 17:
		return restoreProgress(&m.Progress, b)
	case 21:
		return restoreNote(&m.Notes, b)
	case 26, 27:
		return restoreUsed(&m.used[num-26], b)
	default:
		return false
	}
}

func appendOptions(b []byte, o migrate.Options) []byte {
	if o.Manual {
		b = number(b, 1, 1)
	}
	b = number(b, 2, uint64(o.PauseMax))
	b = number(b, 3, uint64(o.CanaryJobs))
	b = number(b, 4, uint64(o.CanaryTime))
	b = number(b, 5, uint64(o.RollbackWindow))
	b = number(b, 6, uint64(o.BytesPerSecond))
	return number(b, 7, uint64(int64(o.Priority)))
}

func restoreOptions(o *migrate.Options, body []byte) bool {
	return nil == fields(body, func(num int, n uint64, _ []byte) bool {
		switch num {
		case 1:
			o.Manual = n == 1
			return o.Manual
		case 2:
			o.PauseMax = time.Duration(n)
		case 3:
			o.CanaryJobs = int64(n)
		case 4:
			o.CanaryTime = time.Duration(n)
		case 5:
			o.RollbackWindow = time.Duration(n)
		case 6:
			o.BytesPerSecond = int64(n)
		case 7:
			o.Priority = int32(int64(n))
			return int64(o.Priority) == int64(n)
		default:
			return false
		}
		return true
	})
}

func appendLane(b []byte, l migrate.Lane) []byte {
	b = number(b, 1, uint64(l.Phase))
	b = text(b, 2, string(l.Owner))
	b = number(b, 3, uint64(l.Epoch))
	b = number(b, 4, l.Position)
	b = number(b, 5, l.Change)
	if l.Digest != [len(l.Digest)]byte{} {
		b = text(b, 6, string(l.Digest[:]))
	}
	b = number(b, 7, uint64(l.FencedAt))
	b = number(b, 8, uint64(l.CommittedAt))
	b = number(b, 9, uint64(l.ActivatedAt))
	b = number(b, 10, uint64(l.Pause))
	b = number(b, 11, uint64(l.Fences))
	if l.Allowed {
		b = number(b, 12, 1)
	}
	b = number(b, 13, uint64(l.Staged))
	b = number(b, 14, uint64(l.UnfencedAt))
	return number(b, 15, uint64(l.Wait))
}

func restoreLane(l *migrate.Lane, body []byte) bool {
	return nil == fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			l.Phase = migrate.Phase(n)
			return n >= uint64(migrate.AtSource) && n <= uint64(migrate.Returned)
		case 2:
			l.Owner = cell.ID(b)
		case 3:
			l.Epoch = cell.Epoch(n)
		case 4:
			l.Position = n
		case 5:
			l.Change = n
		case 6:
			copy(l.Digest[:], b)
			return len(b) == len(l.Digest)
		case 7:
			l.FencedAt = cell.Instant(n)
		case 8:
			l.CommittedAt = cell.Instant(n)
		case 9:
			l.ActivatedAt = cell.Instant(n)
		case 10:
			l.Pause = time.Duration(n)
		case 11:
			l.Fences = uint32(n)
		case 12:
			l.Allowed = n == 1
			return l.Allowed
		case 13:
			l.Staged = cell.Epoch(n)
		case 14:
			l.UnfencedAt = cell.Instant(n)
		case 15:
			l.Wait = time.Duration(n)
		default:
			return false
		}
		return true
	})
}

func restoreGate(to *[]migrate.Gate, body []byte) bool {
	var g migrate.Gate
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			g.Name = string(b)
		case 2:
			g.Verdict = migrate.Verdict(n)
			return n >= uint64(migrate.Pass) && n <= uint64(migrate.Fail)
		case 3:
			g.Evidence = string(b)
		default:
			return false
		}
		return true
	})
	*to = append(*to, g)
	return err == nil
}

func appendProgress(b []byte, p migrate.Progress) []byte {
	for i, n := range []int64{
		p.JobsTotal, p.JobsCopied, p.BytesCopied, p.LagRecords, p.LagBytes, int64(p.LagTime), p.BytesPerSecond, int64(p.At),
	} {
		b = number(b, protowire.Number(i+1), uint64(n))
	}
	if p.Throttled {
		b = number(b, 9, 1)
	}
	return b
}

func restoreProgress(p *migrate.Progress, body []byte) bool {
	return nil == fields(body, func(num int, n uint64, _ []byte) bool {
		switch num {
		case 1:
			p.JobsTotal = int64(n)
		case 2:
			p.JobsCopied = int64(n)
		case 3:
			p.BytesCopied = int64(n)
		case 4:
			p.LagRecords = int64(n)
		case 5:
			p.LagBytes = int64(n)
		case 6:
			p.LagTime = time.Duration(n)
		case 7:
			p.BytesPerSecond = int64(n)
		case 8:
			p.At = cell.Instant(n)
		case 9:
			p.Throttled = n == 1
			return p.Throttled
		default:
			return false
		}
		return true
	})
}

func appendNote(b []byte, n migrate.Note) []byte {
	b = number(b, 1, uint64(n.At))
	b = text(b, 2, n.Actor)
	b = text(b, 3, n.What)
	b = text(b, 4, n.Why)
	b = number(b, 5, uint64(n.Attempt))
	return number(b, 6, uint64(n.Epoch))
}

func restoreNote(to *[]migrate.Note, body []byte) bool {
	var note migrate.Note
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			note.At = cell.Instant(n)
		case 2:
			note.Actor = string(b)
		case 3:
			note.What = string(b)
		case 4:
			note.Why = string(b)
		case 5:
			note.Attempt = uint32(n)
		case 6:
			note.Epoch = cell.Epoch(n)
		default:
			return false
		}
		return true
	})
	*to = append(*to, note)
	return err == nil
}

func appendUsed(b []byte, h placement.HourSample) []byte {
	b = number(b, 1, uint64(h.Hour))
	b = appendLoad(b, 2, h.Average)
	b = appendLoad(b, 5, h.P95)
	return number(b, 8, uint64(h.Limited))
}

func restoreUsed(h *placement.HourSample, body []byte) bool {
	return nil == fields(body, func(num int, n uint64, _ []byte) bool {
		switch {
		case num == 1:
			h.Hour = int64(n)
		case num >= 2 && num <= 4:
			return setLoad(&h.Average, num-2, n)
		case num >= 5 && num <= 7:
			return setLoad(&h.P95, num-5, n)
		case num == 8:
			h.Limited = int64(n)
		default:
			return false
		}
		return true
	})
}
