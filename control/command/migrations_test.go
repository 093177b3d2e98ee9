package command

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
)

// migrationCorpus is the part of the corpus that came with migrations.
func migrationCorpus() map[string]Command {
	advance := func(e migrate.Event) AdvanceMigration {
		e.Time, e.Attempt, e.Actor = 20, 2, ActorControl
		return AdvanceMigration{ID: "m_1", Expect: 7, Event: e}
	}
	gates := []migrate.Gate{{Name: "capacity", Verdict: migrate.Pass, Evidence: "41 % of é"}, {Name: "lag", Verdict: migrate.Fail}}
	all := map[string]Command{
		"start-migration": StartMigration{
			ID: "m_1", Tenant: "acme", Source: "eu-1", Target: "eu-2", Reason: "operator", Actor: "key_1", Why: `it "grew"`,
			Options: migrate.Options{
				Manual: true, PauseMax: 2 * time.Second, CanaryJobs: 100, CanaryTime: 30 * time.Second, RollbackWindow: 24 * time.Hour,
				BytesPerSecond: 16 << 20, Priority: -3,
			},
			Order: [2]cell.Class{cell.ClassBatch, cell.ClassInteractive}, Expect: [2]cell.Epoch{1<<32 + 3, 4}, TargetGeneration: 5, Groups: 1<<63 | 1, Time: 19,
		},
		"start-migration-least": StartMigration{
			ID: "m", Tenant: "a", Source: "b", Target: "c", Reason: "whale", Options: migrate.Options{PauseMax: 1, BytesPerSecond: 1},
			Order: cell.Classes(), Time: 19,
		},
		"advance-migration-commit": advance(migrate.Event{
			Kind: migrate.EventCommit, Class: cell.ClassBatch, Position: 1 << 40, Change: 9, Digest: [32]byte{0: 0xab, 1: 0xcd, 31: 1},
		}),
		"advance-migration-activate": advance(migrate.Event{Kind: migrate.EventActivate, Class: cell.ClassInteractive, Pause: 83 * time.Millisecond}),
		"advance-migration-gates":    advance(migrate.Event{Kind: migrate.EventGates, Gates: gates, Why: "lag"}),
		"advance-migration-progress": advance(migrate.Event{Kind: migrate.EventProgress, Progress: &migrate.Progress{
			JobsTotal: 1, JobsCopied: 2, BytesCopied: 3, LagRecords: 4, LagBytes: 5, LagTime: 6, BytesPerSecond: 7, Throttled: true, At: 8,
		}}),
		"advance-migration-no-progress": advance(migrate.Event{Kind: migrate.EventProgress, Progress: &migrate.Progress{}}),
		"advance-migration-staged":      advance(migrate.Event{Kind: migrate.EventPass, Floor: [2]cell.Epoch{1 << 33, 4}}),
		"advance-migration-fence":       advance(migrate.Event{Kind: migrate.EventFence, Class: cell.ClassBatch, Wait: time.Second, Gates: gates[:1]}),
		"advance-migration-throttle":    advance(migrate.Event{Kind: migrate.EventThrottle, BytesPerSecond: 1 << 20}),
		"audited-migration":             Audited{Actor: "key_1", Command: advance(migrate.Event{Kind: migrate.EventAbort, Why: `not "now"`})},
		"forget-migration":              ForgetMigration{ID: "m_1", Time: 21},
	}
	for k := migrate.EventPass; k <= migrate.EventEnd; k++ {
		all["advance-migration-kind-"+k.String()] = advance(migrate.Event{Kind: k})
	}
	return all
}

// anyMigrationCommand draws one of the commands that came with migrations, also those that Check refuses.
func anyMigrationCommand(t *rapid.T) Command {
	str := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z][a-z0-9._:-]{0,10}`))
	num := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 10))
	unsigned := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 10))
	span := func(name string) time.Duration { return time.Duration(num.Draw(t, name)) }
	class := func() cell.Class { return cell.Class(rapid.IntRange(0, int(cell.ClassBatch)).Draw(t, "class")) }
	id, at := cell.MigrationID(str.Draw(t, "id")), cell.Instant(num.Draw(t, "time"))
	switch rapid.IntRange(0, 2).Draw(t, "type") {
	case 0:
		return StartMigration{
			ID: id, Tenant: cell.TenantID(str.Draw(t, "tenant")), Source: cell.ID(str.Draw(t, "source")), Target: cell.ID(str.Draw(t, "target")),
			Reason: str.Draw(t, "reason"), Actor: str.Draw(t, "actor"), Why: str.Draw(t, "why"), Order: [2]cell.Class{class(), class()},
			Options: migrate.Options{
				Manual: rapid.Bool().Draw(t, "manual"), PauseMax: span("pause"), CanaryJobs: num.Draw(t, "canary"), CanaryTime: span("canary"),
				RollbackWindow: span("window"), BytesPerSecond: num.Draw(t, "bytes"), Priority: rapid.Int32().Draw(t, "priority"),
			},
			Expect:           [2]cell.Epoch{cell.Epoch(unsigned.Draw(t, "epoch")), cell.Epoch(unsigned.Draw(t, "epoch"))},
			TargetGeneration: unsigned.Draw(t, "generation"), Groups: unsigned.Draw(t, "groups"), Time: at,
		}
	case 1:
		e := migrate.Event{
			Kind: migrate.Kind(rapid.Uint8().Draw(t, "kind")), Attempt: rapid.Uint32().Draw(t, "attempt"), Time: at, Actor: str.Draw(t, "actor"),
			Why: str.Draw(t, "why"), Class: class(), Position: unsigned.Draw(t, "position"), Change: unsigned.Draw(t, "change"), Pause: span("pause"),
			BytesPerSecond: num.Draw(t, "bytes"), Wait: span("wait"),
			Floor: [2]cell.Epoch{cell.Epoch(unsigned.Draw(t, "floor")), cell.Epoch(unsigned.Draw(t, "floor"))},
			Progress: maybe(t, rapid.Just(migrate.Progress{
				JobsTotal: num.Draw(t, "total"), JobsCopied: num.Draw(t, "copied"), BytesCopied: num.Draw(t, "bytes"), LagRecords: num.Draw(t, "lag"),
				LagBytes: num.Draw(t, "lag"), LagTime: span("lag"), BytesPerSecond: num.Draw(t, "rate"), Throttled: rapid.Bool().Draw(t, "throttled"), At: at,
			})),
		}
		copy(e.Digest[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
		for range rapid.IntRange(0, 3).Draw(t, "gates") {
			e.Gates = append(e.Gates, migrate.Gate{
				Name: str.Draw(t, "gate"), Verdict: migrate.Verdict(rapid.Uint8().Draw(t, "verdict")), Evidence: str.Draw(t, "evidence"),
			})
		}
		return AdvanceMigration{id, unsigned.Draw(t, "expect"), e}
	default:
		return ForgetMigration{id, at}
	}
}

func TestCheckMigration(t *testing.T) {
	start := func(change func(*StartMigration)) Command { return with("start-migration", change) }
	gates := func(change func(*migrate.Event)) Command {
		return with("advance-migration-gates", func(c *AdvanceMigration) {
			c.Event.Gates = append([]migrate.Gate{}, c.Event.Gates...)
			change(&c.Event)
		})
	}
	longest := strings.Repeat("x", migrate.EvidenceMax)
	for name, c := range map[string]struct {
		command Command
		field   string // of the fault, "" for none
	}{
		"no id":               {start(func(c *StartMigration) { c.ID = "" }), "id"},
		"no tenant":           {start(func(c *StartMigration) { c.Tenant = "" }), "tenant"},
		"no source":           {start(func(c *StartMigration) { c.Source = "" }), "source"},
		"bad target":          {start(func(c *StartMigration) { c.Target = "a b" }), "target"},
		"nowhere":             {start(func(c *StartMigration) { c.Target = c.Source }), "target"},
		"no reason":           {start(func(c *StartMigration) { c.Reason = "" }), "reason"},
		"actor":               {start(func(c *StartMigration) { c.Actor = "\x1b" }), "actor"},
		"why, two lines":      {start(func(c *StartMigration) { c.Why = "a\nb" }), "why"},
		"why, longest":        {start(func(c *StartMigration) { c.Why = longest }), ""},
		"why, longer":         {start(func(c *StartMigration) { c.Why = longest + "x" }), "why"},
		"no pause":            {start(func(c *StartMigration) { c.Options.PauseMax = 0 }), "options.pause_max"},
		"no bytes":            {start(func(c *StartMigration) { c.Options.BytesPerSecond = 0 }), "options.bytes_per_second"},
		"canary":              {start(func(c *StartMigration) { c.Options.CanaryJobs = -1 }), "options.canary_jobs"},
		"canary time":         {start(func(c *StartMigration) { c.Options.CanaryTime = -1 }), "options.canary_time"},
		"window":              {start(func(c *StartMigration) { c.Options.RollbackWindow = -1 }), "options.rollback_window"},
		"one class":           {start(func(c *StartMigration) { c.Order[1] = c.Order[0] }), "order"},
		"no class":            {start(func(c *StartMigration) { c.Order[1] = 0 }), "order"},
		"no time":             {start(func(c *StartMigration) { c.Time = 0 }), "time"},
		"event, no id":        {AdvanceMigration{Event: migrate.Event{Kind: migrate.EventPass, Time: 1}}, "id"},
		"event, no kind":      {AdvanceMigration{ID: "m", Event: migrate.Event{Time: 1}}, "event"},
		"event, later kind":   {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: 200, Time: 1}}, "event"},
		"event, no time":      {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: migrate.EventPass}}, "time"},
		"event, later class":  {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: migrate.EventFence, Class: 3, Time: 1}}, "class"},
		"event, pause":        {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: migrate.EventActivate, Pause: -1, Time: 1}}, "event"},
		"event, wait":         {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: migrate.EventFence, Wait: -1, Time: 1}}, "event"},
		"event, actor":        {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: migrate.EventAbort, Actor: "\n", Time: 1}}, "actor"},
		"event, why":          {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: migrate.EventAbort, Why: longest + "x", Time: 1}}, "why"},
		"progress":            {AdvanceMigration{ID: "m", Event: migrate.Event{Kind: migrate.EventProgress, Progress: &migrate.Progress{LagTime: -1}, Time: 1}}, "progress"},
		"most gates":          {gates(func(e *migrate.Event) { e.Gates = manyGates(migrate.GatesMax) }), ""},
		"more gates":          {gates(func(e *migrate.Event) { e.Gates = manyGates(migrate.GatesMax + 1) }), "gates"},
		"gate, no name":       {gates(func(e *migrate.Event) { e.Gates[1].Name = "" }), "gates[1].name"},
		"gate, no verdict":    {gates(func(e *migrate.Event) { e.Gates[1].Verdict = 0 }), "gates[1].verdict"},
		"gate, long evidence": {gates(func(e *migrate.Event) { e.Gates[0].Evidence = longest + "x" }), "gates[0].evidence"},
		"gate, two lines":     {gates(func(e *migrate.Event) { e.Gates[0].Evidence = "a\nb" }), "gates[0].evidence"},
		"forget, no id":       {ForgetMigration{Time: 1}, "id"},
		"forget, no time":     {ForgetMigration{ID: "m"}, "time"},
		"evacuate, open":      {with("set-cell-phase-evacuate", func(c *SetCellPhase) { c.Phase = 2 }), "phase"},
	} {
		err := Check(c.command)
		fe, ok := errors.AsType[*cell.FieldError](err)
		if c.field == "" && err != nil || c.field != "" && (!ok || fe.Field != c.field || fe.Remedy == "") {
			t.Errorf("%s: %v, want a fault in %q", name, err, c.field)
		}
	}
	for name, c := range migrationCorpus() {
		if err := Check(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func manyGates(n int) []migrate.Gate {
	gates := make([]migrate.Gate, n)
	for i := range gates {
		gates[i] = migrate.Gate{Name: "g", Verdict: migrate.Pass}
	}
	return gates
}

// What a class, a kind or a part of a later release says is unknown as a whole: applying the rest of it would be another migration.
func TestMigrationPartsRefused(t *testing.T) {
	event := func(body []byte) []byte { return appendBytes(nil, 3, body) }
	for name, c := range map[string]struct {
		typ  Type
		body []byte
	}{
		"later class":     {TypeStartMigration, appendVarint(nil, 8, 3)},
		"later option":    {TypeStartMigration, appendBytes(nil, 7, appendVarint(nil, 8, 1))},
		"huge priority":   {TypeStartMigration, appendBytes(nil, 7, appendVarint(nil, 7, 1<<40))},
		"later kind":      {TypeAdvanceMigration, event(appendVarint(nil, 1, 300))},
		"huge attempt":    {TypeAdvanceMigration, event(appendVarint(nil, 2, 1<<40))},
		"event's class":   {TypeAdvanceMigration, event(appendVarint(nil, 6, 3))},
		"short digest":    {TypeAdvanceMigration, event(appendBytes(nil, 9, []byte{1}))},
		"later in gate":   {TypeAdvanceMigration, event(appendBytes(nil, 11, appendVarint(nil, 4, 1)))},
		"huge verdict":    {TypeAdvanceMigration, event(appendBytes(nil, 11, appendVarint(nil, 2, 1<<9)))},
		"text, a number":  {TypeAdvanceMigration, event(appendBytes(nil, 12, appendBytes(nil, 1, []byte("x"))))},
		"later, progress": {TypeAdvanceMigration, event(appendBytes(nil, 12, appendVarint(nil, 10, 1)))},
		"later, event":    {TypeAdvanceMigration, event(appendVarint(nil, 17, 1))},
		"cut off":         {TypeAdvanceMigration, event([]byte{0x08})},
		"later, forget":   {TypeForgetMigration, appendVarint(nil, 3, 1)},
	} {
		_, err := Decode(encodeEnvelope(envelope{typ: c.typ, version: 1, body: c.body}))
		if _, ok := errors.AsType[*UnknownError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever an operator asks for is audited, and of what control does by itself only what an operator could have asked for.
func TestAudits(t *testing.T) {
	asked := map[migrate.Kind]bool{
		migrate.EventHold: true, migrate.EventResume: true, migrate.EventAllow: true, migrate.EventThrottle: true, migrate.EventAbort: true,
		migrate.EventReverse: true, migrate.EventComplete: true,
	}
	for k := migrate.EventPass; k <= migrate.EventEnd; k++ {
		c := AdvanceMigration{ID: "m", Event: migrate.Event{Kind: k}}
		if got := Audits(Audited{ActorControl, c}); got != asked[k] {
			t.Errorf("%s by control: %v", k, got)
		}
		if !Audits(Audited{"key_1", c}) {
			t.Errorf("%s by a key is not audited", k)
		}
	}
	for _, c := range []Command{StartMigration{}, ForgetMigration{}, Assign{}} {
		if !Audits(Audited{ActorControl, c}) {
			t.Errorf("%T by control is not audited", c)
		}
	}
	if byOperator(migrate.EventEnd + 1) {
		t.Error("a kind that there is not can be asked for")
	}
}

// Every field of what a command carries is written: one that package migrate gets is not forgotten here.
func TestEveryFieldIsWritten(t *testing.T) {
	start, event := StartMigration{}, migrate.Event{Progress: &migrate.Progress{}, Gates: []migrate.Gate{{}}}
	fill(reflect.ValueOf(&start).Elem(), 1)
	fill(reflect.ValueOf(&event).Elem(), 1)
	for _, c := range []Command{start, AdvanceMigration{ID: "m", Expect: 1, Event: event}} {
		got, err := Decode(Encode(c))
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v becomes %+v, %v", c, got, err)
		}
	}
}

// fill sets everything in v to what is not zero, and to what is next to it.
func fill(v reflect.Value, n int) int {
	switch v.Kind() { //nolint:exhaustive // those that there are
	case reflect.Struct:
		for _, f := range v.Fields() {
			n = fill(f, n)
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			n = fill(v.Index(i), n)
		}
	case reflect.Pointer:
		return fill(v.Elem(), n)
	case reflect.String:
		v.SetString(strings.Repeat("x", n%50+1))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(n%2 + 1))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	default:
		v.SetInt(int64(n))
	}
	return n + 1
}

// A command keeps nothing of another's parts: what is decoded twice is two.
func TestProgressIsNotShared(t *testing.T) {
	data := Encode(migrationCorpus()["advance-migration-progress"])
	a, errA := Decode(data)
	b, errB := Decode(data)
	if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
		t.Fatal(errA, errB)
	}
	one, _ := a.(AdvanceMigration)
	two, _ := b.(AdvanceMigration)
	if one.Event.Progress == two.Event.Progress {
		t.Error("two commands share their progress")
	}
}
