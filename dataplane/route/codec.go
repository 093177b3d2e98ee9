package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/fairlead/fairlead/cell"
)

// magic begins a file, with the version of its format.
const magic = "fairlead-routes-1\n"

// checksumBytes end a file: FNV-1a of all before them. Each of its steps is reversible, so that one changed byte anywhere always shows,
// and others with a chance of all but 2^-64. It is against damage, not against whoever can write the file, who has the whole machine.
const checksumBytes = 8

// ErrDamaged is returned when a file of routes is not what was written.
var ErrDamaged = errors.New("the file of routes is damaged")

// Saved is what a file holds.
type Saved struct {
	Cluster string       // the id of the cluster that the table is of
	Heard   cell.Instant // when control was last heard of
	Table   *Table
}

// Encode returns the bytes of s. Equal tables give equal bytes.
func Encode(s Saved) []byte {
	u := s.Table.everything()
	w := writer{b: append([]byte(nil), magic...)}
	w.text(s.Cluster)
	w.number(uint64(s.Heard))
	w.number(u.Index)
	w.number(uint64(u.FeatureLevel))
	w.number(uint64(len(u.Keys)))
	for _, k := range u.Keys {
		w.key(k)
	}
	w.number(uint64(len(u.Lanes)))
	for _, l := range u.Lanes {
		w.text(string(l.Tenant))
		w.text(string(l.Cell))
		w.number(uint64(l.Epoch))
	}
	w.number(uint64(len(u.Cells)))
	for _, c := range u.Cells {
		w.text(string(c.Name))
		w.number(uint64(c.Phase))
		w.replicas(c.Replicas)
	}
	w.replicas(u.Control)
	w.splits(u.Lanes)
	return binary.BigEndian.AppendUint64(w.b, checksum(w.b))
}

// splits appends the batch lanes that are not where their tenants' others are. Files were without them at first: one is still, when there are
// none, so that a release that does not know of them can use it.
func (w *writer) splits(lanes []Lane) {
	var apart []Lane
	for _, l := range lanes {
		if l.split() {
			apart = append(apart, l)
		}
	}
	if len(apart) == 0 {
		return
	}
	w.number(uint64(len(apart)))
	for _, l := range apart {
		w.text(string(l.Tenant))
		w.text(string(l.BatchCell))
		w.number(uint64(l.BatchEpoch))
	}
}

func checksum(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b) // a hash takes everything
	return h.Sum64()
}

type writer struct{ b []byte }

func (w *writer) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) key(k Key) {
	w.b = append(w.b, k.Hash[:]...)
	w.text(k.Caller.Key)
	w.text(string(k.Caller.Tenant))
	w.number(uint64(len(k.Caller.Permissions)))
	for _, p := range k.Caller.Permissions {
		w.number(uint64(p))
	}
	w.number(uint64(len(k.Caller.Operations)))
	for _, op := range k.Caller.Operations {
		w.text(string(op))
	}
	w.number(uint64(k.Expires))
}

func (w *writer) replicas(rs []Replica) {
	w.number(uint64(len(rs)))
	for _, r := range rs {
		w.text(r.Name)
		w.text(r.Address)
	}
}

// Decode returns what [Encode] made the bytes of. It returns an error that wraps [ErrDamaged] for any others.
func Decode(data []byte) (Saved, error) {
	if len(data) < len(magic)+checksumBytes || string(data[:len(magic)]) != magic {
		return Saved{}, fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	}
	body, sum := data[:len(data)-checksumBytes], binary.BigEndian.Uint64(data[len(data)-checksumBytes:])
	if checksum(body) != sum {
		return Saved{}, fmt.Errorf("%w: its checksum is another", ErrDamaged)
	}
	r := reader{b: body[len(magic):]}
	s := Saved{Cluster: r.text(), Heard: cell.Instant(r.number())}
	u := Update{Index: r.number(), Reset: true, Complete: true, FeatureLevel: int(r.number())}
	u.Keys = many(&r, (*reader).key)
	u.Lanes = many(&r, func(r *reader) Lane {
		return Lane{Tenant: cell.TenantID(r.text()), Cell: cell.ID(r.text()), Epoch: cell.Epoch(r.number())}
	})
	u.Cells = many(&r, func(r *reader) Cell {
		return Cell{Name: cell.ID(r.text()), Phase: Phase(r.number()), Replicas: r.replicas()}
	})
	u.Control = r.replicas()
	r.splits(u.Lanes)
	if r.bad || len(r.b) != 0 {
		return Saved{}, fmt.Errorf("%w: it does not end where it says", ErrDamaged)
	}
	s.Table = NewTable().Apply(u)
	return s, nil
}

// reader takes values from bytes. After the first that is not there, it is bad and all others are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) text() string { return string(r.bytes(r.number())) }

func (r *reader) key() Key {
	var k Key
	copy(k.Hash[:], r.bytes(uint64(len(k.Hash))))
	k.Caller.Key, k.Caller.Tenant = r.text(), cell.TenantID(r.text())
	k.Caller.Permissions = many(r, func(r *reader) cell.Permission { return cell.Permission(r.number()) })
	k.Caller.Operations = many(r, func(r *reader) cell.Operation { return cell.Operation(r.text()) })
	k.Expires = cell.Instant(r.number())
	return k
}

func (r *reader) replicas() []Replica {
	return many(r, func(r *reader) Replica { return Replica{Name: r.text(), Address: r.text()} })
}

// splits takes the batch lanes that are not where their tenants' others are, which stand in the order of lanes, if they are there at all.
func (r *reader) splits(lanes []Lane) {
	if len(r.b) == 0 {
		return
	}
	apart := many(r, func(r *reader) Lane {
		return Lane{Tenant: cell.TenantID(r.text()), BatchCell: cell.ID(r.text()), BatchEpoch: cell.Epoch(r.number())}
	})
	r.bad = r.bad || len(apart) == 0
	at := 0
	for _, s := range apart {
		for at < len(lanes) && lanes[at].Tenant != s.Tenant {
			at++
		}
		if at == len(lanes) || !s.split() {
			r.bad = true
			return
		}
		lanes[at].BatchCell, lanes[at].BatchEpoch = s.BatchCell, s.BatchEpoch
	}
}

// many takes a count and so many values. Each has a byte at least, so that a count beyond what is left is damage and not a reservation.
func many[T any](r *reader, one func(*reader) T) []T {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
	}
	if r.bad || n == 0 {
		return nil
	}
	out := make([]T, 0, n)
	for range n {
		out = append(out, one(r))
	}
	return out
}
