package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/hashicorp/go-memdb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// Names of tables and of their indexes; memdb demands that the first one be called id.
const (
	tableOrganizations = "organizations"
	tableTenants       = "tenants"
	tableKeys          = "keys"
	tableCells         = "cells"
	tableAssignments   = "assignments"
	tableUnplaced      = "unplaced"
	tableDecisions     = "decisions"
	tableProfiles      = "profiles"
	tableAgents        = "agents"
	tableTokens        = "tokens"
	tableAudit         = "audit"
	tableMigrations    = "migrations"
	byID               = "id"
	byOrganization     = "organization" // then by id; only what has one
	byTenant           = "tenant"       // then by id; of migrations the newest first
	byHash             = "hash"
	byCell             = "cell" // then by what else names the row
	byAge              = "age"  // of decisions the oldest first, of migrations the newest
	byLive             = "live" // only what has not ended, the oldest first
	byEnd              = "end"  // only what has ended, what ended first before others
)

// View is one generation of the state. It may be read from any goroutine, for as long as anybody likes.
type View struct {
	db   *memdb.MemDB
	head head
}

// Index returns the index of the generation's last entry; 0 for none.
func (v View) Index() uint64 { return v.head.index }

// Clock returns the latest time that any command carried.
func (v View) Clock() cell.Instant { return v.head.clock }

// Tenant returns the tenant, if there is one.
func (v View) Tenant(id cell.TenantID) (Tenant, bool) {
	return get[Tenant](v.db, tableTenants, byID, string(id))
}

// Tenants returns the tenants whose id is above after, in the order of their ids.
func (v View) Tenants(after cell.TenantID) iter.Seq[Tenant] {
	return above(v.db, tableTenants, byID, func(t Tenant) bool { return t.ID() > after }, string(after))
}

// TenantsOf returns the tenants of the organization whose id is above after, in the order of their ids.
func (v View) TenantsOf(id cell.OrganizationID, after cell.TenantID) iter.Seq[Tenant] {
	tenants := above(v.db, tableTenants, byOrganization,
		func(t Tenant) bool { return t.Policy.Organization != id || t.ID() > after }, string(id), string(after))
	return func(yield func(Tenant) bool) {
		for t := range tenants {
			if t.Policy.Organization != id || !yield(t) {
				return
			}
		}
	}
}

// Organization returns the organization, if there is one.
func (v View) Organization(id cell.OrganizationID) (Organization, bool) {
	return get[Organization](v.db, tableOrganizations, byID, string(id))
}

// Organizations returns the organizations whose id is above after, in the order of their ids.
func (v View) Organizations(after cell.OrganizationID) iter.Seq[Organization] {
	return above(v.db, tableOrganizations, byID, func(o Organization) bool { return o.ID() > after }, string(after))
}

// Key returns the key, if it is there and not forgotten.
func (v View) Key(id command.KeyID) (Key, bool) { return get[Key](v.db, tableKeys, byID, string(id)) }

// KeyByHash returns the key whose secret has this SHA-256, live or not.
func (v View) KeyByHash(hash [sha256.Size]byte) (Key, bool) {
	return get[Key](v.db, tableKeys, byHash, string(hash[:]))
}

// Keys returns the keys whose id is above after, in the order of their ids.
func (v View) Keys(after command.KeyID) iter.Seq[Key] {
	return above(v.db, tableKeys, byID, func(k Key) bool { return k.ID > after }, string(after))
}

// KeysOf returns the tenant's keys, or the platform's for no tenant, whose id is above after, in the order of their ids.
func (v View) KeysOf(tenant cell.TenantID, after command.KeyID) iter.Seq[Key] {
	keys := above(v.db, tableKeys, byTenant, func(k Key) bool { return k.Tenant != tenant || k.ID > after }, string(tenant), string(after))
	return func(yield func(Key) bool) {
		for k := range keys {
			if k.Tenant != tenant || !yield(k) {
				return
			}
		}
	}
}

// index orders rows of type T by texts, none of which holds a zero byte unless it is the last one and of fixed length. A zero byte
// ends each, so that acme comes before acme-2 and is no prefix of it. A row without texts is not in the index.
type index[T any] struct{ texts func(*T) []string }

// FromObject implements memdb.SingleIndexer.
func (x index[T]) FromObject(raw any) (bool, []byte, error) {
	row, ok := raw.(*T)
	if !ok {
		return false, nil, fmt.Errorf("%T is not a row of %T", raw, row)
	}
	texts := x.texts(row)
	return texts != nil, joined(texts), nil
}

// FromArgs implements memdb.Indexer.
func (index[T]) FromArgs(args ...any) ([]byte, error) {
	texts := make([]string, 0, len(args))
	for _, a := range args {
		s, ok := a.(string)
		if !ok {
			return nil, fmt.Errorf("%T is not a text", a)
		}
		texts = append(texts, s)
	}
	return joined(texts), nil
}

func joined(texts []string) []byte {
	n := 0
	for _, s := range texts {
		n += len(s) + 1
	}
	b := make([]byte, 0, n)
	for _, s := range texts {
		b = append(append(b, s...), 0)
	}
	return b
}

func newDB() *memdb.MemDB {
	tables := map[string]*memdb.TableSchema{}
	for _, t := range []*memdb.TableSchema{
		table(tableOrganizations, unique(byID, func(o *Organization) []string { return []string{string(o.ID())} })),
		table(
			tableTenants,
			unique(byID, func(t *Tenant) []string { return []string{string(t.ID())} }),
			unique(byOrganization, func(t *Tenant) []string {
				if t.Policy.Organization == "" {
					return nil
				}
				return []string{string(t.Policy.Organization), string(t.ID())}
			}),
		),
		table(
			tableKeys,
			unique(byID, func(k *Key) []string { return []string{string(k.ID)} }),
			unique(byTenant, func(k *Key) []string { return []string{string(k.Tenant), string(k.ID)} }),
			unique(byHash, func(k *Key) []string { return []string{string(k.Hash[:])} }),
		),
		table(tableCells, unique(byID, func(c *Cell) []string { return []string{string(c.ID)} })),
		table(
			tableAssignments,
			unique(byID, func(a *Assignment) []string { return []string{string(a.Lane.Tenant), classText(a.Lane.Class)} }),
			unique(byCell, func(a *Assignment) []string {
				return []string{string(a.Cell), string(a.Lane.Tenant), classText(a.Lane.Class)}
			}),
		),
		table(tableUnplaced, unique(byID, func(u *unplaced) []string { return []string{string(u.tenant)} })),
		table(
			tableDecisions,
			unique(byID, func(d *decision) []string { return []string{string(d.tenant)} }),
			unique(byAge, func(d *decision) []string { return []string{number8(d.index)} }),
		),
		table(tableProfiles, unique(byID, func(p *profile) []string { return []string{string(p.tenant)} })),
		table(
			tableAgents,
			unique(byID, func(a *Agent) []string { return []string{string(a.Name)} }),
			unique(byCell, func(a *Agent) []string { return []string{string(a.Cell), string(a.Name)} }),
		),
		table(tableTokens, unique(byID, func(t *JoinToken) []string { return []string{string(t.Hash[:])} })),
		table(
			tableMigrations,
			unique(byID, func(m *Migration) []string { return []string{string(m.ID)} }),
			unique(byAge, func(m *Migration) []string { return []string{newest(m.Number)} }),
			unique(byTenant, func(m *Migration) []string { return []string{string(m.Tenant), newest(m.Number)} }),
			unique(byLive, func(m *Migration) []string { return only(!m.Done(), m.Number) }),
			unique(byEnd, func(m *Migration) []string { return only(m.Done(), m.EndNumber) }),
		),
		table(tableAudit, unique(byID, func(r *AuditRecord) []string { return []string{number8(r.Sequence)} })),
	} {
		tables[t.Name] = t
	}
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: tables})
	must(err)
	return db
}

func table(name string, indexes ...*memdb.IndexSchema) *memdb.TableSchema {
	t := &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{}}
	for _, x := range indexes {
		t.Indexes[x.Name] = x
	}
	return t
}

// unique returns an index that holds what has texts.
func unique[T any](name string, texts func(*T) []string) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, Unique: true, AllowMissing: name != byID, Indexer: index[T]{texts}}
}

// number8 is a number as a text of fixed length, whose order is the numbers'.
func number8(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// newest is number8 with the largest first.
func newest(n uint64) string { return number8(^n) }

// only are the texts of a row that is in an index if it should be.
func only(in bool, n uint64) []string {
	if !in {
		return nil
	}
	return []string{number8(n)}
}

// put replaces the row with that id. The row is the table's from then on: it is never changed, only replaced.
func (s *State) put(table string, row any) {
	txn := s.db.Txn(true)
	must(txn.Insert(table, row))
	txn.Commit()
}

func (s *State) drop(table string, row any) {
	txn := s.db.Txn(true)
	must(txn.Delete(table, row))
	txn.Commit()
}

func get[T any](db *memdb.MemDB, table, index string, key ...any) (T, bool) {
	raw, err := db.Txn(false).First(table, index, key...)
	must(err)
	row, ok := raw.(*T)
	if !ok { // memdb gives nil for none
		var none T
		return none, false
	}
	return *row, true
}

// above returns the rows from the texts on for which over holds; it fails for at most the first, and of lanes for the first two.
func above[T any](db *memdb.MemDB, table, index string, over func(T) bool, from ...any) iter.Seq[T] {
	return func(yield func(T) bool) {
		rows, err := db.Txn(false).LowerBound(table, index, from...)
		must(err)
		for raw := rows.Next(); raw != nil; raw = rows.Next() {
			row, ok := raw.(*T)
			if !ok {
				panic(fmt.Sprintf("state: a %T in table %s", raw, table))
			}
			if over(*row) && !yield(*row) {
				return
			}
		}
	}
}

// must is for memdb's errors, each of which says that the schema or its use is wrong.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("state: %v", err))
	}
}
