package route_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
)

func hashOf(n int) route.Hash {
	var h route.Hash
	for i := range h {
		h[i] = byte(n * (i + 7) >> (i % 3))
	}
	h[30], h[31] = byte(n>>8), byte(n)
	return h
}

func key(n int) route.Key {
	return route.Key{Hash: hashOf(n), Caller: cell.Caller{
		Key: fmt.Sprintf("key_%d", n), Tenant: cell.TenantID(fmt.Sprintf("t%d", n)),
		Permissions: []cell.Permission{cell.PermissionSubmit, cell.PermissionRead}, Operations: []cell.Operation{"a", "b.c"},
	}}
}

func lane(n int, home string, epoch uint64) route.Lane {
	return route.Lane{Tenant: cell.TenantID(fmt.Sprintf("t%d", n)), Cell: cell.ID(home), Epoch: cell.Epoch(epoch)}
}

// whole is a table with everything in it.
func whole() *route.Table {
	return route.NewTable().Apply(route.Update{
		Index: 10, Reset: true, Complete: true,
		Keys: []route.Key{key(1), key(2), {Hash: hashOf(3), Caller: cell.Caller{Key: "key_3"}, Expires: 500}}, Lanes: []route.Lane{lane(1, "b", 3), lane(2, "a", 4)},
		Cells: []route.Cell{
			{Name: "b", Phase: route.PhaseOpen, Replicas: []route.Replica{{"b-2", "h2:1"}, {"b-1", "h1:1"}}},
			{Name: "a", Phase: route.PhaseDraining, Replicas: []route.Replica{{"a-1", "h3:1"}}},
		},
		Control: []route.Replica{{"c-2", "h5:1"}, {"c-1", "h4:1"}}, FeatureLevel: 1,
	})
}

func TestTable(t *testing.T) {
	tab := whole()
	if tab.Index() != 10 || !tab.Known() || tab.FeatureLevel() != 1 || tab.Keys() != 3 || tab.Tenants() != 2 {
		t.Errorf("%d %v %d %d %d", tab.Index(), tab.Known(), tab.FeatureLevel(), tab.Keys(), tab.Tenants())
	}
	if c, ok := tab.Lookup(hashOf(1), 0); !ok || c.Tenant != "t1" || !c.May(cell.PermissionRead) {
		t.Errorf("%v %v", c, ok)
	}
	if _, ok := tab.Lookup(hashOf(9), 0); ok {
		t.Error("a key that is not there was found")
	}
	if l, ok := tab.Lane("t2"); !ok || l.Cell != "a" {
		t.Errorf("%v %v", l, ok)
	}
	if c, ok := tab.Cell("b"); !ok || c.Replicas[0].Name != "b-1" {
		t.Errorf("%v %v", c, ok)
	}
	if _, ok := tab.Cell("c"); ok || tab.Cells()[0].Name != "a" || tab.Control()[0].Name != "c-1" {
		t.Errorf("%v %v", tab.Cells(), tab.Control())
	}
}

// A key has expired from its time on.
func TestExpiry(t *testing.T) {
	tab := whole()
	for now, want := range map[cell.Instant]bool{0: true, 499: true, 500: false, 501: false} {
		if _, ok := tab.Lookup(hashOf(3), now); ok != want {
			t.Errorf("at %d: %v", now, ok)
		}
	}
}

// What a table answers does not change with later generations.
func TestImmutable(t *testing.T) {
	old := whole()
	next := old.Apply(route.Update{
		Index: 11, KeysRemoved: []string{"key_1"}, Lanes: []route.Lane{lane(1, "a", 5)}, TenantsRemoved: []cell.TenantID{"t2"},
		CellsRemoved: []cell.ID{"b"}, FeatureLevel: 2,
	})
	if _, ok := old.Lookup(hashOf(1), 0); !ok {
		t.Error("the old generation lost a key")
	}
	if l, _ := old.Lane("t1"); l.Cell != "b" || old.Tenants() != 2 || len(old.Cells()) != 2 || old.FeatureLevel() != 1 {
		t.Error("the old generation has changed")
	}
	if _, ok := next.Lookup(hashOf(1), 0); ok {
		t.Error("a revoked key lives")
	}
	if l, _ := next.Lane("t1"); l.Cell != "a" || next.Tenants() != 1 || len(next.Cells()) != 1 || next.FeatureLevel() != 2 {
		t.Errorf("%v %d %v", l, next.Tenants(), next.Cells())
	}
	if _, ok := next.Lane("t2"); ok {
		t.Error("a tenant that is gone has a home")
	}
}

// An older index changes nothing; an older epoch does not replace a newer, not even when everything begins anew.
func TestNeverBack(t *testing.T) {
	tab := whole()
	if got := tab.Apply(route.Update{Index: 9, KeysRemoved: []string{"key_1"}}); got != tab {
		t.Error("an older index had an effect")
	}
	if got := tab.Apply(route.Update{Index: 10}); got != tab {
		t.Error("a heartbeat of the same index made a generation")
	}
	if got := tab.Apply(route.Update{Index: 12}); got.Index() != 12 || got.Content() != tab.Content() {
		t.Errorf("a heartbeat: index %d, content %d", got.Index(), got.Content())
	}
	if l, _ := tab.Apply(route.Update{Index: 11, Lanes: []route.Lane{lane(1, "a", 2)}}).Lane("t1"); l.Cell != "b" || l.Epoch != 3 {
		t.Errorf("an older epoch: %v", l)
	}
	again := tab.Apply(route.Update{Index: 4, Reset: true, Complete: true, Lanes: []route.Lane{lane(1, "a", 2), lane(5, "a", 1)}})
	if l, _ := again.Lane("t1"); l.Cell != "b" || again.Index() != 4 || again.Tenants() != 2 {
		t.Errorf("anew: %v at %d with %d", l, again.Index(), again.Tenants())
	}
	if _, ok := again.Lane("t2"); ok {
		t.Error("anew, and a tenant of before is there")
	}
}

// A beginning takes effect as a whole, or not at all.
func TestBeginning(t *testing.T) {
	tab := whole()
	half := tab.Apply(route.Update{Index: 20, Reset: true, Keys: []route.Key{key(7)}}).Apply(route.Update{Index: 20, Keys: []route.Key{key(8)}})
	if _, ok := half.Lookup(hashOf(7), 0); ok || half.Index() != 10 || !half.Beginning() {
		t.Error("half a beginning has an effect")
	}
	if _, ok := half.Lookup(hashOf(1), 0); !ok {
		t.Error("half a beginning has taken a key")
	}
	all := half.Apply(route.Update{Index: 20, Complete: true, Keys: []route.Key{key(9)}})
	for n, want := range map[int]bool{1: false, 7: true, 8: true, 9: true} {
		if _, ok := all.Lookup(hashOf(n), 0); ok != want {
			t.Errorf("key %d: %v", n, ok)
		}
	}
	if all.Index() != 20 || all.Beginning() {
		t.Errorf("index %d", all.Index())
	}
	back := half.Abandon()
	if back.Beginning() || back.Apply(route.Update{Index: 21, KeysRemoved: []string{"key_1"}}).Keys() != 2 {
		t.Error("what was abandoned goes on")
	}
	// Changes to nothing are nothing: what does not change is not known.
	if got := route.NewTable().Apply(route.Update{Index: 5, Keys: []route.Key{key(1)}}); got.Keys() != 0 || got.Known() || got.Index() != 0 {
		t.Errorf("%d keys, known %v", got.Keys(), got.Known())
	}
}

// A key whose secret was replaced is found by the new one only, and a secret that has passed to another key is that one's.
func TestKeyReplaced(t *testing.T) {
	tab := whole()
	k := key(1)
	k.Hash = hashOf(77)
	tab = tab.Apply(route.Update{Index: 11, Keys: []route.Key{k}})
	if _, ok := tab.Lookup(hashOf(1), 0); ok || tab.Keys() != 3 {
		t.Errorf("the old secret lives: %d keys", tab.Keys())
	}
	other := key(50)
	other.Hash = hashOf(77)
	tab = tab.Apply(route.Update{Index: 12, Keys: []route.Key{other}}).Apply(route.Update{Index: 13, KeysRemoved: []string{"key_1"}})
	if c, ok := tab.Lookup(hashOf(77), 0); !ok || c.Key != "key_50" || tab.Keys() != 3 {
		t.Errorf("%v %v, %d keys", c, ok, tab.Keys())
	}
}

func TestCodec(t *testing.T) {
	for name, tab := range map[string]*route.Table{"empty": route.NewTable(), "whole": whole()} {
		data := route.Encode(route.Saved{Cluster: "c1", Heard: 12345, Table: tab})
		s, err := route.Decode(data)
		if err != nil || s.Cluster != "c1" || s.Heard != 12345 || s.Table.Index() != tab.Index() || !s.Table.Known() {
			t.Fatalf("%s: %v %v", name, s, err)
		}
		if again := route.Encode(s); !slices.Equal(again, data) {
			t.Errorf("%s: the bytes are others", name)
		}
	}
	s, err := route.Decode(route.Encode(route.Saved{Table: whole()}))
	if err != nil {
		t.Fatal(err)
	}
	c, ok := s.Table.Lookup(hashOf(1), 0)
	if k := key(1).Caller; !ok || c.Key != k.Key || !slices.Equal(c.Permissions, k.Permissions) || !slices.Equal(c.Operations, k.Operations) {
		t.Errorf("%v", c)
	}
	if _, ok := s.Table.Lookup(hashOf(3), 600); ok {
		t.Error("the file forgot when a key expires")
	}
	// It goes on where it stood.
	if next := s.Table.Apply(route.Update{Index: 11, KeysRemoved: []string{"key_2"}}); next.Keys() != 2 {
		t.Errorf("%d keys", next.Keys())
	}
}

// Each changed byte, and each length but the right one, is found.
func TestDamage(t *testing.T) {
	data := route.Encode(route.Saved{Cluster: "c1", Heard: 12345, Table: whole()})
	for i := range data {
		for _, bit := range []byte{1, 0x80} {
			bad := slices.Clone(data)
			bad[i] ^= bit
			if _, err := route.Decode(bad); !errors.Is(err, route.ErrDamaged) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		if _, err := route.Decode(data[:i]); !errors.Is(err, route.ErrDamaged) {
			t.Fatalf("of %d bytes: %v", i, err)
		}
	}
	if _, err := route.Decode(append(slices.Clone(data), 0)); !errors.Is(err, route.ErrDamaged) {
		t.Errorf("one more: %v", err)
	}
}

// FuzzDecode checks that no bytes make it panic, and that what it takes is what would be written.
func FuzzDecode(f *testing.F) {
	f.Add(route.Encode(route.Saved{Cluster: "c1", Heard: 1, Table: whole()}))
	f.Add([]byte("fairlead-routes-1\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = route.Decode(data) // its checksum keeps most away, and none may panic
	})
}

// naive is a table as maps, with every rule said plainly.
type naive struct {
	index uint64
	keys  map[string]route.Key
	lanes map[cell.TenantID]route.Lane
}

func (n *naive) apply(u route.Update) {
	if u.Index < n.index {
		return
	}
	n.index = u.Index
	for _, id := range u.KeysRemoved {
		delete(n.keys, id)
	}
	for _, k := range u.Keys {
		n.keys[k.Caller.Key] = k
	}
	for _, id := range u.TenantsRemoved {
		delete(n.lanes, id)
	}
	for _, l := range u.Lanes {
		if l.Epoch >= n.lanes[l.Tenant].Epoch {
			n.lanes[l.Tenant] = l
		}
	}
}

// A table and maps say the same after any updates, on the way over a file too, and no generation changes afterwards.
func TestAgainstMaps(t *testing.T) {
	const universe = 600
	rng := rand.New(rand.NewPCG(1, 2))
	tab := route.NewTable().Apply(route.Update{Reset: true, Complete: true})
	model := naive{keys: map[string]route.Key{}, lanes: map[cell.TenantID]route.Lane{}}
	var kept *route.Table
	var keptModel naive
	check := func(tab *route.Table, m naive) {
		t.Helper()
		if tab.Index() != m.index || tab.Keys() != len(m.keys) || tab.Tenants() != len(m.lanes) {
			t.Fatalf("index %d and %d, keys %d and %d, tenants %d and %d", tab.Index(), m.index, tab.Keys(), len(m.keys), tab.Tenants(), len(m.lanes))
		}
		for n := range universe {
			c, ok := tab.Lookup(hashOf(n), 0)
			if _, want := m.keys[fmt.Sprintf("key_%d", n)]; ok != want || ok && c.Key != fmt.Sprintf("key_%d", n) {
				t.Fatalf("key %d: %v, want %v", n, ok, want)
			}
			l, ok := tab.Lane(cell.TenantID(fmt.Sprintf("t%d", n)))
			if want, there := m.lanes[cell.TenantID(fmt.Sprintf("t%d", n))]; ok != there || l != want {
				t.Fatalf("lane %d: %v, want %v", n, l, want)
			}
		}
	}
	for step := range 400 {
		u := route.Update{Index: model.index + uint64(rng.IntN(4)) - min(1, model.index)}
		for range rng.IntN(8) {
			n := rng.IntN(universe)
			switch rng.IntN(4) {
			case 0:
				u.KeysRemoved = append(u.KeysRemoved, fmt.Sprintf("key_%d", n))
			case 1:
				u.Keys = append(u.Keys, key(n))
			case 2:
				u.TenantsRemoved = append(u.TenantsRemoved, cell.TenantID(fmt.Sprintf("t%d", n)))
			default:
				u.Lanes = append(u.Lanes, lane(n, "c", rng.Uint64N(5)))
			}
		}
		tab = tab.Apply(u)
		model.apply(u)
		check(tab, model)
		switch step {
		case 150:
			kept, keptModel = tab, naive{index: model.index, keys: maps.Clone(model.keys), lanes: maps.Clone(model.lanes)}
		case 250:
			s, err := route.Decode(route.Encode(route.Saved{Table: tab}))
			if err != nil {
				t.Fatal(err)
			}
			tab = s.Table
		}
	}
	check(kept, keptModel)
}

// BenchmarkApply is one changed key among a hundred thousand.
func BenchmarkApply(b *testing.B) {
	u := route.Update{Reset: true, Complete: true}
	for n := range 100_000 {
		u.Keys = append(u.Keys, key(n))
	}
	tab := route.NewTable().Apply(u)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		tab = tab.Apply(route.Update{Index: uint64(n), Keys: []route.Key{key(n % 100_000)}})
	}
}
