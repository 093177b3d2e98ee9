package controlserver

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// later returns a command of a release that does not exist yet.
func later(ignorable bool) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 999)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1)
	if ignorable {
		b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 1)
	}
	return b
}

// A command of a later release is passed over if its proposer allowed that; otherwise, and for damage, the replica stops.
func TestApplyOfTheUnknown(t *testing.T) {
	m := NewMachine()
	if got := m.Apply(7, later(true)); got != nil {
		t.Errorf("%v", got)
	}
	if got := m.View().Index(); got != 7 {
		t.Errorf("index %d after a command that was passed over", got)
	}
	for name, data := range map[string][]byte{"later": later(false), "damaged": []byte("x"), "empty": nil} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: applied", name)
				}
			}()
			m.Apply(8, data)
		}()
	}
}

func TestSnapshotStandsAndRestores(t *testing.T) {
	m := NewMachine()
	apply := func(m *Machine, index uint64, id cell.TenantID) {
		r, ok := m.Apply(index, command.Encode(command.CreateTenant{Tenant: id, Time: 1})).(state.Result)
		if !ok || r.Refused != nil {
			t.Fatal(r)
		}
	}
	apply(m, 1, "before")
	want := m.View().Hash()
	g, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	apply(m, 2, "after")
	var b bytes.Buffer
	if _, err := g.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	g.Release()
	other := NewMachine()
	apply(other, 1, "gone")
	if err := other.Restore(bytes.NewReader(b.Bytes())); err != nil || other.View().Hash() != want {
		t.Errorf("restored another state, or %v", err)
	}
	if err := other.Restore(bytes.NewReader(b.Bytes()[:b.Len()-1])); !errors.Is(err, state.ErrSnapshot) || other.View().Hash() != want {
		t.Errorf("a cut snapshot: %v", err)
	}
	apply(other, 2, "after")
	if other.View().Hash() != m.View().Hash() {
		t.Error("the replicas differ")
	}
}

// The whole over a real log: what was answered is there after a restart, from the log and from a snapshot.
func TestOverRaft(t *testing.T) {
	dir := t.TempDir()
	told := newFakeCells()
	open := func() (*Server, *consensus.Group) {
		m := NewMachine()
		cfg := consensus.DefaultConfig(dir, "control")
		cfg.SegmentBytes = 64 << 10
		cfg.Logger = slog.New(slog.DiscardHandler)
		cfg.OnFatal = func(err error) { t.Error(err) }
		g, err := consensus.Open(cfg, m)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Log: slog.New(slog.DiscardHandler)}, GroupLog(g), told, m)
		if err != nil {
			t.Fatal(err)
		}
		return s, g
	}
	start, admin, _ := sample()
	for round := range 3 {
		s, g := open()
		if err := s.Bootstrap(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			if _, ok := s.Lookup(admin.Hash()); !ok {
				t.Errorf("round %d: the key is gone", round)
			}
		}
		a, err := s.CreateTenant(t.Context(), request("round-"+string(rune('0'+round)), 1))
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			_, err := s.CreateTenant(t.Context(), request(a.GetTenant().GetId(), 1))
			if rejection.From(err).GetReason() != rejection.ReasonAlreadyExists {
				t.Error(err)
			}
		}
		l, err := s.ListTenants(t.Context(), &fairleadv1.ListTenantsRequest{})
		if err != nil || len(l.GetTenants()) != len(start.Tenants)+round+1 {
			t.Errorf("round %d: %v, %v", round, l, err)
		}
		if round == 1 {
			if err := g.SnapshotNow(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateTenant(t.Context(), request("late", 1)); rejection.From(err).GetReason() != rejection.ReasonNotApplied {
			t.Errorf("after close: %v", err)
		}
	}
}
