package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
)

// platform is group with a cluster of three cells: eu is open, with the tenants a (dealt a hand) and acme; us is cordoned, and empty; new is forming. It
// is at clock 2000.
func platform(t *testing.T) *State {
	t.Helper()
	s := group(t)
	token := func(name string, to command.AgentName) command.Command {
		return command.CreateJoinToken{Hash: hashOf(name), Role: command.RoleGateway, Name: to, Expires: 5000, Time: 2000}
	}
	labels := []placement.Label{{Key: "residency", Value: "eu"}, {Key: "zone", Value: "1"}}
	for i, c := range []command.Command{
		command.CreateCluster{ID: "cl-1", Time: 1500},
		command.CreateCell{
			Cell: "eu", Kind: placement.KindPooled, Replicas: 3, Labels: labels, Capacity: placement.Load{Compute: 4e6, Jobs: 100, Bytes: 1 << 20},
			Groups: 8, Hand: 2, Time: 1500,
		},
		command.CreateCell{Cell: "new", Kind: placement.KindDedicated, Replicas: 1, Time: 1500},
		command.CreateCell{Cell: "us", Kind: placement.KindPooled, Replicas: 1, Time: 1500},
		register("eu-a", "eu"), register("eu-b", "eu"), register("eu-c", "eu"), register("us-a", "us"), register("spare", "eu"),
		command.RegisterAgent{Agent: command.Agent{Name: "gw", Role: command.RoleGateway, APIAddress: "gw:1", FeatureLevelMax: 1}, Time: 1600},
		command.SetCellVoters{Cell: "eu", Voters: []command.Replica{{Name: "eu-a", RaftAddress: "eu-a:2"}, {Name: "eu-b"}, {Name: "eu-c"}}, Generation: 1, Time: 1700},
		command.SetCellVoters{Cell: "us", Voters: []command.Replica{{Name: "us-a"}}, Generation: 1, Time: 1700},
		command.UpdateTenant{Tenant: "acme", Rules: &placement.Rules{Require: labels[:1], Apart: "rivals", ComputeMin: 7, Cell: "eu"}, Time: 1700},
		command.Audited{Actor: "key_1", Command: command.Assign{Tenant: "a", Cell: "eu", CellGeneration: 2, Groups: 5, Decision: "eu is best", Time: 1800}},
		command.Assign{Tenant: "acme", Cell: "eu", Groups: 3, Decision: "the only one", Time: 1800},
		command.Audited{Actor: "key_1", Command: command.SetCellPhase{Cell: "us", Phase: placement.PhaseCordoned, Time: 1900}},
		command.RecordDemand{Cell: "eu", Hour: 400_001, Time: 1900, Samples: []command.TenantSample{
			{Tenant: "a", Sample: placement.Sample{Average: placement.Load{Compute: 1, Jobs: 2, Bytes: 3}, P95: placement.Load{Compute: 4, Jobs: 5, Bytes: 6}, Limited: 7}},
			{Tenant: "b", Sample: placement.Sample{Limited: 1}},
		}},
		token("any", ""), token("bound", "gw"), token("used", ""),
		command.UseJoinToken{Hash: hashOf("used"), Name: "gw", Time: 2000},
	} {
		if r := apply(t, s, 100+uint64(i), c); r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	return s
}

func register(name command.AgentName, of cell.ID) command.Command {
	return command.RegisterAgent{Time: 1600, Agent: command.Agent{
		Name: name, Role: command.RoleCell, Cell: of, APIAddress: string(name) + ":1", RaftAddress: string(name) + ":2", Version: "v1", FeatureLevelMax: 1,
	}}
}

// Every command that came with clusters against every state of what it is about.
func TestClusterByCommand(t *testing.T) {
	voters := func(id cell.ID, generation uint64, names ...command.AgentName) command.Command {
		c := command.SetCellVoters{Cell: id, Generation: generation, Time: 1}
		for _, n := range names {
			c.Voters = append(c.Voters, command.Replica{Name: n})
		}
		return c
	}
	phase := func(id cell.ID, p placement.Phase) command.Command {
		return command.SetCellPhase{Cell: id, Phase: p, Time: 1}
	}
	assign := func(tenant cell.TenantID, to cell.ID, f func(*command.Assign)) command.Command {
		c := command.Assign{Tenant: tenant, Cell: to, Groups: 3, Time: 2500}
		f(&c)
		return c
	}
	plain := func(*command.Assign) {}
	token := func(name string, f func(*command.CreateJoinToken)) command.Command {
		c := command.CreateJoinToken{Hash: hashOf(name), Role: command.RoleGateway, Expires: 5000, Time: 2000}
		f(&c)
		return c
	}
	use := func(name string, by command.AgentName, at cell.Instant) command.Command {
		return command.UseJoinToken{Hash: hashOf(name), Name: by, Time: at}
	}
	agent := func(name command.AgentName, f func(*command.Agent)) command.Command {
		c, _ := register(name, "eu").(command.RegisterAgent)
		f(&c.Agent)
		return c
	}
	demand := func(id cell.ID, of cell.TenantID) command.Command {
		return command.RecordDemand{Cell: id, Hour: 400_002, Time: 1, Samples: []command.TenantSample{{Tenant: of, Sample: placement.Sample{Limited: 1}}}}
	}
	again := command.CreateCell{Cell: "new", Kind: placement.KindDedicated, Replicas: 1, Time: 1500}
	other := again
	other.Replicas = 3
	for name, c := range map[string]struct {
		command command.Command
		want    string // as word says
		says    string // what the refusal names
	}{
		"cluster again":                {command.CreateCluster{ID: "cl-1", Time: 9}, "same", ""},
		"another cluster":              {command.CreateCluster{ID: "cl-2", Time: 9}, "exists", "cl-1"},
		"level again":                  {command.SetFeatureLevel{Level: 1, Time: 9}, "same", ""},
		"restored":                     {command.Restored{Time: 9}, "ok", ""},
		"cell, fresh":                  {command.CreateCell{Cell: "ap", Kind: placement.KindPooled, Replicas: 1, Time: 9}, "ok", ""},
		"cell again":                   {again, "same", ""},
		"another cell of the name":     {other, "exists", "new"},
		"update, no cell":              {command.UpdateCell{Cell: "ap", Hand: new(1), Time: 9}, "missing", "ap"},
		"update, hand alone":           {command.UpdateCell{Cell: "us", Hand: new(1), Time: 9}, "bad", "hand"},
		"update, groups of a used one": {command.UpdateCell{Cell: "eu", Groups: new(4), Time: 9}, "bad", "worker_groups"},
		"update, more groups":          {command.UpdateCell{Cell: "eu", Groups: new(9), Time: 9}, "ok", ""},
		"update, groups of an empty":   {command.UpdateCell{Cell: "us", Groups: new(4), Hand: new(1), Time: 9}, "ok", ""},
		"phase, no cell":               {phase("ap", placement.PhaseOpen), "missing", "ap"},
		"phase, forming":               {phase("new", placement.PhaseOpen), "phase", "registered"},
		"open to cordoned":             {phase("eu", placement.PhaseCordoned), "ok", ""},
		"open to draining":             {phase("eu", placement.PhaseDraining), "ok", ""},
		"open to open":                 {phase("eu", placement.PhaseOpen), "same", ""},
		"cordoned to open":             {phase("us", placement.PhaseOpen), "ok", ""},
		"cordoned to draining":         {phase("us", placement.PhaseDraining), "ok", ""},
		"voters, no cell":              {voters("ap", 1, "a"), "missing", "ap"},
		"voters, stale":                {voters("new", 2, "a"), "stale", "decide anew"},
		"voters, too many":             {voters("new", 1, "a", "b", "c"), "bad", "voters"},
		"voters, first":                {voters("new", 1, "a"), "ok", ""},
		"voters, others":               {voters("eu", 2, "eu-a", "eu-b"), "ok", ""},
		"voters, others, stale":        {voters("eu", 1, "eu-a", "eu-b"), "stale", "decide anew"},
		"voters, the same":             {voters("us", 99, "us-a"), "same", ""},
		"delete, no cell":              {command.DeleteCell{Cell: "ap", Time: 9}, "missing", "ap"},
		"delete, with tenants":         {command.DeleteCell{Cell: "eu", Time: 9}, "in use", "2 tenants"},
		"delete, empty":                {command.DeleteCell{Cell: "us", Time: 9}, "ok", ""},
		"delete, forming":              {command.DeleteCell{Cell: "new", Time: 9}, "ok", ""},
		"assign":                       {assign("b", "eu", plain), "ok", ""},
		"assign, no tenant":            {assign("zz", "eu", plain), "missing", "zz"},
		"assign, no cell":              {assign("b", "ap", plain), "missing", "ap"},
		"assign, cordoned":             {assign("b", "us", plain), "phase", "us is cordoned"},
		"assign, forming":              {assign("b", "new", plain), "phase", "new is forming"},
		"assign, generation":           {assign("b", "eu", func(c *command.Assign) { c.CellGeneration = 2 }), "ok", ""},
		"assign, stale generation":     {assign("b", "eu", func(c *command.Assign) { c.CellGeneration = 1 }), "stale", "cell of eu"},
		"assign, has a home":           {assign("a", "eu", plain), "stale", "assignment of a"},
		"assign, at its epoch":         {assign("a", "eu", func(c *command.Assign) { c.Expect = 2 }), "ok", ""},
		"assign, at another":           {assign("a", "eu", func(c *command.Assign) { c.Expect = 1 }), "stale", "assignment of a"},
		"assign, has none":             {assign("b", "eu", func(c *command.Assign) { c.Expect = 1 }), "stale", "assignment of b"},
		"assign, again":                {assign("acme", "eu", func(c *command.Assign) { c.Time = 1800 }), "same", ""},
		"assign, no hand":              {assign("b", "eu", func(c *command.Assign) { c.Groups = 0 }), "bad", "groups"},
		"assign, beyond groups":        {assign("b", "eu", func(c *command.Assign) { c.Groups = 1 << 8 }), "bad", "groups"},
		"agent, fresh":                 {agent("eu-d", func(*command.Agent) {}), "ok", ""},
		"agent, again":                 {agent("eu-a", func(*command.Agent) {}), "same", ""},
		"agent, elsewhere":             {agent("eu-a", func(a *command.Agent) { a.APIAddress = "x:1" }), "ok", ""},
		"agent of another cell":        {agent("eu-a", func(a *command.Agent) { a.Cell = "us" }), "bad", "name"},
		"agent of another role":        {agent("eu-a", func(a *command.Agent) { a.Cell, a.Role = "", command.RoleGateway }), "bad", "name"},
		"forget, no agent":             {command.ForgetAgent{Name: "zz", Time: 9}, "missing", "zz"},
		"forget, a voter":              {command.ForgetAgent{Name: "eu-a", Time: 9}, "in use", "log of cell eu"},
		"forget, a spare":              {command.ForgetAgent{Name: "spare", Time: 9}, "ok", ""},
		"forget, a gateway":            {command.ForgetAgent{Name: "gw", Time: 9}, "ok", ""},
		"token, fresh":                 {token("fresh", func(*command.CreateJoinToken) {}), "ok", ""},
		"token, again":                 {token("any", func(*command.CreateJoinToken) {}), "same", ""},
		"token, for another":           {token("any", func(c *command.CreateJoinToken) { c.Name = "x" }), "exists", "token-"},
		"use, no token":                {use("none", "gw", 9), "missing", "token-"},
		"use":                          {use("any", "x", 9), "ok", ""},
		"use, bound":                   {use("bound", "gw", 9), "ok", ""},
		"use, bound to another":        {use("bound", "x", 9), "token", "another agent's"},
		"use, expired":                 {use("any", "x", 5000), "token", "expired"},
		"use, used":                    {use("used", "x", 9), "token", "has been used"},
		"use, again":                   {use("used", "gw", 9), "same", ""},
		"demand, no cell":              {demand("ap", "a"), "missing", "ap"},
		"demand":                       {demand("eu", "a"), "ok", ""},
		"demand, at home elsewhere":    {demand("us", "a"), "same", ""},
		"demand, at home nowhere":      {demand("eu", "b"), "same", ""},
		"demand, no tenant":            {demand("eu", "zz"), "same", ""},
	} {
		for _, actor := range []string{"", "key_9"} {
			t.Run(name+actor, func(t *testing.T) {
				s := platform(t)
				before := s.View()
				asked := c.command
				if actor != "" {
					asked = command.Audited{Actor: actor, Command: c.command}
				}
				r := apply(t, s, 500, asked)
				if got := word(r); got != c.want || r.Refused != nil && !strings.Contains(r.Refused.Error(), c.says) {
					t.Fatalf("%s: %v, want %s", got, r.Refused, c.want)
				}
				after := s.View()
				took := before.AuditBounds().Last
				if c.want == "ok" && actor != "" {
					took++
				}
				if got := after.AuditBounds().Last; got != took {
					t.Errorf("the audit has %d records, want %d", got, took)
				}
				if c.want == "ok" {
					return
				}
				if before.head.clock, before.head.index = after.head.clock, 500; before.Hash() != after.Hash() {
					t.Error("what took no effect changed the state")
				}
			})
		}
	}
}

// Before a cluster has a record, nothing that is about it takes effect.
func TestNoCluster(t *testing.T) {
	s := group(t)
	for i, c := range []command.Command{command.SetFeatureLevel{Level: 1, Time: 9}, command.Restored{Time: 9}} {
		if r := apply(t, s, 100+uint64(i), c); word(r) != "missing" || !strings.Contains(r.Refused.Error(), "bootstrap") {
			t.Errorf("%+v: %v", c, r.Refused)
		}
	}
}

// What a tenant asks of its cell may have changed since it was decided: residency is verified where the assignment takes effect.
func TestAssignVerifiesRules(t *testing.T) {
	for name, c := range map[string]struct {
		rules placement.Rules
		field string
	}{
		"has the label":     {placement.Rules{Require: []placement.Label{{Key: "zone", Value: "1"}}}, ""},
		"has another value": {placement.Rules{Require: []placement.Label{{Key: "zone", Value: "2"}}}, "cell"},
		"has no such label": {placement.Rules{Require: []placement.Label{{Key: "gpu", Value: "1"}}}, "cell"},
		"is the only one":   {placement.Rules{Cell: "eu"}, ""},
		"is not the one":    {placement.Rules{Cell: "us"}, "cell"},
	} {
		s := platform(t)
		apply(t, s, 500, command.UpdateTenant{Tenant: "b", Rules: &c.rules, Time: 2500})
		r := apply(t, s, 501, command.Assign{Tenant: "b", Cell: "eu", Groups: 1, Time: 2600})
		fe, _ := errors.AsType[*cell.FieldError](r.Refused)
		if c.field == "" && r.Refused != nil || c.field != "" && (fe == nil || fe.Field != c.field || fe.Remedy == "") {
			t.Errorf("%s: %v", name, r.Refused)
		}
	}
}

// An assignment's epoch is that of the policy that it is told with, and rises with every change of home; a tenant may be dealt another hand where it is.
func TestAssignmentEpochs(t *testing.T) {
	s := platform(t)
	apply(t, s, 500, command.SetCellPhase{Cell: "us", Phase: placement.PhaseOpen, Time: 2500})
	r := apply(t, s, 501, command.Assign{Tenant: "a", Cell: "us", Expect: 2, Decision: "moved", Time: 2600})
	want := Assignment{Lane: cell.Lane{Tenant: "a", Class: cell.ClassInteractive}, Cell: "us", Epoch: 3, Since: 2600}
	if r.Refused != nil || r.Assignment != want || r.Tenant.Policy.Epoch != 3 || r.Tenant.Policy.Groups != 0 {
		t.Errorf("%+v", r)
	}
	want.Lane.Class = cell.ClassBatch
	if a, ok := s.View().AssignmentOf(want.Lane); !ok || a != want {
		t.Errorf("%+v", a)
	}
	if text, at := s.View().Decision("a"); text != "moved" || at != 2600 {
		t.Errorf("%q at %d", text, at)
	}
	if r := apply(t, s, 502, command.Assign{Tenant: "a", Cell: "eu", Expect: 3, Groups: 1, Time: 2700}); r.Refused != nil || r.Assignment.Epoch != 4 {
		t.Errorf("%+v", r)
	}
	if r := apply(t, s, 503, command.Assign{Tenant: "a", Cell: "eu", Expect: 4, Groups: 2, Time: 2800}); r.Refused != nil || r.Tenant.Policy.Groups != 2 {
		t.Errorf("%+v", r)
	}
	if text, _ := s.View().Decision("a"); text != "" {
		t.Errorf("a decision without a text left %q", text)
	}
}

// After a restore nothing that was given out since the snapshot is current: each epoch is far above what it can have become.
func TestRestored(t *testing.T) {
	s := platform(t)
	before := s.View()
	r := apply(t, s, 500, command.Audited{Actor: "key_1", Command: command.Restored{Time: 2500}})
	if r.Refused != nil || r.Cluster.Restores != 1 {
		t.Fatalf("%+v", r)
	}
	after := s.View()
	for old := range before.Tenants("") {
		if now, _ := after.Tenant(old.ID()); now.Policy.Epoch != old.Policy.Epoch+EpochsPerRestore {
			t.Errorf("tenant %s is at %d after %d", old.ID(), now.Policy.Epoch, old.Policy.Epoch)
		}
	}
	for old := range before.Organizations("") {
		if now, _ := after.Organization(old.ID()); now.Policy.Epoch != old.Policy.Epoch+EpochsPerRestore {
			t.Errorf("organization %s is at %d after %d", old.ID(), now.Policy.Epoch, old.Policy.Epoch)
		}
	}
	for old := range before.Assignments("") {
		if now, _ := after.AssignmentOf(old.Lane); now.Epoch != old.Epoch+EpochsPerRestore || now.Cell != old.Cell || now.Since != old.Since {
			t.Errorf("%+v after %+v", now, old)
		}
	}
	if r := apply(t, s, 501, command.UseJoinToken{Hash: hashOf("any"), Name: "x", Time: 2500}); word(r) != "missing" {
		t.Errorf("a token of before is taken: %+v", r)
	}
	if r := apply(t, s, 502, command.Assign{Tenant: "a", Cell: "eu", Expect: 2, Groups: 1, Time: 2600}); word(r) != "stale" {
		t.Errorf("a decision of before is taken: %+v", r)
	}
}

// The reply to the first use of a token may be lost: the same agent is answered again for a while, and nobody else ever.
func TestTokenRetry(t *testing.T) {
	for after, want := range map[time.Duration]string{0: "same", TokenRetryMax: "same", TokenRetryMax + 1: "token"} {
		s := platform(t)
		hash := hashOf("long")
		apply(t, s, 500, command.CreateJoinToken{Hash: hash, Role: command.RoleGateway, Time: 3000, Expires: cell.Instant(3000).Add(time.Hour)})
		apply(t, s, 501, command.UseJoinToken{Hash: hash, Name: "x", Time: 3000})
		if r := apply(t, s, 502, command.UseJoinToken{Hash: hash, Name: "x", Time: cell.Instant(3000).Add(after)}); word(r) != want {
			t.Errorf("after %v: %+v", after, r)
		}
	}
}

// A log that was open is remembered: an agent that comes back without one is not taken for one that never had it.
func TestLogOpenStays(t *testing.T) {
	s := platform(t)
	c, _ := register("eu-a", "eu").(command.RegisterAgent)
	c.Agent.LogOpen = true
	if r := apply(t, s, 500, c); r.Refused != nil || r.Repeated || !r.Agent.LogOpen || r.Agent.Created != 1600 || r.Agent.Updated != 2000 {
		t.Errorf("%+v", r)
	}
	c.Agent.LogOpen = false
	if r := apply(t, s, 501, c); !r.Repeated || !r.Agent.LogOpen {
		t.Errorf("%+v", r)
	}
	if got, _ := s.View().Agent("eu-a"); !got.LogOpen {
		t.Error("it is forgotten")
	}
}

// Of the voters of a cell, an address may change; that others have the votes than at first is remembered.
func TestReformed(t *testing.T) {
	s := platform(t)
	moved := []command.Replica{{Name: "eu-a", RaftAddress: "elsewhere:2"}, {Name: "eu-b"}, {Name: "eu-c"}}
	if r := apply(t, s, 500, command.SetCellVoters{Cell: "eu", Voters: moved, Generation: 2, Time: 2500}); r.Refused != nil || r.Cell.Reformed {
		t.Errorf("%+v", r)
	}
	if r := apply(t, s, 501, command.SetCellVoters{Cell: "eu", Voters: moved[:2], Generation: 3, Time: 2500}); r.Refused != nil || !r.Cell.Reformed {
		t.Errorf("%+v", r)
	}
	if r := apply(t, s, 502, command.SetCellVoters{Cell: "eu", Voters: moved, Generation: 4, Time: 2500}); r.Refused != nil || !r.Cell.Reformed {
		t.Errorf("%+v", r)
	}
}

func TestClusterOrder(t *testing.T) {
	v := platform(t).View()
	lanes := func(id cell.ID, after cell.TenantID) (said []string) {
		for a := range v.AssignmentsIn(id, after) {
			said = append(said, a.Lane.String())
		}
		return said
	}
	for name, c := range map[string]struct{ got, want []string }{
		"in eu":           {lanes("eu", ""), []string{"a/interactive", "a/batch", "acme/interactive", "acme/batch"}},
		"in eu after a":   {lanes("eu", "a"), []string{"acme/interactive", "acme/batch"}},
		"in eu after all": {lanes("eu", "acme"), nil},
		"in us":           {lanes("us", ""), nil},
		"in a prefix":     {lanes("e", ""), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	var unplaced []cell.TenantID
	for row := range v.Unplaced("acme") {
		unplaced = append(unplaced, row.ID())
	}
	if !slices.Equal(unplaced, []cell.TenantID{"acme-2", "b"}) {
		t.Error(unplaced)
	}
	var agents []command.AgentName
	for a := range v.AgentsOf("eu") {
		agents = append(agents, a.Name)
	}
	if !slices.Equal(agents, []command.AgentName{"eu-a", "eu-b", "eu-c", "spare"}) {
		t.Error(agents)
	}
	audit := slices.Collect(v.Audit(0))
	if len(audit) != 2 || audit[0].Action != "set-cell-phase" || audit[0].Detail != "phase=cordoned" || audit[1].Subject != "a" {
		t.Errorf("%+v", audit)
	}
	if below := slices.Collect(v.Audit(2)); len(below) != 1 || below[0].Sequence != 1 {
		t.Errorf("%+v", below)
	}
	for before, want := range map[uint64]int{1: 0, 3: 2, 99: 2} {
		if got := len(slices.Collect(v.Audit(before))); got != want {
			t.Errorf("%d records before %d, want %d", got, before, want)
		}
	}
	for range v.AssignmentsIn("eu", "") {
		break // iterators may be left
	}
	for range v.Unplaced("") {
		break
	}
	for range v.AgentsOf("eu") {
		break
	}
	for range v.Audit(0) {
		break
	}
}

// The snapshot in testdata, of a release with clusters, is on somebody's disk too. That it is also made the same from its commands says that what
// Apply computes, demand among it, is what it was: replicas of two releases stand side by side during an upgrade.
func TestGoldenSnapshotWithCluster(t *testing.T) {
	path := filepath.Join("testdata", "snapshot-v1-cluster.hex")
	want := platform(t)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && *rewrite {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(snapshotOf(t, want.View()))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Restore(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, got.View()), data) || got.View().Hash() != want.View().Hash() {
		t.Error("the restored state is another")
	}
	if wrong := got.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
	if r := apply(t, got, 1000, command.Assign{Tenant: "a", Cell: "eu", Expect: 2, Groups: 1, Time: 5000}); r.Refused != nil {
		t.Errorf("the restored state has lost where tenants are: %v", r.Refused)
	}
}

// Directories of before clusters have no home for anybody: all their tenants are unplaced, and can be placed.
func TestOldSnapshotIsUnplaced(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "snapshot-v1-organizations.hex"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Restore(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var unplaced []cell.TenantID
	for row := range s.View().Unplaced("") {
		unplaced = append(unplaced, row.ID())
	}
	if !slices.Equal(unplaced, []cell.TenantID{"a", "acme", "acme-2", "b"}) {
		t.Error(unplaced)
	}
	for i, c := range []command.Command{
		command.CreateCell{Cell: "cell-1", Kind: placement.KindPooled, Replicas: 1, Time: 3000},
		command.SetCellVoters{Cell: "cell-1", Voters: []command.Replica{{Name: "dev"}}, Generation: 1, Time: 3000},
		command.Assign{Tenant: "a", Cell: "cell-1", Time: 3000},
	} {
		if r := apply(t, s, 2000+uint64(i), c); r.Refused != nil {
			t.Error(r.Refused)
		}
	}
}

// Every cut and every flipped bit of a snapshot with everything in it is refused or seen in the hash.
func TestRestoreRefusesWithCluster(t *testing.T) {
	v := platform(t).View()
	data := snapshotOf(t, v)
	hash := v.Hash()
	for i := range data {
		if _, err := Restore(bytes.NewReader(data[:i])); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut off at %d: %v", i, err)
		}
		bit := i % 8
		flipped := slices.Clone(data)
		flipped[i] ^= 1 << bit
		s, err := Restore(bytes.NewReader(flipped))
		if err == nil && s.View().Hash() == hash {
			t.Errorf("bit %d of byte %d is not seen", bit, i)
		}
		if err != nil && !errors.Is(err, ErrSnapshot) {
			t.Errorf("bit %d of byte %d: %v", bit, i, err)
		}
	}
	record := func(num protowire.Number, body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), body)
	}
	head := record(recordHead, number(nil, 1, snapshotVersion))
	tenant, home := record(recordTenant, text(nil, 1, "a")), record(recordCell, text(nil, 1, "c"))
	lane := record(recordAssignment, text(number(text(nil, 1, "a"), 2, 1), 3, "c"))
	why := record(recordDecision, text(text(nil, 1, "a"), 2, "x"))
	for name, b := range map[string][]byte{
		"cluster twice":      slices.Concat(head, record(recordCluster, text(nil, 1, "x")), record(recordCluster, text(nil, 1, "x"))),
		"cluster, no id":     slices.Concat(head, record(recordCluster, number(nil, 2, 1))),
		"cluster, level":     slices.Concat(head, record(recordCluster, number(text(nil, 1, "x"), 3, uint64(command.FeatureLevelMax())+1))),
		"cell twice":         slices.Concat(head, home, home),
		"cell, later field":  slices.Concat(head, record(recordCell, number(nil, 99, 1))),
		"cell, label":        slices.Concat(head, record(recordCell, text(nil, 5, "\xff"))),
		"lane twice":         slices.Concat(head, home, tenant, lane, lane),
		"lane, no tenant":    slices.Concat(head, home, lane),
		"lane, no cell":      slices.Concat(head, tenant, lane),
		"lane, no class":     slices.Concat(head, home, tenant, record(recordAssignment, text(text(nil, 1, "a"), 3, "c"))),
		"lane, later class":  slices.Concat(head, home, tenant, record(recordAssignment, text(number(text(nil, 1, "a"), 2, 257), 3, "c"))),
		"agent twice":        slices.Concat(head, record(recordAgent, text(nil, 1, "a")), record(recordAgent, text(nil, 1, "a"))),
		"token, no hash":     slices.Concat(head, record(recordToken, number(nil, 2, 1))),
		"token, short hash":  slices.Concat(head, record(recordToken, text(nil, 1, "x"))),
		"profile, nobody's":  slices.Concat(head, record(recordProfile, text(nil, 1, "a"))),
		"profile twice":      slices.Concat(head, tenant, record(recordProfile, text(nil, 1, "a")), record(recordProfile, text(nil, 1, "a"))),
		"profile, an hour":   slices.Concat(head, tenant, record(recordProfile, part(text(nil, 1, "a"), 2, number(nil, 1, 24)))),
		"profile, a day":     slices.Concat(head, tenant, record(recordProfile, part(text(nil, 1, "a"), 3, number(number(nil, 1, 14), 2, 1)))),
		"decision, nobody's": slices.Concat(head, why),
		"decision twice":     slices.Concat(head, tenant, why, why),
		"audit with a gap":   slices.Concat(head, record(recordAudit, number(nil, 1, 1)), record(recordAudit, number(nil, 1, 3))),
		"audit, no number":   slices.Concat(head, record(recordAudit, text(nil, 3, "x"))),
		"audit counted":      slices.Concat(head, record(recordAudit, number(nil, 1, 1)), record(recordEnd, nil)),
		"lanes counted":      slices.Concat(head, home, tenant, lane, record(recordEnd, number(number(nil, 1, 1), 4, 1))),
		"short chain":        record(recordHead, text(number(nil, 1, snapshotVersion), 4, "x")),
	} {
		if _, err := Restore(bytes.NewReader(b)); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of each kind there are as many as its limit says and no more, and room that is made again is usable.
func TestClusterIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		bound int
		limit string
		make  func(i int, at cell.Instant) command.Command
		room  func() command.Command
	}{
		"cells": {CellsMax, "cells_max", func(i int, at cell.Instant) command.Command {
			return command.CreateCell{Cell: cell.ID(fmt.Sprintf("c%d", i)), Kind: placement.KindPooled, Replicas: 1, Time: at}
		}, func() command.Command { return command.DeleteCell{Cell: "c7", Time: 1} }},
		"agents": {AgentsMax, "agents_max", func(i int, at cell.Instant) command.Command {
			return command.RegisterAgent{Agent: command.Agent{Name: command.AgentName(fmt.Sprintf("a%d", i)), Role: command.RoleGateway, FeatureLevelMax: 1}, Time: at}
		}, func() command.Command { return command.ForgetAgent{Name: "a7", Time: 1} }},
		"tokens": {JoinTokensMax, "join_tokens_max", func(i int, at cell.Instant) command.Command {
			return command.CreateJoinToken{Hash: hashOf(fmt.Sprint(i)), Role: command.RoleGateway, Expires: 1000, Time: at}
		}, func() command.Command { return command.CreateTenant{Tenant: "later", Time: 1000} }}, // all expire
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			index := uint64(0)
			next := func(cmd command.Command) Result {
				index++
				return s.Apply(index, cmd)
			}
			for i := range c.bound {
				if r := next(c.make(i, 1)); r.Refused != nil {
					t.Fatalf("%d: %v", i, r.Refused)
				}
			}
			r := next(c.make(c.bound, 1))
			le, ok := errors.AsType[*cell.LimitError](r.Refused)
			if !ok || le.Limit != c.limit || le.Value != int64(c.bound)+1 || le.Bound != int64(c.bound) || le.Remedy == "" {
				t.Fatalf("one more: %v", r.Refused)
			}
			if r := next(c.make(0, 1)); !r.Repeated {
				t.Errorf("one that is there is not answered: %+v", r)
			}
			if r := next(c.room()); r.Refused != nil {
				t.Fatal(r.Refused)
			}
			fresh := c.make(c.bound, 1)
			if token, ok := fresh.(command.CreateJoinToken); ok {
				token.Time, token.Expires = 1000, 2000
				fresh = token
			}
			if r := next(fresh); r.Refused != nil {
				t.Error(r.Refused)
			}
			if wrong := s.check(); len(wrong) > 0 {
				t.Error(wrong)
			}
		})
	}
}

// The audit keeps its newest records; the chain goes on from the hash of the last one that was dropped, also through a snapshot.
func TestAuditIsBounded(t *testing.T) {
	const most = 200
	s := New()
	s.auditMax = most
	s.Apply(1, command.CreateTenant{Tenant: "a", Time: 1})
	var dropped [32]byte
	for i := range most + 3 {
		s.Apply(uint64(i)+2, command.Audited{Actor: "k", Command: command.UpdateTenant{Tenant: "a", Weight: new(cell.Weight(i)), Time: 1}})
		if i == 2 {
			dropped = slices.Collect(s.View().Audit(0))[0].Hash
		}
	}
	if b := s.View().AuditBounds(); b != (AuditBounds{First: 4, Last: most + 3, Before: dropped}) {
		t.Errorf("%+v", b)
	}
	if wrong := s.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
	got, err := Restore(bytes.NewReader(snapshotOf(t, s.View())))
	if err != nil || got.View().Hash() != s.View().Hash() || got.View().AuditBounds() != s.View().AuditBounds() {
		t.Fatal(err)
	}
	if wrong := got.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// A record that is changed breaks the chain.
func TestAuditChain(t *testing.T) {
	v := platform(t).View()
	records := slices.Collect(v.Audit(0))
	r := records[0]
	if r.Chain(records[1].Hash) != r.Hash || records[1].Chain([32]byte{}) != records[1].Hash {
		t.Fatal("the chain does not hold")
	}
	for name, change := range map[string]func(*AuditRecord){
		"sequence": func(r *AuditRecord) { r.Sequence++ }, "time": func(r *AuditRecord) { r.Time++ }, "actor": func(r *AuditRecord) { r.Actor = "x" },
		"action": func(r *AuditRecord) { r.Action = "" }, "subject": func(r *AuditRecord) { r.Subject += "x" },
		"detail": func(r *AuditRecord) { r.Detail = "" }, "index": func(r *AuditRecord) { r.Index-- },
		"moved text": func(r *AuditRecord) { r.Action, r.Subject = r.Action+"u", r.Subject[1:] },
	} {
		other := r
		change(&other)
		if other.Chain(records[1].Hash) == r.Hash {
			t.Errorf("a change of %s is not seen", name)
		}
	}
	if r.Chain([32]byte{1}) == r.Hash {
		t.Error("another record before is not seen")
	}
}

// The texts of decisions have so many bytes in all; the oldest are forgotten, and their tenants stay where they are.
func TestDecisionsAreBounded(t *testing.T) {
	s := platform(t)
	const size, most = command.DecisionBytesMax, 20
	s.decisionsBytesMax = most * size
	n := most + 2
	index := uint64(1000)
	text := strings.Repeat("x", size)
	for i := range n {
		id := cell.TenantID(fmt.Sprintf("t%05d", i))
		index += 2
		s.Apply(index, command.CreateTenant{Tenant: id, Time: 3000})
		if r := s.Apply(index+1, command.Assign{Tenant: id, Cell: "eu", Groups: 1, Decision: text, Time: 3000}); r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	v := s.View()
	for id, want := range map[cell.TenantID]bool{"a": false, "acme": false, "t00000": false, "t00001": false, "t00002": true, cell.TenantID(fmt.Sprintf("t%05d", n-1)): true} {
		if text, _ := v.Decision(id); (text != "") != want {
			t.Errorf("the decision on %s is kept: %v", id, !want)
		}
	}
	if _, ok := v.AssignmentOf(interactive("t00000")); !ok {
		t.Error("a tenant lost its home with the text")
	}
	if wrong := s.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
	got, err := Restore(bytes.NewReader(snapshotOf(t, v)))
	if err != nil || got.View().Hash() != v.Hash() {
		t.Error(err)
	}
}

// What is asked for often costs the same however many tenants there are: nothing walks all of them.
func TestCostsDoNotGrow(t *testing.T) {
	cost := func(tenants int) (assign, list float64) {
		s := platform(t)
		index := uint64(1000)
		for i := range tenants {
			index++
			s.Apply(index, command.CreateTenant{Tenant: cell.TenantID(fmt.Sprintf("t%07d", i)), Time: 3000})
			if index++; i%2 == 0 {
				s.Apply(index, command.Assign{Tenant: cell.TenantID(fmt.Sprintf("t%07d", i)), Cell: "eu", Groups: 1, Time: 3000})
			}
		}
		epoch := cell.Epoch(2)
		assign = testing.AllocsPerRun(20, func() {
			index++
			if r := s.Apply(index, command.Assign{Tenant: "a", Cell: "eu", Expect: epoch, Groups: 1, Time: cell.Instant(index)}); r.Refused != nil {
				t.Fatal(r.Refused)
			}
			epoch++
		})
		list = testing.AllocsPerRun(20, func() {
			v := s.View()
			for range v.Unplaced("t0000100") {
				break
			}
			for range v.AssignmentsIn("eu", "t0000100") {
				break
			}
			v.Profile("a")
		})
		return assign, list
	}
	fewAssign, fewList := cost(200)
	manyAssign, manyList := cost(5_000)
	if manyAssign > 2*fewAssign+50 || manyList > 2*fewList+50 {
		t.Errorf("assigning takes %v allocations with many tenants and %v with few, listing %v and %v", manyAssign, fewAssign, manyList, fewList)
	}
}
