package route_test

import (
	"encoding/base64"
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

// split is a tenant whose batch lane is elsewhere, or of another epoch.
func split(n int, home string, epoch uint64, batch string, batchEpoch uint64) route.Lane {
	l := lane(n, home, epoch)
	l.BatchCell, l.BatchEpoch = cell.ID(batch), cell.Epoch(batchEpoch)
	return l
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
	apart := whole().Apply(route.Update{Index: 11, Lanes: []route.Lane{split(2, "a", 4, "b", 6), split(7, "a", 4, "a", 6), lane(8, "a", 4)}})
	for name, tab := range map[string]*route.Table{"empty": route.NewTable(), "whole": whole(), "apart": apart} {
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
	for _, tab := range []*route.Table{whole(), whole().Apply(route.Update{Index: 11, Lanes: []route.Lane{split(2, "a", 4, "b", 6)}})} {
		damage(t, route.Encode(route.Saved{Cluster: "c1", Heard: 12345, Table: tab}))
	}
}

func damage(t *testing.T, data []byte) {
	t.Helper()
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

// oldFile is what the first release of the format wrote of whole.
const oldFile = "ZmFpcmxlYWQtcm91dGVzLTEKAmMxuWAKAQMHBAIKBQMNBwMQCAQTCgUWCwYZDQYcDgcfEAgiEQkAAQVrZXlfMQJ0MQIBAgIBYQNiLmMADggEFAsGGg4HIBEJ" +
	"JhQKLBcMMhoNOB0PPiAQRCMSAAIFa2V5XzICdDICAQICAWEDYi5jABUMBh4QCScVCzAZDTkeD0IiEksnFFQrFl0wGGY0GwADBWtleV8zAAAA9AMCAnQxAWID" +
	"AnQyAWEEAgFhBAEDYS0xBGgzOjEBYgICA2ItMQRoMToxA2ItMgRoMjoxAgNjLTEEaDQ6MQNjLTIEaDU6MdmNCngt4LKV"

// A file of the time when both lanes of a tenant had one home is read, and a table of which that is true is still written so.
func TestOldFile(t *testing.T) {
	data, err := base64.StdEncoding.DecodeString(oldFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := route.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := s.Table.Lane("t2"); !ok || l != lane(2, "a", 4) || s.Table.Tenants() != 2 || s.Table.Keys() != 3 {
		t.Errorf("%v %v", l, ok)
	}
	together := s.Table.Apply(route.Update{Index: 11, Lanes: []route.Lane{split(2, "a", 4, "b", 6)}}).
		Apply(route.Update{Index: 12, Lanes: []route.Lane{split(2, "b", 7, "b", 7)}})
	for name, tab := range map[string]*route.Table{"whole": whole(), "read": s.Table} {
		if got := route.Encode(route.Saved{Cluster: "c1", Heard: 12345, Table: tab}); !slices.Equal(got, data) {
			t.Errorf("%s is written as %x", name, got)
		}
	}
	again, err := route.Decode(route.Encode(route.Saved{Table: together}))
	if l, _ := again.Table.Lane("t2"); err != nil || l != lane(2, "b", 7) {
		t.Errorf("together again: %v, %v", l, err)
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
	index   uint64
	keys    map[string]route.Key
	tenants map[cell.TenantID]bool
	homes   map[cell.Lane]home
}

type home struct {
	cell  cell.ID
	epoch cell.Epoch
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
		delete(n.tenants, id)
		for _, class := range cell.Classes() {
			delete(n.homes, cell.Lane{Tenant: id, Class: class})
		}
	}
	for _, l := range u.Lanes {
		n.tenants[l.Tenant] = true
		now := map[cell.Class]home{cell.ClassInteractive: {l.Cell, l.Epoch}, cell.ClassBatch: {l.Cell, l.Epoch}}
		if l.BatchCell != "" {
			now[cell.ClassBatch] = home{l.BatchCell, l.BatchEpoch}
		}
		for class, h := range now {
			if id := (cell.Lane{Tenant: l.Tenant, Class: class}); h.epoch >= n.homes[id].epoch {
				n.homes[id] = h
			}
		}
	}
}

func (n *naive) clone() naive {
	return naive{index: n.index, keys: maps.Clone(n.keys), tenants: maps.Clone(n.tenants), homes: maps.Clone(n.homes)}
}

// A table and maps say the same after any updates, on the way over a file too, and no generation changes afterwards.
func TestAgainstMaps(t *testing.T) {
	const universe = 600
	rng := rand.New(rand.NewPCG(1, 2))
	tab := route.NewTable().Apply(route.Update{Reset: true, Complete: true})
	model := naive{keys: map[string]route.Key{}, tenants: map[cell.TenantID]bool{}, homes: map[cell.Lane]home{}}
	var kept *route.Table
	var keptModel naive
	check := func(tab *route.Table, m naive) {
		t.Helper()
		if tab.Index() != m.index || tab.Keys() != len(m.keys) || tab.Tenants() != len(m.tenants) {
			t.Fatalf("index %d and %d, keys %d and %d, tenants %d and %d", tab.Index(), m.index, tab.Keys(), len(m.keys), tab.Tenants(), len(m.tenants))
		}
		for n := range universe {
			c, ok := tab.Lookup(hashOf(n), 0)
			if _, want := m.keys[fmt.Sprintf("key_%d", n)]; ok != want || ok && c.Key != fmt.Sprintf("key_%d", n) {
				t.Fatalf("key %d: %v, want %v", n, ok, want)
			}
			id := cell.TenantID(fmt.Sprintf("t%d", n))
			l, ok := tab.Lane(id)
			if ok != m.tenants[id] {
				t.Fatalf("tenant %d: %v", n, ok)
			}
			cells := map[cell.ID]bool{}
			for _, class := range cell.Classes() {
				at, epoch := l.Home(class)
				if want := m.homes[cell.Lane{Tenant: id, Class: class}]; at != want.cell || epoch != want.epoch {
					t.Fatalf("lane %d %v: %v at %d, want %v", n, class, at, epoch, want)
				}
				cells[at] = true
			}
			if l.Apart() != (len(cells) == 2) {
				t.Fatalf("lane %d: apart is %v: %v", n, l.Apart(), l)
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
				l := lane(n, string(rune('a'+rng.IntN(3))), rng.Uint64N(5))
				if rng.IntN(2) == 0 {
					l.BatchCell, l.BatchEpoch = cell.ID(rune('a'+rng.IntN(3))), cell.Epoch(rng.Uint64N(5))
				}
				u.Lanes = append(u.Lanes, l)
			}
		}
		tab = tab.Apply(u)
		model.apply(u)
		check(tab, model)
		switch step {
		case 150:
			kept, keptModel = tab, model.clone()
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
