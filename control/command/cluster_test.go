package command

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// clusterCorpus is the part of the corpus that came with clusters.
func clusterCorpus() map[string]Command {
	labels := []placement.Label{{Key: "residency", Value: "eu"}, {Key: "zone", Value: "a b"}}
	token := [32]byte{0: 0xab, 1: 0xcd, 31: 1}
	return map[string]Command{
		"create-cluster":    CreateCluster{ID: "cl_1", Time: 1_700_000_000_000_000_001},
		"set-feature-level": SetFeatureLevel{Level: 1, Time: 2},
		"restored":          Restored{Time: 3},
		"create-cell": CreateCell{
			Cell: "eu-1", Kind: placement.KindPooled, Replicas: 3, Labels: labels,
			Capacity: placement.Load{Compute: 8_000_000, Jobs: 100_000, Bytes: 1 << 30}, Groups: 8, Hand: 2, Time: 4,
		},
		"create-cell-least": CreateCell{Cell: "c", Kind: placement.KindDedicated, Replicas: 1, Time: 4},
		"update-cell": UpdateCell{
			Cell: "eu-1", Labels: &labels, Capacity: &placement.Load{Compute: 1, Jobs: 2, Bytes: 3}, Groups: new(4), Hand: new(1), Time: 5,
		},
		"update-cell-to-zero": UpdateCell{Cell: "eu-1", Labels: new([]placement.Label), Capacity: &placement.Load{}, Groups: new(0), Hand: new(0), Time: 5},
		"update-cell-one":     UpdateCell{Cell: "eu-1", Hand: new(3), Time: 5},
		"set-cell-phase":      SetCellPhase{Cell: "eu-1", Phase: placement.PhaseDraining, Time: 6},
		"set-cell-voters": SetCellVoters{
			Cell: "eu-1", Voters: []Replica{{"a", "a.example:7001"}, {"b", "[::1]:7001"}, {"c", ""}}, Generation: 7, Time: 8,
		},
		"set-cell-phase-evacuate": SetCellPhase{Cell: "eu-1", Phase: placement.PhaseCordoned, Evacuate: true, Time: 6},
		"delete-cell":             DeleteCell{Cell: "eu-1", Time: 9},
		"assign": Assign{
			Tenant: "acme", Cell: "eu-1", Expect: 1<<32 + 3, CellGeneration: 5, Groups: 1<<63 | 1, Decision: "eu-1 1.5\n\tus-1 rejected: é", Time: 10,
		},
		"assign-least":      Assign{Tenant: "acme", Cell: "eu-1", Time: 10},
		"create-join-token": CreateJoinToken{Hash: token, Role: RoleCell, Cell: "eu-1", Name: "a", Expires: 3_600_000_000_011, Time: 11},
		"create-join-token-least": CreateJoinToken{
			Hash: token, Role: RoleGateway, Expires: 12, Time: 11,
		},
		"use-join-token": UseJoinToken{Hash: token, Name: "a", Time: 12},
		"register-agent": RegisterAgent{
			Agent: Agent{
				Name: "a", Role: RoleCell, Cell: "eu-1", APIAddress: "a.example:7000", RaftAddress: "a.example:7001", Version: "v1.2.3", FeatureLevelMax: 1,
				LogOpen: true,
			},
			Time: 13,
		},
		"register-agent-least": RegisterAgent{Agent: Agent{Name: "g", Role: RoleGateway, FeatureLevelMax: 1}, Time: 13},
		"forget-agent":         ForgetAgent{Name: "a", Time: 14},
		"record-demand": RecordDemand{
			Cell: "eu-1", Hour: 472_222, Time: 15, Samples: []TenantSample{
				{"acme", placement.Sample{Average: placement.Load{Compute: 1, Jobs: 2, Bytes: 3}, P95: placement.Load{Compute: 4, Jobs: 5, Bytes: 6}, Limited: 7}},
				{"idle", placement.Sample{}},
			},
		},
		"audited": Audited{Actor: "key_1", Command: DeleteCell{Cell: "eu-1", Time: 9}},
		"create-tenant-rules": CreateTenant{Tenant: "acme", Time: 1, Rules: placement.Rules{
			Require: labels, Apart: "rivals", ComputeMin: 2_500_000, Cell: "eu-1",
		}},
		"update-tenant-rules":         UpdateTenant{Tenant: "acme", Time: 1, Rules: &placement.Rules{Require: labels[:1], Apart: "rivals"}},
		"update-tenant-rules-to-none": UpdateTenant{Tenant: "acme", Time: 1, Rules: &placement.Rules{}},
	}
}

// anyClusterCommand draws one of the commands that came with clusters, also those that Check refuses.
func anyClusterCommand(t *rapid.T) Command {
	str := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z][a-z0-9._:-]{0,10}`))
	num := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 10))
	unsigned := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 10))
	at := cell.Instant(num.Draw(t, "time"))
	id, name := cell.ID(str.Draw(t, "cell")), AgentName(str.Draw(t, "name"))
	count := func(what string) int { return int(num.Draw(t, what)) }
	load := rapid.Custom(func(t *rapid.T) placement.Load {
		return placement.Load{Compute: cell.Rate(num.Draw(t, "compute")), Jobs: num.Draw(t, "jobs"), Bytes: num.Draw(t, "bytes")}
	})
	var hash [32]byte
	copy(hash[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
	var labels []placement.Label
	for range rapid.IntRange(0, 3).Draw(t, "labels") {
		labels = append(labels, placement.Label{Key: str.Draw(t, "key"), Value: str.Draw(t, "value")})
	}
	switch Type(rapid.IntRange(int(TypeCreateCluster), int(TypeRestored)).Draw(t, "type")) {
	case TypeCreateCluster:
		return CreateCluster{str.Draw(t, "id"), at}
	case TypeSetFeatureLevel:
		return SetFeatureLevel{rapid.IntRange(0, featureLevelMax).Draw(t, "level"), at}
	case TypeCreateCell:
		return CreateCell{
			id, placement.Kind(rapid.Uint8().Draw(t, "kind")), count("replicas"), labels, load.Draw(t, "capacity"), count("groups"), count("hand"), at,
		}
	case TypeUpdateCell:
		return UpdateCell{
			id, maybe(t, rapid.Just(labels)), maybe(t, load), maybe(t, rapid.Just(count("groups"))), maybe(t, rapid.Just(count("hand"))), at,
		}
	case TypeSetCellPhase:
		return SetCellPhase{id, placement.Phase(rapid.Uint8().Draw(t, "phase")), at, rapid.Bool().Draw(t, "evacuate")}
	case TypeSetCellVoters:
		c := SetCellVoters{Cell: id, Generation: unsigned.Draw(t, "generation"), Time: at}
		for range rapid.IntRange(0, 4).Draw(t, "voters") {
			c.Voters = append(c.Voters, Replica{AgentName(str.Draw(t, "voter")), str.Draw(t, "address")})
		}
		return c
	case TypeDeleteCell:
		return DeleteCell{id, at}
	case TypeAssign:
		return Assign{
			cell.TenantID(str.Draw(t, "tenant")), id, cell.Epoch(unsigned.Draw(t, "epoch")), unsigned.Draw(t, "generation"), unsigned.Draw(t, "groups"),
			str.Draw(t, "decision"), at,
		}
	case TypeCreateJoinToken:
		return CreateJoinToken{hash, Role(rapid.Uint8().Draw(t, "role")), id, name, cell.Instant(num.Draw(t, "expires")), at}
	case TypeUseJoinToken:
		return UseJoinToken{hash, name, at}
	case TypeRegisterAgent:
		return RegisterAgent{Agent{
			name, Role(rapid.Uint8().Draw(t, "role")), id, str.Draw(t, "api"), str.Draw(t, "raft"), str.Draw(t, "version"), count("level"),
			rapid.Bool().Draw(t, "open"),
		}, at}
	case TypeForgetAgent:
		return ForgetAgent{name, at}
	case TypeRecordDemand:
		c := RecordDemand{Cell: id, Hour: num.Draw(t, "hour"), Time: at}
		for range rapid.IntRange(0, 3).Draw(t, "samples") {
			c.Samples = append(c.Samples, TenantSample{
				cell.TenantID(str.Draw(t, "tenant")), placement.Sample{Average: load.Draw(t, "average"), P95: load.Draw(t, "p95"), Limited: num.Draw(t, "limited")},
			})
		}
		return c
	case TypeCreateTenant, TypeUpdateTenant, TypeCreateKey, TypeRevokeKey, TypeCreateOrganization, TypeUpdateOrganization, // before clusters
		TypeStartMigration, TypeAdvanceMigration, TypeForgetMigration: // after them
	case TypeRestored:
	}
	return Restored{at}
}

// anyRules draws rules, also those that Check refuses.
func anyRules(t *rapid.T) placement.Rules {
	str := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z]{0,3}`))
	r := placement.Rules{Apart: str.Draw(t, "apart"), ComputeMin: cell.Rate(rapid.Int64().Draw(t, "compute_min")), Cell: cell.ID(str.Draw(t, "only"))}
	for range rapid.IntRange(0, 2).Draw(t, "require") {
		r.Require = append(r.Require, placement.Label{Key: str.Draw(t, "key"), Value: str.Draw(t, "value")})
	}
	return r
}

// Whatever a command carries: labels and parts that are given empty stay given, a command on somebody's behalf stays on it, and what the audit says
// of it is text of a bounded length.
func TestClusterRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.OneOf(rapid.Custom(anyClusterCommand), rapid.Custom(anyMigrationCommand)).Draw(t, "command")
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			c = CreateTenant{Tenant: "a", Rules: anyRules(t)}
		case 1:
			c = UpdateTenant{Tenant: "a", Rules: maybe(t, rapid.Just(anyRules(t)))}
		case 2:
			c = Audited{Actor: rapid.StringMatching(`.{1,10}`).Draw(t, "actor"), Command: c}
		}
		data := Encode(c)
		got, err := Decode(data)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v becomes %+v, %v", c, got, err)
		}
		for i := range data { // nothing of the bytes is kept
			data[i] = 0xff
		}
		if !reflect.DeepEqual(got, c) || got.Type() != c.Type() || got.At() != c.At() {
			t.Fatal("the command changed with the bytes")
		}
		if err := Check(c); err != nil {
			return // whatever it says, it does not panic
		}
		if s, d := Subject(c), Detail(c); len(s) > cell.IDBytesMax || len(d) > DetailBytesMax || !utf8.ValidString(s+d) || strings.ContainsAny(d, "\n\x00") {
			t.Fatalf("%+v is about %q: %q", c, s, d)
		}
	})
}

// A level that this release does not reach is as unknown to it as a command that it does not know: applying it would promise what it cannot keep.
func TestLevelAbove(t *testing.T) {
	data := Encode(SetFeatureLevel{Level: FeatureLevelMax() + 1, Time: 1})
	_, err := Decode(data)
	if want := (&UnknownError{Type: TypeSetFeatureLevel, Version: 1, Field: 1}); !reflect.DeepEqual(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// Parts that are cut off or hold what no release wrote are unknown, and no panic.
func TestPartsRefused(t *testing.T) {
	for name, body := range map[string][]byte{
		"cut off":      appendBytes(nil, 5, []byte{0x08}),
		"later field":  appendBytes(nil, 5, appendVarint(nil, 9, 1)),
		"later label":  appendBytes(nil, 4, appendVarint(nil, 1, 1)),
		"another type": appendVarint(nil, 5, 1),
		"later kind":   appendVarint(nil, 2, 1<<20),
	} {
		_, err := Decode(encodeEnvelope(envelope{typ: TypeCreateCell, version: 1, body: body}))
		if _, ok := errors.AsType[*UnknownError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the audit's chain covers is the same in every release: these lines are never changed.
func TestGoldenDetails(t *testing.T) {
	path := filepath.Join("testdata", "details.txt")
	golden := map[string]string{}
	if text, err := os.ReadFile(path); err == nil {
		for line := range strings.Lines(string(text)) {
			name, said, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			golden[name] = said
		}
	}
	added := false
	for name, c := range corpus() {
		got := fmt.Sprintf("%s|%s|%s", c.Type(), Subject(c), Detail(c))
		if _, ok := golden[name]; !ok && *rewrite {
			golden[name], added = got, true
		}
		if got != golden[name] {
			t.Errorf("%s: %q, want %q", name, got, golden[name])
		}
		if hash := hex.EncodeToString([]byte{1, 31: 255}); strings.Contains(got, hash) || strings.Contains(got, "abcd000000") {
			t.Errorf("%s shows a hash: %s", name, got)
		}
	}
	if !added {
		return
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for _, name := range slices.Sorted(maps.Keys(golden)) {
		fmt.Fprintln(w, name, golden[name])
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestDetailIsCut(t *testing.T) {
	c := RegisterAgent{Agent: Agent{Name: "a", Role: RoleGateway, Version: strings.Repeat("é", 1000)}}
	if d := Detail(c); len(d) > DetailBytesMax || !utf8.ValidString(d) || !strings.HasSuffix(d, " ...") {
		t.Errorf("%d bytes: %q", len(d), d)
	}
}

func TestRoles(t *testing.T) {
	for _, r := range Roles() {
		if got, err := ParseRole("role", r.String()); err != nil || got != r {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
	for _, s := range []string{"", "Cell", "role(4)", "\xff"} {
		if fe, ok := errors.AsType[*cell.FieldError](func() error { _, err := ParseRole("role", s); return err }()); !ok || fe.Field != "role" {
			t.Errorf("%q is taken", s)
		}
	}
	if s := Role(9).String(); s != "role(9)" {
		t.Error(s)
	}
}

// with returns the command of the corpus with a change.
func with[C Command](name string, change func(*C)) Command {
	c, ok := corpus()[name].(C)
	if !ok {
		panic(name)
	}
	change(&c)
	return c
}

func TestCheckCluster(t *testing.T) {
	withCell := func(f func(*CreateCell)) Command { return with("create-cell", f) }
	withVoters := func(f func(*SetCellVoters)) Command { return with("set-cell-voters", f) }
	withAgent := func(f func(*Agent)) Command {
		return with("register-agent", func(c *RegisterAgent) { f(&c.Agent) })
	}
	withToken := func(f func(*CreateJoinToken)) Command { return with("create-join-token", f) }
	withDemand := func(f func(*RecordDemand)) Command { return with("record-demand", f) }
	withAssign := func(f func(*Assign)) Command { return with("assign", f) }
	many := make([]TenantSample, SamplesMax+1)
	for i := range many {
		many[i].Tenant = cell.TenantID(fmt.Sprintf("t%04d", i))
	}
	for name, c := range map[string]struct {
		command Command
		field   string // of the fault, "" for none
	}{
		"cluster, no id":            {CreateCluster{Time: 1}, "cluster_id"},
		"cluster, no time":          {CreateCluster{ID: "c"}, "time"},
		"level 0":                   {SetFeatureLevel{Time: 1}, "level"},
		"level above":               {SetFeatureLevel{Level: FeatureLevelMax() + 1, Time: 1}, "level"},
		"restored, no time":         {Restored{}, "time"},
		"cell, no name":             {withCell(func(c *CreateCell) { c.Cell = "" }), "name"},
		"cell, kind":                {withCell(func(c *CreateCell) { c.Kind = 0 }), "kind"},
		"cell, later kind":          {withCell(func(c *CreateCell) { c.Kind = 3 }), "kind"},
		"cell, two replicas":        {withCell(func(c *CreateCell) { c.Replicas = 2 }), "replicas"},
		"cell, labels unsorted":     {withCell(func(c *CreateCell) { slices.Reverse(c.Labels) }), "labels"},
		"cell, many labels":         {withCell(func(c *CreateCell) { c.Labels = make([]placement.Label, placement.LabelsMax+1) }), "labels"},
		"cell, negative capacity":   {withCell(func(c *CreateCell) { c.Capacity.Bytes = -1 }), "capacity.bytes"},
		"cell, huge capacity":       {withCell(func(c *CreateCell) { c.Capacity.Compute = placement.AmountMax + 1 }), "capacity.compute"},
		"cell, largest capacity":    {withCell(func(c *CreateCell) { c.Capacity.Compute = placement.AmountMax }), ""},
		"cell, most groups":         {withCell(func(c *CreateCell) { c.Groups, c.Hand = cell.WorkerGroupsMax, cell.WorkerGroupsMax }), ""},
		"cell, too many groups":     {withCell(func(c *CreateCell) { c.Groups = cell.WorkerGroupsMax + 1 }), "worker_groups"},
		"cell, hand above":          {withCell(func(c *CreateCell) { c.Hand = 9 }), "hand"},
		"cell, hand 0":              {withCell(func(c *CreateCell) { c.Hand = 0 }), "hand"},
		"cell, hand without groups": {withCell(func(c *CreateCell) { c.Groups = 0 }), "hand"},
		"update cell, nothing":      {UpdateCell{Cell: "c", Time: 1}, "request"},
		"update cell, no name":      {UpdateCell{Time: 1}, "name"},
		"update cell, hand":         {UpdateCell{Cell: "c", Hand: new(65), Time: 1}, "hand"},
		"update cell, groups":       {UpdateCell{Cell: "c", Groups: new(-1), Time: 1}, "worker_groups"},
		"update cell, labels":       {UpdateCell{Cell: "c", Labels: &[]placement.Label{{Key: "", Value: "x"}}, Time: 1}, "labels"},
		"update cell, capacity":     {UpdateCell{Cell: "c", Capacity: &placement.Load{Jobs: -1}, Time: 1}, "capacity.jobs"},
		"phase forming":             {SetCellPhase{Cell: "c", Phase: placement.PhaseForming, Time: 1}, "phase"},
		"phase 0":                   {SetCellPhase{Cell: "c", Time: 1}, "phase"},
		"voters, none":              {withVoters(func(c *SetCellVoters) { c.Voters = nil }), "voters"},
		"voters, many":              {withVoters(func(c *SetCellVoters) { c.Voters = make([]Replica, VotersMax+1) }), "voters"},
		"voters, twice":             {withVoters(func(c *SetCellVoters) { c.Voters[1].Name = "a" }), "voters[1]"},
		"voters, no name":           {withVoters(func(c *SetCellVoters) { c.Voters[0].Name = "" }), "voters[0]"},
		"voters, address":           {withVoters(func(c *SetCellVoters) { c.Voters[2].RaftAddress = "a b" }), "voters[2]"},
		"delete, no name":           {DeleteCell{Time: 1}, "name"},
		"assign, no tenant":         {withAssign(func(c *Assign) { c.Tenant = "" }), "tenant"},
		"assign, no cell":           {withAssign(func(c *Assign) { c.Cell = "" }), "cell"},
		"assign, longest decision":  {withAssign(func(c *Assign) { c.Decision = strings.Repeat("x", DecisionBytesMax) }), ""},
		"assign, long decision":     {withAssign(func(c *Assign) { c.Decision = strings.Repeat("x", DecisionBytesMax+1) }), "decision"},
		"assign, escapes":           {withAssign(func(c *Assign) { c.Decision = "\x1b[2J" }), "decision"},
		"assign, no text":           {withAssign(func(c *Assign) { c.Decision = "\xff" }), "decision"},
		"agent, no name":            {withAgent(func(a *Agent) { a.Name = "" }), "name"},
		"agent, role":               {withAgent(func(a *Agent) { a.Role = 4 }), "role"},
		"agent, role 0":             {withAgent(func(a *Agent) { a.Role = 0 }), "role"},
		"agent, no cell":            {withAgent(func(a *Agent) { a.Cell = "" }), "cell"},
		"agent, gateway in a cell":  {withAgent(func(a *Agent) { a.Role = RoleGateway }), "cell"},
		"agent, level":              {withAgent(func(a *Agent) { a.FeatureLevelMax = 0 }), "feature_level_max"},
		"agent, later level":        {withAgent(func(a *Agent) { a.FeatureLevelMax = 99 }), ""},
		"agent, address":            {withAgent(func(a *Agent) { a.APIAddress = "a\n" }), "api_address"},
		"agent, long address":       {withAgent(func(a *Agent) { a.RaftAddress = strings.Repeat("a", AddressBytesMax+1) }), "raft_address"},
		"agent, version":            {withAgent(func(a *Agent) { a.Version = "\x1b" }), "version"},
		"forget, no name":           {ForgetAgent{Time: 1}, "name"},
		"token, role":               {withToken(func(c *CreateJoinToken) { c.Role = 0 }), "role"},
		"token, no cell":            {withToken(func(c *CreateJoinToken) { c.Cell = "" }), "cell"},
		"token, name":               {withToken(func(c *CreateJoinToken) { c.Name = "a b" }), "name"},
		"token, any name":           {withToken(func(c *CreateJoinToken) { c.Name = "" }), ""},
		"token, dead":               {withToken(func(c *CreateJoinToken) { c.Expires = c.Time }), "lifetime"},
		"token, a day":              {withToken(func(c *CreateJoinToken) { c.Expires = c.Time.Add(JoinTokenLifetimeMax) }), ""},
		"token, more":               {withToken(func(c *CreateJoinToken) { c.Expires = c.Time.Add(JoinTokenLifetimeMax + 1) }), "lifetime"},
		"use, no name":              {UseJoinToken{Time: 1}, "name"},
		"demand, no samples":        {withDemand(func(c *RecordDemand) { c.Samples = nil }), "samples"},
		"demand, most samples":      {withDemand(func(c *RecordDemand) { c.Samples = many[:SamplesMax] }), ""},
		"demand, many samples":      {withDemand(func(c *RecordDemand) { c.Samples = many }), "samples"},
		"demand, hour":              {withDemand(func(c *RecordDemand) { c.Hour = -1 }), "hour"},
		"demand, twice":             {withDemand(func(c *RecordDemand) { c.Samples[1].Tenant = "acme" }), "samples[1]"},
		"demand, no tenant":         {withDemand(func(c *RecordDemand) { c.Samples[0].Tenant = "" }), "samples[0].tenant"},
		"demand, negative":          {withDemand(func(c *RecordDemand) { c.Samples[0].Sample.P95.Jobs = -1 }), "samples[0].p95.jobs"},
		"demand, limited":           {withDemand(func(c *RecordDemand) { c.Samples[0].Sample.Limited = -1 }), "samples[0].limited"},
		"demand, no cell":           {withDemand(func(c *RecordDemand) { c.Cell = "" }), "cell"},
		"audited":                   {Audited{Actor: "k", Command: DeleteCell{Cell: "c", Time: 1}}, ""},
		"audited, by nobody":        {Audited{Command: DeleteCell{Cell: "c", Time: 1}}, "actor"},
		"audited, escapes":          {Audited{Actor: "\x1b", Command: DeleteCell{Cell: "c", Time: 1}}, "actor"},
		"audited, bad":              {Audited{Actor: "k", Command: DeleteCell{Time: 1}}, "name"},
		"audited twice":             {Audited{Actor: "k", Command: Audited{Actor: "k", Command: DeleteCell{Cell: "c", Time: 1}}}, "command"},
		"audited, nothing":          {Audited{Actor: "k"}, "command"},
		"tenant, rules":             {CreateTenant{Tenant: "a", Time: 1, Rules: placement.Rules{ComputeMin: -1}}, "placement.compute_min"},
		"tenant, rules' cell":       {UpdateTenant{Tenant: "a", Time: 1, Rules: &placement.Rules{Cell: "*"}}, "placement.cell"},
		"tenant, apart":             {UpdateTenant{Tenant: "a", Time: 1, Rules: &placement.Rules{Apart: "*"}}, "placement.apart"},
	} {
		err := Check(c.command)
		fe, ok := errors.AsType[*cell.FieldError](err)
		if c.field == "" && err != nil || c.field != "" && (!ok || fe.Field != c.field || fe.Remedy == "") {
			t.Errorf("%s: %v, want a fault in %q", name, err, c.field)
		}
	}
	for name, c := range clusterCorpus() {
		if err := Check(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
