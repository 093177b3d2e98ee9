package engine_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// goldenFacts are facts with every field set, each to another value. There is at least one of each kind: see TestGoldenIsWhole. Where fields were
// added since a kind was first written, the one called whole has them, and the one without has the bytes of before.
func goldenFacts() map[string]engine.Fact {
	id := cell.JobID{0x01, 0x93, 14: 0xaa, 15: 0xbb}
	token := engine.Token{Epoch: 7, Attempt: 3, Nonce: 0xdeadbeefcafe}
	spec := engine.Spec{
		Operation: "invoice.export", Payload: engine.Payload{Kind: engine.PayloadData, ContentType: "text/csv", Data: []byte("a,b\n")},
		Key: "order-17", Priority: -5, NotBefore: 1_700_000_000_000_000_001, Deadline: 1_800_000_000_000_000_002,
		ExecutionTimeout: 90 * time.Second, Cost: 123_456, Retry: engine.Retry{AttemptsMax: 25, DelayMin: time.Second, DelayMax: time.Hour},
		Labels:    []engine.Label{{Name: "team", Value: "billing"}, {Name: "zone", Value: ""}},
		Retention: 24 * time.Hour, Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
	whole := spec
	whole.Keys = []cell.ConcurrencyKey{{Key: "customer-7", Max: 3}, {Key: "bank", Max: 100_000}}
	whole.Resources, whole.Preemptible = &cell.Resources{1, 2, 3, 4, 5, 6, 7}, true
	limits := engine.Limits{
		LiveJobsMax: 1, LiveBytesMax: 2, FinishedBytesMax: 3, FinishedJobsMax: 4, KeyRecordsMax: 5, KeyWindow: 6, CrashesMax: 7,
		ErrorBytesMax: 8, TimersPerEntryMax: 9, FinishedCellBytesMax: 10,
	}
	wholeLimits := limits
	wholeLimits.EstimatesMax = 11
	lease := engine.Lease{
		Token: token, Session: "session-1", Worker: "host/4711", Channel: engine.ChannelReport, Sequence: 12, Duration: 30 * time.Second,
		Charged: 99, Private: true,
	}
	wholeLease := lease
	wholeLease.Tier = 3
	promised := cell.TenantPolicy{
		Tenant: "acme", Organization: "holding", Weight: 2500, Reservation: [2]cell.Rate{1_000_000, 2_500_000}, Limit: 9_000_000,
		Credit: cell.Credit{Max: 18_000_000_000, Refill: 100_000_000, Extra: 600_000_000}, RunningMax: 12,
		Starts: cell.StartRate{Jobs: 2, Per: 2 * time.Minute}, BacklogJobsMax: 1000, BacklogBytesMax: 1 << 30, Epoch: 9,
	}
	dealt := promised
	dealt.Groups = 1<<63 | 1<<3 | 1
	facts := goldenLaneFacts(dealt)
	maps.Copy(facts, map[string]engine.Fact{
		"submit-routed": &engine.SubmitFact{ID: id, Tenant: "acme", Class: cell.ClassBatch, BodyHash: [16]byte{1, 15: 2}, Spec: whole, Epoch: 11},
		"outcome-routed": &engine.OutcomeFact{
			ID: id, Token: token, Kind: engine.OutcomePreempt, Result: engine.Payload{Kind: engine.PayloadJSON, ContentType: "x/y", Data: []byte(`1`)},
			Error: "no luck", WakeAt: 6, Charged: 77, Used: &cell.Resources{7, 6, 5, 4, 3, 2, 1}, Ran: 9 * time.Millisecond, Epoch: 12,
		},
		"cancel-routed":   &engine.CancelFact{ID: id, Tenant: "acme", Charged: 88, Epoch: 13},
		"retry-routed":    &engine.RetryFact{ID: id, Tenant: "acme", Epoch: 14},
		"policy-whole":    &engine.PolicyFact{Policy: dealt},
		"policy-promised": &engine.PolicyFact{Policy: promised}, // of before there were hands
		"organization": &engine.OrganizationFact{Policy: cell.OrganizationPolicy{
			Organization: "holding", Weight: 3000, Reservation: [2]cell.Rate{2_000_000, 5_000_000}, Limit: 20_000_000, Epoch: 4,
		}},
		"limits-whole": &engine.LimitsFact{Limits: wholeLimits},
		"submit-whole": &engine.SubmitFact{ID: id, Tenant: "acme", Class: cell.ClassBatch, BodyHash: [16]byte{1, 15: 2}, Spec: whole},
		"outcome-whole": &engine.OutcomeFact{
			ID: id, Token: token, Kind: engine.OutcomePreempt, Result: engine.Payload{Kind: engine.PayloadJSON, ContentType: "x/y", Data: []byte(`1`)},
			Error: "no luck", WakeAt: 6, Charged: 77, Used: &cell.Resources{7, 6, 5, 4, 3, 2, 1}, Ran: 9 * time.Millisecond,
		},
		"outcome-cpu": &engine.OutcomeFact{ID: id, Token: token, Kind: engine.OutcomeSuccess, Charged: 77, Used: &cell.Resources{600_000}},
		"grant-whole": &engine.GrantFact{ID: id, Lease: wholeLease},
		"policy": &engine.PolicyFact{Policy: cell.TenantPolicy{
			Tenant: "acme", Weight: 2500, BacklogJobsMax: 1000, BacklogBytesMax: 1 << 30, Epoch: 9,
		}},
		"limits":       &engine.LimitsFact{Limits: limits},
		"submit":       &engine.SubmitFact{ID: id, Tenant: "acme", Class: cell.ClassBatch, BodyHash: [16]byte{1, 15: 2}, Spec: spec},
		"submit-least": &engine.SubmitFact{ID: id, Tenant: "a", Class: cell.ClassInteractive},
		"outcome": &engine.OutcomeFact{
			ID: id, Token: token, Kind: engine.OutcomeSuccess, Result: engine.Payload{Kind: engine.PayloadJSON, Data: []byte(`{"n":1}`)},
			Charged: 77,
		},
		"outcome-failure": &engine.OutcomeFact{ID: id, Token: token, Kind: engine.OutcomeFailure, Error: "connexion refusée", WakeAt: 5},
		"cancel":          &engine.CancelFact{ID: id, Tenant: "acme", Charged: 88},
		"retry":           &engine.RetryFact{ID: id, Tenant: "acme"},
		"grant":           &engine.GrantFact{ID: id, Lease: lease},
		"charge":          &engine.ChargeFact{ID: id, Token: token, Charged: 1 << 40},
	})
	return facts
}

// goldenLaneFacts are those of goldenFacts that are about a lane as a whole.
func goldenLaneFacts(policy cell.TenantPolicy) map[string]engine.Fact {
	lane := cell.Lane{Tenant: "acme", Class: cell.ClassBatch}
	move := cell.Move{Migration: "acme-to-big", Attempt: 2}
	return map[string]engine.Fact{
		"stage": &engine.StageFact{Lane: lane, Policy: policy, Move: move, Epoch: 31},
		"track": &engine.TrackFact{Lane: lane, Move: move, Off: true},
		"mode":  &engine.ModeFact{Lane: lane, Mode: cell.ModeStandby, Epoch: 32, Move: move, Share: 500},
		"import": &engine.ImportFact{
			Lane: lane, Move: move, Begin: engine.Cursor{Seeded: 1, Change: 2}, End: engine.Cursor{Seeded: engine.SeededAll, Change: 3},
			Records: []byte{1, 2, 3},
		},
		"wipe":  &engine.WipeFact{Lane: lane, Move: move, Max: 1000},
		"prove": &engine.ProveFact{Tenant: "acme", Move: move, Token: 0xfeed},
	}
}

// goldenWholeOf returns the name of the golden fact of a kind that has all of its fields, as it has grown over the versions.
func goldenWholeOf(facts map[string]engine.Fact, name string) string {
	kind, _, _ := strings.Cut(name, "-")
	for _, suffix := range []string{"-routed", "-whole"} {
		if _, ok := facts[kind+suffix]; ok {
			return kind + suffix
		}
	}
	return kind
}

func goldenAccount() engine.AccountFact {
	return engine.AccountFact{
		Lane: cell.Lane{Tenant: "acme", Class: cell.ClassBatch}, Account: cell.LaneAccount{Rounds: 4, Deficit: -1_000_000},
	}
}

// goldenAccounts are the accounts of an entry of every kind.
func goldenAccounts() *engine.Entry {
	whole := goldenAccount()
	whole.Account.Ahead = -3 * time.Second
	return &engine.Entry{
		Time: 1, Accounts: []engine.AccountFact{goldenAccount(), whole},
		TenantAccounts: []engine.TenantAccountFact{{Tenant: "acme", Account: cell.TenantAccount{
			LimitTag: 1_700_000_000_000_000_001, CreditTag: 1_700_000_000_000_000_002, Credit: 18_000_000, CreditAt: 1_700_000_000_000_000_003,
		}}},
		OrganizationAccounts: []engine.OrganizationAccountFact{{Organization: "holding", Account: cell.OrganizationAccount{
			Lanes: [2]cell.LaneAccount{{Rounds: 1, Deficit: -2, Ahead: 3}, {Rounds: 4, Deficit: -5, Ahead: -6}}, LimitTag: 7,
		}}},
	}
}

func goldenEntries() map[string]*engine.Entry {
	entries := map[string]*engine.Entry{
		"entry-empty":   {Time: 1_700_000_000_000_000_000},
		"entry-account": {Time: 1, Accounts: []engine.AccountFact{goldenAccount()}},
		"accounts":      goldenAccounts(),
	}
	whole := &engine.Entry{Time: 1_700_000_000_000_000_000, Accounts: []engine.AccountFact{goldenAccount(), goldenAccount()}}
	facts := goldenFacts()
	for _, name := range sortedKeys(facts) {
		entries["fact-"+name] = &engine.Entry{Time: 1_700_000_000_000_000_000, Facts: []engine.Fact{facts[name]}}
		if goldenAtFirst(name) {
			whole.Facts = append(whole.Facts, facts[name])
		}
	}
	entries["entry"] = whole
	return entries
}

// goldenAtFirst reports whether a golden fact is one of those that the first version's logs had.
func goldenAtFirst(name string) bool {
	later := []string{"organization", "outcome-cpu", "policy-promised", "stage", "track", "mode", "import", "wipe", "prove"}
	return !strings.HasSuffix(name, "-whole") && !strings.HasSuffix(name, "-routed") && !slices.Contains(later, name)
}

// golden returns the bytes in the file, in hexadecimal there; missing ones are added when asked for, and existing ones never changed.
func golden(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".hex")
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && *rewrite {
		var b strings.Builder
		for line := range slices.Chunk(now, 64) {
			fmt.Fprintf(&b, "%x\n", line)
		}
		text, err = []byte(b.String()), errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(b.String()), 0o600))
	}
	if err != nil {
		t.Fatalf("%v: run the test with -rewrite to add it", err)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenEntries holds the log's format: bytes once written decode to the same facts for ever, and as long as no field was added the same
// facts encode to the same bytes.
func TestGoldenEntries(t *testing.T) {
	for name, e := range goldenEntries() {
		t.Run(name, func(t *testing.T) {
			now := engine.AppendEntry(nil, e)
			old := golden(t, name, now)
			got, err := engine.DecodeEntry(old)
			if err != nil || !reflect.DeepEqual(got, e) {
				t.Errorf("the old bytes decode to %+v, %v\nwant %+v", got, err, e)
			}
			if !bytes.Equal(now, old) {
				t.Errorf("encodes to %x\nwas       %x", now, old)
			}
		})
	}
}

// TestGoldenIsWhole tells a kind of fact that has no golden bytes.
func TestGoldenIsWhole(t *testing.T) {
	seen := map[byte]bool{}
	for _, f := range goldenFacts() {
		seen[engine.AppendEntry(nil, &engine.Entry{Facts: []engine.Fact{f}})[3]] = true
	}
	for kind := range byte(100) { // 100 is an account
		known := !errors.Is(decodeError(withRecord(kind, nil)), engine.ErrFormat)
		if kind == 2 || kind == 3 || 10 <= kind && kind <= 14 { // whose class and kind may not be missing
			known = true
		}
		if known != seen[kind] {
			t.Errorf("kind %d: known %v, golden %v", kind, known, seen[kind])
		}
	}
	facts := goldenFacts()
	for name, f := range facts {
		if name != goldenWholeOf(facts, name) {
			continue
		}
		if zero := zeroField(reflect.ValueOf(f).Elem(), name); zero != "" {
			t.Errorf("%s is not set in the golden fact", zero)
		}
	}
	if zero := zeroField(reflect.ValueOf(goldenAccounts().TenantAccounts[0]), "account"); zero != "" {
		t.Errorf("%s is not set in the golden account", zero)
	}
	if zero := zeroField(reflect.ValueOf(goldenAccounts().OrganizationAccounts[0]), "account"); zero != "" {
		t.Errorf("%s is not set in the golden account", zero)
	}
}

func decodeError(b []byte) error {
	_, err := engine.DecodeEntry(b)
	return err
}

// withRecord returns an entry of one record.
func withRecord(kind byte, body []byte) []byte {
	b := []byte{1, 0, 1, kind}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// zeroField returns the path of a field that has its zero value.
func zeroField(v reflect.Value, path string) string {
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			if zero := zeroField(v.Field(i), path+"."+v.Type().Field(i).Name); zero != "" {
				return zero
			}
		}
		return ""
	}
	if v.IsZero() {
		return path
	}
	switch v.Kind() { //nolint:exhaustive // whatever else there is has nothing in it
	case reflect.Pointer:
		return zeroField(v.Elem(), path)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if zero := zeroField(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); zero != "" && v.Type().Elem().Kind() != reflect.Uint8 &&
				v.Type().Elem() != reflect.TypeFor[engine.Label]() {
				return zero
			}
		}
	}
	return ""
}

// goldenState is a state with something of everything in it.
func goldenState(t testing.TB) *engine.State {
	rows := tableRows()
	x := newFixture(t, fixtureLimits())
	rows["failed and dropped"](x)
	delete(rows, "failed and dropped")
	delete(rows, "failed, its key with another") // time passes in it, so that the waiting jobs would expire
	delete(rows, "forgotten, its key standing")
	x.must(&engine.LimitsFact{Limits: goldenLimits()})
	for i, row := range sortedKeys(rows) {
		x.id[0], x.key = byte(i+1), "key of "+row
		rows[row](x)
	}
	x.id[0] = 99
	f := x.submission()
	f.Spec.Key, f.Spec.Retention = "key of one forgotten", time.Second
	f.Spec.Labels = []engine.Label{{Name: "a", Value: "b"}}
	x.must(f)
	x.must(x.lease())
	x.must(x.outcome(engine.OutcomeSuccess))
	x.pass(start + 2*second)
	x.index++
	x.s.Apply(x.index, &engine.Entry{Accounts: []engine.AccountFact{goldenAccount()}})
	return x.s
}

func goldenLimits() engine.Limits {
	l := fixtureLimits()
	l.FinishedJobsMax, l.FinishedBytesMax = 50, 100_000
	return l
}

func snapshotOf(t testing.TB, s *engine.State) []byte {
	t.Helper()
	n, err := s.BeginSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for !errors.Is(err, io.EOF) {
		b, err = n.Next(b)
	}
	return b
}

// TestGoldenSnapshot holds the snapshot's format as TestGoldenEntries holds the log's: of a state of today, of one from before a cell learned
// what operations cost, and of one in which a tenant has a hand of worker groups.
func TestGoldenSnapshot(t *testing.T) {
	first := goldenState(t)
	first.Unlearn()
	dealt := goldenWhole(t)
	dealt.Apply(dealt.Index()+1, &engine.Entry{Facts: []engine.Fact{goldenFacts()["policy-whole"]}})
	states := map[string]*engine.State{"snapshot": first, "snapshot-whole": goldenWhole(t), "snapshot-dealt": dealt}
	for name, s := range states {
		for st := engine.Delayed; st <= engine.Quarantined; st++ {
			if s.Count(st) == 0 {
				t.Errorf("%s: no job in it is %v", name, st)
			}
		}
		now := snapshotOf(t, s)
		old := golden(t, name, now)
		restored, err := engine.Restore(engine.DefaultLimits(), bytes.NewReader(old))
		if err != nil {
			t.Fatal(name, err)
		}
		if err := restored.Check(); err != nil {
			t.Error(name, err)
		}
		if restored.Hash() != s.Hash() || restored.Limits() != s.Limits() {
			t.Errorf("%s: the old bytes restore to another state", name)
		}
		if !bytes.Equal(now, old) {
			t.Errorf("%s: the same state has other bytes now", name)
		}
	}
}

// goldenWhole is goldenState with everything that was added since the first version.
func goldenWhole(t testing.TB) *engine.State {
	s := goldenState(t)
	facts := goldenFacts()
	id := byte(0)
	apply := func(e *engine.Entry) {
		t.Helper()
		for i, r := range s.Apply(s.Index()+1, e).Results {
			if r.Err != nil {
				t.Fatalf("%T: %v", e.Facts[i], r.Err)
			}
		}
	}
	l := s.Limits()
	l.EstimatesMax = 2
	apply(&engine.Entry{Facts: []engine.Fact{facts["organization"], facts["policy-promised"], &engine.LimitsFact{Limits: l}}})
	for _, op := range []cell.Operation{"a", "b", "c"} {
		whole, ok := facts["submit-whole"].(*engine.SubmitFact)
		if !ok {
			t.Fatal("not a submission")
		}
		f := *whole
		id++
		f.ID[0], f.Spec.Key, f.Spec.Operation, f.Spec.NotBefore = 200+id, "", op, 0
		grant := &engine.GrantFact{ID: f.ID, Lease: engine.Lease{Token: engine.Token{Nonce: 5}, Session: "s", Worker: "w", Charged: 9, Tier: 1}}
		apply(&engine.Entry{Facts: []engine.Fact{&f, grant}})
		if op == "a" {
			continue
		}
		apply(&engine.Entry{Facts: []engine.Fact{&engine.OutcomeFact{
			ID: f.ID, Token: s.Job(f.ID).Lease.Token, Kind: engine.OutcomeFailure, Error: "no", Charged: 1000, Used: &cell.Resources{5, 6: 7}, Ran: time.Second,
		}}})
	}
	accounts := goldenAccounts()
	accounts.Time = s.Time() + 1
	apply(accounts)
	return s
}

func drawFact(t *rapid.T) engine.Fact {
	num := rapid.Int64()
	i32 := rapid.Int32()
	text := rapid.StringN(0, 12, 40)
	data := func(name string) []byte { // nil and empty are one in the log
		if b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, name); len(b) > 0 {
			return b
		}
		return nil
	}
	var id cell.JobID
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	token := engine.Token{
		Epoch: cell.Epoch(rapid.Uint64().Draw(t, "epoch")), Attempt: i32.Draw(t, "attempt"), Nonce: rapid.Uint64().Draw(t, "nonce"),
	}
	payload := func() engine.Payload {
		return engine.Payload{Kind: engine.PayloadKind(rapid.IntRange(0, 2).Draw(t, "kind")), ContentType: text.Draw(t, "type"), Data: data("data")}
	}
	tenant := cell.TenantID(text.Draw(t, "tenant"))
	cost := cell.Cost(num.Draw(t, "cost"))
	at := cell.Instant(num.Draw(t, "at"))
	rate := func(name string) cell.Rate { return cell.Rate(num.Draw(t, name)) }
	resources := func() *cell.Resources {
		var v cell.Resources
		for i := range rapid.IntRange(0, len(v)).Draw(t, "resources") {
			v[i] = num.Draw(t, "resource")
		}
		if v == (cell.Resources{}) { // nil and nothing are one in the log
			return nil
		}
		return &v
	}
	epoch := cell.Epoch(rapid.Uint64Range(0, 3).Draw(t, "routed"))
	lane := cell.Lane{Tenant: tenant, Class: cell.Class(rapid.IntRange(1, 2).Draw(t, "lane's class"))}
	move := cell.Move{Migration: cell.MigrationID(text.Draw(t, "migration")), Attempt: rapid.Uint32().Draw(t, "of the migration")}
	cursor := func() engine.Cursor {
		return engine.Cursor{Seeded: rapid.Uint64().Draw(t, "seeded"), Change: rapid.Uint64().Draw(t, "change")}
	}
	switch rapid.IntRange(1, 15).Draw(t, "fact") {
	case 10:
		return &engine.StageFact{Lane: lane, Policy: cell.TenantPolicy{Tenant: tenant, RunningMax: num.Draw(t, "running"), Groups: 1}, Move: move, Epoch: epoch}
	case 11:
		return &engine.TrackFact{Lane: lane, Move: move, Off: rapid.Bool().Draw(t, "off")}
	case 12:
		return &engine.ModeFact{
			Lane: lane, Mode: cell.Mode(rapid.IntRange(0, 4).Draw(t, "mode")), Epoch: epoch, Move: move, Share: i32.Draw(t, "share"),
		}
	case 13:
		return &engine.ImportFact{Lane: lane, Move: move, Begin: cursor(), End: cursor(), Records: data("records")}
	case 14:
		return &engine.WipeFact{Lane: lane, Move: move, Max: int(i32.Draw(t, "most"))}
	case 15:
		return &engine.ProveFact{Tenant: tenant, Move: move, Token: token.Nonce}
	case 1:
		f := &engine.PolicyFact{Policy: cell.TenantPolicy{
			Tenant: tenant, Weight: cell.Weight(num.Draw(t, "weight")), BacklogJobsMax: num.Draw(t, "jobs"), BacklogBytesMax: num.Draw(t, "bytes"),
			Epoch: token.Epoch,
		}}
		if p := &f.Policy; rapid.Bool().Draw(t, "promises") {
			p.Organization, p.Limit, p.RunningMax = cell.OrganizationID(text.Draw(t, "organization")), rate("limit"), num.Draw(t, "running")
			p.Reservation = [2]cell.Rate{rate("reservation"), rate("reservation")}
			p.Credit = cell.Credit{Max: cost, Refill: rate("refill"), Extra: rate("extra")}
			p.Starts = cell.StartRate{Jobs: num.Draw(t, "starts"), Per: time.Duration(at)}
			p.Groups = rapid.Uint64().Draw(t, "groups")
		}
		return f
	case 2:
		f := &engine.SubmitFact{ID: id, Tenant: tenant, Class: cell.Class(rapid.IntRange(1, 2).Draw(t, "class")), BodyHash: [16]byte(id), Epoch: epoch}
		f.Spec = engine.Spec{
			Operation: cell.Operation(text.Draw(t, "op")), Payload: payload(), Key: text.Draw(t, "key"), Priority: i32.Draw(t, "priority"),
			NotBefore: at, Deadline: -at, ExecutionTimeout: time.Duration(num.Draw(t, "time-out")), Cost: cost,
			Retry:     engine.Retry{AttemptsMax: i32.Draw(t, "max"), DelayMin: time.Duration(num.Draw(t, "min")), DelayMax: time.Duration(at)},
			Retention: time.Duration(num.Draw(t, "retention")), Traceparent: text.Draw(t, "trace"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "labels") {
			f.Spec.Labels = append(f.Spec.Labels, engine.Label{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			f.Spec.Keys = append(f.Spec.Keys, cell.ConcurrencyKey{Key: text.Draw(t, "key"), Max: num.Draw(t, "max")})
		}
		f.Spec.Resources, f.Spec.Preemptible = resources(), rapid.Bool().Draw(t, "preemptible")
		return f
	case 3:
		return &engine.OutcomeFact{
			ID: id, Token: token, Kind: engine.OutcomeKind(rapid.IntRange(1, 7).Draw(t, "outcome")), Result: payload(),
			Error: text.Draw(t, "error"), WakeAt: at, Charged: cost, Used: resources(), Ran: time.Duration(cost),
			Epoch: epoch,
		}
	case 4:
		return &engine.CancelFact{ID: id, Tenant: tenant, Charged: cost, Epoch: epoch}
	case 5:
		return &engine.RetryFact{ID: id, Tenant: tenant, Epoch: epoch}
	case 6:
		return &engine.GrantFact{ID: id, Lease: engine.Lease{
			Token: token, Session: text.Draw(t, "session"), Worker: text.Draw(t, "worker"), Channel: engine.Channel(rapid.Byte().Draw(t, "channel")),
			Sequence: num.Draw(t, "sequence"), Duration: time.Duration(num.Draw(t, "duration")), Charged: cost, Private: rapid.Bool().Draw(t, "private"),
			Tier: rapid.Byte().Draw(t, "tier"),
		}}
	case 7:
		return &engine.ChargeFact{ID: id, Token: token, Charged: cost}
	case 8:
		return &engine.OrganizationFact{Policy: cell.OrganizationPolicy{
			Organization: cell.OrganizationID(tenant), Weight: cell.Weight(cost), Reservation: [2]cell.Rate{rate("reservation"), rate("reservation")},
			Limit: rate("limit"), Epoch: token.Epoch,
		}}
	default:
		l := engine.DefaultLimits()
		l.LiveJobsMax, l.KeyWindow, l.CrashesMax, l.ErrorBytesMax = num.Draw(t, "live"), time.Duration(at), i32.Draw(t, "crashes"), int(i32.Draw(t, "error"))
		l.EstimatesMax = int(i32.Draw(t, "estimates"))
		return &engine.LimitsFact{Limits: l}
	}
}

func drawLaneAccount(t *rapid.T) cell.LaneAccount {
	return cell.LaneAccount{
		Rounds: rapid.Int64().Draw(t, "rounds"), Deficit: rapid.Int64().Draw(t, "deficit"), Ahead: time.Duration(rapid.Int64().Draw(t, "ahead")),
	}
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &engine.Entry{Time: cell.Instant(rapid.Int64().Draw(t, "time"))}
		for range rapid.IntRange(0, 6).Draw(t, "facts") {
			e.Facts = append(e.Facts, drawFact(t))
		}
		for range rapid.IntRange(0, 3).Draw(t, "accounts") {
			e.Accounts = append(e.Accounts, engine.AccountFact{
				Lane:    cell.Lane{Tenant: cell.TenantID(rapid.String().Draw(t, "tenant")), Class: cell.Class(rapid.IntRange(1, 2).Draw(t, "class"))},
				Account: drawLaneAccount(t),
			})
		}
		for range rapid.IntRange(0, 2).Draw(t, "tenant accounts") {
			e.TenantAccounts = append(e.TenantAccounts, engine.TenantAccountFact{
				Tenant: cell.TenantID(rapid.String().Draw(t, "tenant")), Account: cell.TenantAccount{
					LimitTag: cell.Instant(rapid.Int64().Draw(t, "limit")), CreditTag: cell.Instant(rapid.Int64().Draw(t, "tag")),
					Credit: cell.Cost(rapid.Int64().Draw(t, "credit")), CreditAt: cell.Instant(rapid.Int64().Draw(t, "at")),
				},
			})
		}
		for range rapid.IntRange(0, 2).Draw(t, "organization accounts") {
			e.OrganizationAccounts = append(e.OrganizationAccounts, engine.OrganizationAccountFact{
				Organization: cell.OrganizationID(rapid.String().Draw(t, "organization")), Account: cell.OrganizationAccount{
					Lanes: [2]cell.LaneAccount{drawLaneAccount(t), drawLaneAccount(t)}, LimitTag: cell.Instant(rapid.Int64().Draw(t, "limit")),
				},
			})
		}
		if e.Empty() != (len(e.Facts)+len(e.Accounts)+len(e.TenantAccounts)+len(e.OrganizationAccounts) == 0) {
			t.Errorf("empty: %v", e.Empty())
		}
		prefix := []byte("before")
		b := engine.AppendEntry(prefix, e)[len(prefix):]
		got, err := engine.DecodeEntry(b)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, e)
		}
		whole := engine.AppendEntry(nil, got)
		for i := range b { // what was decoded does not refer to what it was decoded from
			b[i] = 0xee
		}
		if !bytes.Equal(engine.AppendEntry(nil, got), whole) {
			t.Fatal("the entry changes with the bytes it came from")
		}
	})
}

// TestEntryTruncated cuts entries off at every byte.
func TestEntryTruncated(t *testing.T) {
	for name, e := range goldenEntries() {
		b := engine.AppendEntry(nil, e)
		for n := range b {
			if got, err := engine.DecodeEntry(b[:n]); !errors.Is(err, engine.ErrFormat) || got != nil {
				t.Errorf("%s cut off at %d of %d: %+v, %v", name, n, len(b), got, err)
			}
		}
		if err := decodeError(append(b, 0)); !errors.Is(err, engine.ErrFormat) {
			t.Errorf("%s with a byte too many: %v", name, err)
		}
	}
}

// TestRecordShorter reads the records of a version that had fewer fields, and of one that has more.
func TestRecordShorter(t *testing.T) {
	facts := goldenFacts()
	for name, f := range facts {
		whole := engine.AppendEntry(nil, &engine.Entry{Facts: []engine.Fact{f}})
		kind, body := whole[3], whole[8:]
		got, err := engine.DecodeEntry(withRecord(kind, append(slices.Clone(body), "a later version's field"...)))
		if name != goldenWholeOf(facts, name) {
			continue // what a later version appends stands behind every field of this one
		}
		if err != nil || !reflect.DeepEqual(got.Facts, []engine.Fact{f}) {
			t.Errorf("%s with an unknown field at its end: %+v, %v", name, got, err)
		}
		for n := range body {
			if err := decodeError(withRecord(kind, body[:n])); err != nil && !errors.Is(err, engine.ErrFormat) {
				t.Errorf("%s of %d bytes: %v", name, n, err)
			}
		}
	}
	f, ok := goldenFacts()["policy"].(*engine.PolicyFact)
	if !ok {
		t.Fatal("not a policy")
	}
	b := engine.AppendEntry(nil, &engine.Entry{Facts: []engine.Fact{f}})
	got, err := engine.DecodeEntry(withRecord(b[3], b[8:len(b)-1])) // without the epoch, which is one byte
	old := *f
	old.Policy.Epoch = 0
	if err != nil || !reflect.DeepEqual(got.Facts, []engine.Fact{&old}) {
		t.Errorf("a policy without its last field: %+v, %v", got, err)
	}
}

func TestEntryRefused(t *testing.T) {
	varint := func(v uint64) []byte { return binary.AppendUvarint(nil, v) }
	id := make([]byte, 16)
	cases := map[string][]byte{
		"nothing":                    nil,
		"another version":            {2, 0, 0},
		"an unknown kind":            withRecord(99, nil),
		"kind 0":                     withRecord(0, nil),
		"more records than bytes":    append([]byte{1, 0}, varint(math.MaxUint64)...),
		"fewer records than said":    {1, 0, 2, 5, 0, 0, 0, 0},
		"more records than said":     {1, 0, 0, 5, 0, 0, 0, 0},
		"a record longer than there": {1, 0, 1, 5, 0xff, 0xff, 0xff, 0xff},
		"a number too long":          {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0},
		"a text longer than there":   withRecord(5, append(slices.Clone(id), varint(math.MaxUint64)...)),
		"a text of 4 GiB":            withRecord(5, append(slices.Clone(id), varint(4<<30)...)),
		"half an id":                 withRecord(5, id[:8]),
		"a job of no class":          withRecord(2, append(slices.Clone(id), 0, 3)),
		"labels without end": withRecord(2, slices.Concat(id, []byte{1, 'a', 1}, id, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
			varint(1<<40))),
		"an outcome of no kind":   withRecord(3, slices.Concat(id, []byte{1, 2}, id[:8], []byte{8})),
		"a payload of no kind":    withRecord(3, slices.Concat(id, []byte{1, 2}, id[:8], []byte{1, 3})),
		"a truth that is neither": withRecord(6, slices.Concat(id, []byte{1, 2}, id[:8], []byte{0, 0, 1, 0, 0, 0, 2})),
		"an attempt out of range": withRecord(7, slices.Concat(id, []byte{1}, binary.AppendVarint(nil, 1<<31))),
		"an account of no class":  withRecord(100, []byte{1, 'a', 9}),
		"a channel out of a byte": withRecord(6, slices.Concat(id, []byte{1, 2}, id[:8], []byte{0, 0}, varint(256))),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			e, err := engine.DecodeEntry(b)
			runtime.ReadMemStats(&after)
			if e != nil || !errors.Is(err, engine.ErrFormat) {
				t.Errorf("got %+v, %v", e, err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
				t.Errorf("%d bytes were allocated for %d", n, len(b))
			}
		})
	}
}

// TestSnapshotFlipped flips every bit of a snapshot, and cuts it off at every byte.
func TestSnapshotFlipped(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.waiting(0, 0)
	x.must(x.lease())
	x.must(x.outcome(engine.OutcomeFatal))
	x.id[0] = 2
	x.do(&engine.SubmitFact{ID: x.id, Tenant: "globex", Class: cell.ClassInteractive, Spec: engine.Spec{Key: "other"}})
	b := snapshotOf(t, x.s)
	for i := range b {
		for bit := range 8 {
			flipped := slices.Clone(b)
			flipped[i] ^= 1 << bit
			if s, err := engine.Restore(fixtureLimits(), bytes.NewReader(flipped)); s != nil || !errors.Is(err, engine.ErrSnapshot) {
				t.Fatalf("bit %d of byte %d of %d flipped: %v", bit, i, len(b), err)
			}
		}
		if s, err := engine.Restore(fixtureLimits(), bytes.NewReader(b[:i])); s != nil || !errors.Is(err, engine.ErrSnapshot) {
			t.Fatalf("cut off at %d of %d: %v", i, len(b), err)
		}
	}
	if _, err := engine.Restore(fixtureLimits(), bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
}

// record is one record of a snapshot.
type record struct {
	kind byte
	body []byte
}

// splitSnapshot takes a snapshot's records apart, without the last.
func splitSnapshot(b []byte) []record {
	var records []record
	for len(b) >= 5 && b[0] != 5 {
		n := min(uint64(binary.LittleEndian.Uint32(b[1:])), uint64(len(b)-5))
		records = append(records, record{b[0], b[5 : 5+n]})
		b = b[5+n:]
	}
	return records
}

// sealSnapshot puts records together, with an end that fits them.
func sealSnapshot(records []record) []byte {
	var b []byte
	add := func(kind byte, body []byte) {
		b = append(b, kind)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
		b = append(b, body...)
	}
	for _, r := range records {
		add(r.kind, r.body)
	}
	end := binary.AppendUvarint(nil, uint64(len(records)))
	add(5, binary.LittleEndian.AppendUint32(end, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))))
	return b
}

// TestSnapshotContradicts restores snapshots that are whole and yet cannot be of one state, or of this version.
func TestSnapshotContradicts(t *testing.T) {
	s := goldenState(t)
	base := splitSnapshot(snapshotOf(t, s))
	if got, err := engine.Restore(fixtureLimits(), bytes.NewReader(sealSnapshot(base))); err != nil || got.Hash() != s.Hash() {
		t.Fatalf("taken apart and put together: %v", err)
	}
	index := func(kind byte) int { return slices.IndexFunc(base, func(r record) bool { return r.kind == kind }) }
	cases := map[string]struct {
		records []record
		want    error
	}{
		"nothing":             {nil, nil},
		"no header":           {base[1:], engine.ErrSnapshot},
		"two headers":         {slices.Concat(base[:1], base), engine.ErrSnapshot},
		"a job twice":         {append(slices.Clone(base), base[index(3)]), engine.ErrSnapshot},
		"a key twice":         {append(slices.Clone(base), base[index(4)]), engine.ErrSnapshot},
		"a job without lane":  {slices.Concat(base[:1], base[index(3):]), engine.ErrFormat},
		"an unknown kind":     {append(slices.Clone(base), record{77, nil}), engine.ErrFormat},
		"a header of nothing": {append([]record{{1, nil}}, base[1:]...), engine.ErrSnapshot},
		"a job of nothing":    {append(slices.Clone(base), record{3, nil}), engine.ErrFormat},
		"another policy":      {append(slices.Clone(base), record{2, []byte{1, 4, 'a', 'c', 'm', 'e', 2}}), engine.ErrFormat}, // no account
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := engine.Restore(fixtureLimits(), bytes.NewReader(sealSnapshot(c.records)))
			if c.want == nil {
				if err != nil || got.Check() != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if got != nil || !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, e := range goldenEntries() {
		f.Add(engine.AppendEntry(nil, e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := engine.DecodeEntry(b)
		if err != nil {
			if e != nil || !errors.Is(err, engine.ErrFormat) {
				t.Fatalf("got %+v, %v", e, err)
			}
			return
		}
		// What was read can be written, read again, and applied.
		again, err := engine.DecodeEntry(engine.AppendEntry(nil, e))
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("got %+v, %v\nwant %+v", again, err, e)
		}
		s, err := engine.New(fixtureLimits())
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(1, &engine.Entry{Facts: []engine.Fact{&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "acme"}}}})
		s.Apply(2, e)
		s.Apply(3, again)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	x := newFixture(&testing.T{}, fixtureLimits())
	f.Add(snapshotOf(f, x.s))
	x.waiting(0, 0)
	x.must(x.lease())
	f.Add(snapshotOf(f, x.s))
	x.must(x.outcome(engine.OutcomeFatal))
	f.Add(snapshotOf(f, x.s))
	f.Add(snapshotOf(f, goldenMoved(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, sealSnapshot(splitSnapshot(b))} { // a checksum that fits lets the fuzzer in
			s, err := engine.Restore(fixtureLimits(), bytes.NewReader(b))
			if err != nil {
				if s != nil || !errors.Is(err, engine.ErrSnapshot) && !errors.Is(err, engine.ErrFormat) {
					t.Fatalf("got %v", err)
				}
				continue
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			again, err := engine.Restore(fixtureLimits(), bytes.NewReader(snapshotOf(t, s)))
			if err != nil || again.Hash() != s.Hash() {
				t.Fatalf("restored again: %v", err)
			}
			s.Apply(s.Index()+1, &engine.Entry{Time: math.MaxInt64})
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzImport(f *testing.F) {
	a := newSite(f, fixtureLimits())
	a.must(&engine.PolicyFact{Policy: sitePolicy()})
	a.run(a.submit("k"))
	a.submit("l")
	a.must(&engine.TrackFact{Lane: siteLane, Move: siteMove})
	for n := 1; n < 2000; n *= 3 {
		records, _, _, err := a.s.Export(siteLane, engine.Cursor{}, n, 1000)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(records)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x := newSite(t, fixtureLimits())
		x.must(siteStage(2))
		end := engine.Cursor{Seeded: engine.SeededAll, Change: 1}
		before := x.s.Hash()
		r := x.do(&engine.ImportFact{Lane: siteLane, Move: siteMove, End: end, Records: b})
		if r.Err != nil {
			x.s.Apply(1, &engine.Entry{})
			if x.s.Hash() != before {
				t.Fatalf("refused with %v, it changed something", r.Err)
			}
			return
		}
		restored, err := engine.Restore(fixtureLimits(), bytes.NewReader(snapshotOf(t, x.s)))
		if err != nil || restored.Hash() != x.s.Hash() {
			t.Fatalf("restored: %v", err)
		}
		x.must(siteMode(cell.ModeOpen, 3, 0))
		x.now = math.MaxInt64
		x.entry(&engine.Entry{})
	})
}
