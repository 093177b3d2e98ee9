package command

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
)

// ActorControl is who acts when control's leader does so by itself.
const ActorControl = "control"

// StartMigration declares a migration of a tenant whose lanes are both at home in the source. Whoever proposes it has filled in every option: a
// default that a later release changes would make replicas differ.
type StartMigration struct {
	ID             cell.MigrationID
	Tenant         cell.TenantID
	Source, Target cell.ID
	Reason         string // operator, whale, evacuate, return, rebalance
	Actor          string
	Why            string // a line for people; may be empty
	Options        migrate.Options
	Order          [2]cell.Class // in which they are switched
	// Expect is the epoch of each lane's assignment, by Class.Index, that it was decided on.
	Expect [2]cell.Epoch
	// TargetGeneration is that of the target's record that it was decided on; 0 for any.
	TargetGeneration uint64
	// Groups is the tenant's hand of the target's worker groups: bit i for group i+1.
	Groups uint64
	Time   cell.Instant
}

// AdvanceMigration adds an event to a migration. It takes effect only at the generation that it was decided on.
type AdvanceMigration struct {
	ID     cell.MigrationID
	Expect uint64        // the record's generation
	Event  migrate.Event // its time is the command's
}

// ForgetMigration drops the record of a migration that has ended.
type ForgetMigration struct {
	ID   cell.MigrationID
	Time cell.Instant
}

// Type implements [Command].
func (StartMigration) Type() Type { return TypeStartMigration }

// Type implements [Command].
func (AdvanceMigration) Type() Type { return TypeAdvanceMigration }

// Type implements [Command].
func (ForgetMigration) Type() Type { return TypeForgetMigration }

// At implements [Command].
func (c StartMigration) At() cell.Instant { return c.Time }

// At implements [Command].
func (c AdvanceMigration) At() cell.Instant { return c.Event.Time }

// At implements [Command].
func (c ForgetMigration) At() cell.Instant { return c.Time }

func (c StartMigration) check() error {
	return first(
		cell.CheckID("id", string(c.ID)),
		cell.CheckID("tenant", string(c.Tenant)),
		cell.CheckID("source", string(c.Source)),
		cell.CheckID("target", string(c.Target)),
		checkApart(c.Source, c.Target),
		cell.CheckID("reason", c.Reason),
		checkText("actor", c.Actor),
		checkLine("why", c.Why),
		checkOptions(c.Options),
		checkOrder(c.Order),
		checkTime(c.Time),
	)
}

func checkApart(source, target cell.ID) error {
	if source != target {
		return nil
	}
	return &cell.FieldError{Field: "target", Problem: fmt.Sprintf("is %s, where the tenant is", target), Remedy: "name another cell"}
}

// checkOptions demands that what has a default was given it. What is sensible is the proposer's to know: it may change, and logs stay.
func checkOptions(o migrate.Options) error {
	for _, n := range []struct {
		field        string
		value, least int64
	}{
		{"options.pause_max", int64(o.PauseMax), 1},
		{"options.bytes_per_second", o.BytesPerSecond, 1},
		{"options.canary_jobs", o.CanaryJobs, 0},
		{"options.canary_time", int64(o.CanaryTime), 0},
		{"options.rollback_window", int64(o.RollbackWindow), 0},
	} {
		if n.value < n.least {
			return &cell.FieldError{Field: n.field, Problem: fmt.Sprintf("is %d, below %d", n.value, n.least), Remedy: "fill in its default"}
		}
	}
	return nil
}

func checkOrder(order [2]cell.Class) error {
	if order[0].Valid() && order[1].Valid() && order[0] != order[1] {
		return nil
	}
	return &cell.FieldError{
		Field: "order", Problem: fmt.Sprintf("is %v, %v", order[0], order[1]), Remedy: "name each class once",
	}
}

func (c AdvanceMigration) check() error {
	e := c.Event
	switch {
	case e.Kind < migrate.EventPass || e.Kind > migrate.EventEnd:
		return &cell.FieldError{Field: "event", Problem: fmt.Sprintf("is of the kind %d, which is none", e.Kind), Remedy: "run the release that proposed it"}
	case e.Class != 0 && !e.Class.Valid():
		return &cell.FieldError{Field: "class", Problem: fmt.Sprintf("is %d", e.Class), Remedy: "name a class, or none where there is none to name"}
	case len(e.Gates) > migrate.GatesMax:
		return &cell.FieldError{
			Field: "gates", Problem: fmt.Sprintf("has %d entries, of at most %d", len(e.Gates), migrate.GatesMax), Remedy: "leave the oldest out",
		}
	case e.Pause < 0 || e.Wait < 0 || e.BytesPerSecond < 0:
		return &cell.FieldError{
			Field: "event", Problem: fmt.Sprintf("has a pause of %v, a wait of %v and %d bytes a second", e.Pause, e.Wait, e.BytesPerSecond),
			Remedy: "give amounts of 0 or more",
		}
	}
	for i, g := range e.Gates {
		if err := checkGate(fmt.Sprintf("gates[%d]", i), g); err != nil {
			return err
		}
	}
	return first(
		cell.CheckID("id", string(c.ID)),
		checkText("actor", e.Actor),
		checkLine("why", e.Why),
		given(e.Progress, checkProgress),
		checkTime(e.Time),
	)
}

func checkGate(field string, g migrate.Gate) error {
	if g.Verdict < migrate.Pass || g.Verdict > migrate.Fail {
		return &cell.FieldError{Field: field + ".verdict", Problem: fmt.Sprintf("is %d", g.Verdict), Remedy: "give pass, warn or fail"}
	}
	return first(cell.CheckID(field+".name", g.Name), checkLine(field+".evidence", g.Evidence))
}

// checkLine takes a line of what a migration says to people.
func checkLine(field, s string) error {
	if strings.ContainsAny(s, "\n\t") {
		return &cell.FieldError{Field: field, Problem: "has more than one line, or a tab", Remedy: "say it on one line"}
	}
	return checkProse(field, s, migrate.EvidenceMax)
}

func checkProgress(p migrate.Progress) error {
	for _, n := range []int64{
		p.JobsTotal, p.JobsCopied, p.BytesCopied, p.LagRecords, p.LagBytes, int64(p.LagTime), p.BytesPerSecond, int64(p.At),
	} {
		if n < 0 {
			return &cell.FieldError{Field: "progress", Problem: fmt.Sprintf("has an amount of %d", n), Remedy: "give amounts of 0 or more"}
		}
	}
	return nil
}

func (c ForgetMigration) check() error {
	return first(cell.CheckID("id", string(c.ID)), checkTime(c.Time))
}

func (c StartMigration) body() []byte {
	b := appendText(nil, 1, string(c.ID))
	b = appendText(b, 2, string(c.Tenant))
	b = appendText(b, 3, string(c.Source))
	b = appendText(b, 4, string(c.Target))
	b = appendText(b, 5, c.Reason)
	b = appendText(b, 6, c.Actor)
	b = appendPart(b, 7, optionsBody(c.Options))
	b = appendUnsigned(b, 8, uint64(c.Order[0]))
	b = appendUnsigned(b, 9, uint64(c.Order[1]))
	b = appendUnsigned(b, 10, c.Expect[0])
	b = appendUnsigned(b, 11, c.Expect[1])
	b = appendUnsigned(b, 12, c.TargetGeneration)
	b = appendUnsigned(b, 13, c.Groups)
	b = appendNumber(b, 14, c.Time)
	return appendText(b, 15, c.Why)
}

func setStartMigration(c *StartMigration, f field) bool {
	switch {
	case f.is(1, bytes):
		c.ID = cell.MigrationID(f.b)
	case f.is(2, bytes):
		c.Tenant = cell.TenantID(f.b)
	case f.is(3, bytes):
		c.Source = cell.ID(f.b)
	case f.is(4, bytes):
		c.Target = cell.ID(f.b)
	case f.is(5, bytes):
		c.Reason = string(f.b)
	case f.is(6, bytes):
		c.Actor = string(f.b)
	case f.is(7, bytes):
		return setPart(&c.Options, f, setOptions)
	case f.is(15, bytes):
		c.Why = string(f.b)
	default:
		return setStartNumber(c, f)
	}
	return true
}

func setStartNumber(c *StartMigration, f field) bool {
	switch {
	case f.is(8, varint):
		return setClass(&c.Order[0], f)
	case f.is(9, varint):
		return setClass(&c.Order[1], f)
	case f.is(10, varint):
		c.Expect[0] = cell.Epoch(f.n)
	case f.is(11, varint):
		c.Expect[1] = cell.Epoch(f.n)
	case f.is(12, varint):
		c.TargetGeneration = f.n
	case f.is(13, varint):
		c.Groups = f.n
	case f.is(14, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

// setClass takes a class that this release does not have for a field that it does not know.
func setClass(c *cell.Class, f field) bool {
	*c = cell.Class(f.n)
	return f.n <= uint64(cell.ClassBatch)
}

func optionsBody(o migrate.Options) []byte {
	b := appendFlag(nil, 1, o.Manual)
	b = appendNumber(b, 2, int64(o.PauseMax))
	b = appendNumber(b, 3, o.CanaryJobs)
	b = appendNumber(b, 4, int64(o.CanaryTime))
	b = appendNumber(b, 5, int64(o.RollbackWindow))
	b = appendNumber(b, 6, o.BytesPerSecond)
	return appendNumber(b, 7, int64(o.Priority))
}

func setOptions(o *migrate.Options, f field) bool {
	switch {
	case f.is(1, varint):
		o.Manual = f.n != 0
	case f.is(2, varint):
		o.PauseMax = time.Duration(f.n)
	case f.is(3, varint):
		o.CanaryJobs = int64(f.n)
	case f.is(4, varint):
		o.CanaryTime = time.Duration(f.n)
	case f.is(5, varint):
		o.RollbackWindow = time.Duration(f.n)
	case f.is(6, varint):
		o.BytesPerSecond = int64(f.n)
	case f.is(7, varint):
		o.Priority = int32(int64(f.n))
		return int64(o.Priority) == int64(f.n)
	default:
		return false
	}
	return true
}

func (c AdvanceMigration) body() []byte {
	b := appendText(nil, 1, string(c.ID))
	b = appendUnsigned(b, 2, c.Expect)
	return appendPart(b, 3, eventBody(c.Event))
}

func setAdvanceMigration(c *AdvanceMigration, f field) bool {
	switch {
	case f.is(1, bytes):
		c.ID = cell.MigrationID(f.b)
	case f.is(2, varint):
		c.Expect = f.n
	case f.is(3, bytes):
		return setPart(&c.Event, f, setEvent)
	default:
		return false
	}
	return true
}

func eventBody(e migrate.Event) []byte {
	b := appendUnsigned(nil, 1, uint64(e.Kind))
	b = appendUnsigned(b, 2, uint64(e.Attempt))
	b = appendNumber(b, 3, e.Time)
	b = appendText(b, 4, e.Actor)
	b = appendText(b, 5, e.Why)
	b = appendUnsigned(b, 6, uint64(e.Class))
	b = appendUnsigned(b, 7, e.Position)
	b = appendUnsigned(b, 8, e.Change)
	if e.Digest != [len(e.Digest)]byte{} {
		b = appendBytes(b, 9, e.Digest[:])
	}
	b = appendNumber(b, 10, int64(e.Pause))
	for _, g := range e.Gates {
		b = appendBytes(b, 11, gateBody(g))
	}
	if e.Progress != nil {
		b = appendBytes(b, 12, progressBody(*e.Progress))
	}
	b = appendNumber(b, 13, e.BytesPerSecond)
	b = appendUnsigned(b, 14, e.Floor[0])
	b = appendUnsigned(b, 15, e.Floor[1])
	return appendNumber(b, 16, int64(e.Wait))
}

func setEvent(e *migrate.Event, f field) bool {
	switch {
	case f.is(1, varint):
		e.Kind = migrate.Kind(f.n)
		return uint64(e.Kind) == f.n
	case f.is(2, varint):
		e.Attempt = uint32(f.n)
		return uint64(e.Attempt) == f.n
	case f.is(3, varint):
		e.Time = cell.Instant(f.n)
	case f.is(4, bytes):
		e.Actor = string(f.b)
	case f.is(5, bytes):
		e.Why = string(f.b)
	case f.is(6, varint):
		return setClass(&e.Class, f)
	case f.is(7, varint):
		e.Position = f.n
	case f.is(8, varint):
		e.Change = f.n
	default:
		return setEventRest(e, f)
	}
	return true
}

func setEventRest(e *migrate.Event, f field) bool {
	switch {
	case f.is(9, bytes) && len(f.b) == len(e.Digest):
		e.Digest = [len(e.Digest)]byte(f.b)
	case f.is(10, varint):
		e.Pause = time.Duration(f.n)
	case f.is(11, bytes):
		return addPart(&e.Gates, f, setGate)
	case f.is(12, bytes):
		e.Progress = new(migrate.Progress)
		return setPart(e.Progress, f, setProgress)
	case f.is(13, varint):
		e.BytesPerSecond = int64(f.n)
	case f.is(14, varint):
		e.Floor[0] = cell.Epoch(f.n)
	case f.is(15, varint):
		e.Floor[1] = cell.Epoch(f.n)
	case f.is(16, varint):
		e.Wait = time.Duration(f.n)
	default:
		return false
	}
	return true
}

func gateBody(g migrate.Gate) []byte {
	b := appendText(nil, 1, g.Name)
	b = appendUnsigned(b, 2, uint64(g.Verdict))
	return appendText(b, 3, g.Evidence)
}

func setGate(g *migrate.Gate, f field) bool {
	switch {
	case f.is(1, bytes):
		g.Name = string(f.b)
	case f.is(2, varint):
		g.Verdict = migrate.Verdict(f.n)
		return uint64(g.Verdict) == f.n
	case f.is(3, bytes):
		g.Evidence = string(f.b)
	default:
		return false
	}
	return true
}

func progressBody(p migrate.Progress) []byte {
	var b []byte
	for i, n := range []int64{
		p.JobsTotal, p.JobsCopied, p.BytesCopied, p.LagRecords, p.LagBytes, int64(p.LagTime), p.BytesPerSecond,
	} {
		b = appendNumber(b, protowire.Number(i+1), n)
	}
	b = appendFlag(b, 8, p.Throttled)
	return appendNumber(b, 9, p.At)
}

func setProgress(p *migrate.Progress, f field) bool {
	n := int64(f.n)
	switch {
	case f.typ != varint:
		return false
	case f.num == 1:
		p.JobsTotal = n
	case f.num == 2:
		p.JobsCopied = n
	case f.num == 3:
		p.BytesCopied = n
	case f.num == 4:
		p.LagRecords = n
	case f.num == 5:
		p.LagBytes = n
	case f.num == 6:
		p.LagTime = time.Duration(n)
	case f.num == 7:
		p.BytesPerSecond = n
	case f.num == 8:
		p.Throttled = n != 0
	case f.num == 9:
		p.At = cell.Instant(n)
	default:
		return false
	}
	return true
}

func (c ForgetMigration) body() []byte {
	return appendNumber(appendText(nil, 1, string(c.ID)), 2, c.Time)
}

func setForgetMigration(c *ForgetMigration, f field) bool {
	switch {
	case f.is(1, bytes):
		c.ID = cell.MigrationID(f.b)
	case f.is(2, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

// byOperator reports whether a kind is one that an operator can ask for: what is audited whoever did it.
func byOperator(k migrate.Kind) bool {
	switch k {
	case migrate.EventHold, migrate.EventResume, migrate.EventAllow, migrate.EventThrottle, migrate.EventAbort, migrate.EventReverse, migrate.EventComplete:
		return true
	case migrate.EventPass, migrate.EventProgress, migrate.EventGates, migrate.EventFence, migrate.EventUnfence, migrate.EventCommit,
		migrate.EventActivate, migrate.EventObserved, migrate.EventRestart, migrate.EventReverseFence, migrate.EventReverseCommit,
		migrate.EventReverseActivate, migrate.EventEnd:
		return false
	default:
		return false
	}
}

// Audits reports whether a command that took effect is in the audit: all are but the steps that control takes by itself in a migration, which are
// in the migration's notes.
func Audits(c Audited) bool {
	advance, ok := c.Command.(AdvanceMigration)
	return !ok || c.Actor != ActorControl || byOperator(advance.Event.Kind)
}

func advanceDetail(c AdvanceMigration) []string {
	class := ""
	if c.Event.Class.Valid() {
		class = c.Event.Class.String()
	}
	return []string{
		word("event", c.Event.Kind.String()), word("class", class), count("attempt", uint64(c.Event.Attempt)),
		count("bytes_per_second", c.Event.BytesPerSecond), quoted("why", c.Event.Why),
	}
}

func startDetail(c StartMigration) []string {
	return []string{
		word("tenant", string(c.Tenant)), word("source", string(c.Source)), word("target", string(c.Target)), word("reason", c.Reason),
		yes("manual", c.Options.Manual), duration("pause_max", c.Options.PauseMax), count("bytes_per_second", c.Options.BytesPerSecond),
		count("priority", int64(c.Options.Priority)), quoted("why", c.Why),
	}
}
