package gossip

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// meta is what an agent says of itself, in at most [MetaBytesMax]: a version, the digest of its cluster's id, its role, its load, and two texts
// with a byte for the length of each. What a later version appends is left alone.
type meta struct {
	cluster [clusterBytes]byte
	role    byte
	load    int // percent
	cell    string
	api     string
}

const (
	metaVersion  = 1
	clusterBytes = 16 // of a SHA-256: no two clusters share it by chance
	metaFixed    = 1 + clusterBytes + 2
)

var errMeta = errors.New("gossip: what the agent says of itself cannot be read")

func clusterOf(id string) (d [clusterBytes]byte) {
	sum := sha256.Sum256([]byte(id))
	copy(d[:], sum[:])
	return d
}

func roles() []string { return []string{"", "control", "cell", "gateway"} }

func roleOf(name string) byte {
	for i, r := range roles() {
		if r == name {
			return byte(i)
		}
	}
	return 0
}

func roleName(b byte) string {
	if rs := roles(); int(b) < len(rs) {
		return rs[b]
	}
	return "" // of a later version
}

// encode returns the bytes of m. It returns a *[cell.FieldError] when they are too many.
func (m meta) encode() ([]byte, error) {
	if n := metaFixed + 2 + len(m.cell) + len(m.api); n > MetaBytesMax {
		return nil, &cell.FieldError{
			Field:   "gossip meta",
			Problem: fmt.Sprintf("has %d bytes with the cell's name and the API's address, of at most %d", n, MetaBytesMax),
			Remedy:  "give shorter ones",
		}
	}
	b := append([]byte{metaVersion}, m.cluster[:]...)
	b = append(b, m.role, byte(max(0, min(m.load, 255))))
	for _, s := range []string{m.cell, m.api} {
		b = append(append(b, byte(len(s))), s...)
	}
	return b, nil
}

// decodeMeta reads what encode wrote. It returns errMeta for anything else.
func decodeMeta(b []byte) (meta, error) {
	if len(b) < metaFixed || b[0] < metaVersion || len(b) > MetaBytesMax {
		return meta{}, errMeta
	}
	var m meta
	copy(m.cluster[:], b[1:])
	b = b[1+clusterBytes:]
	m.role, m.load = b[0], int(b[1])
	b = b[2:]
	for _, s := range []*string{&m.cell, &m.api} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return meta{}, errMeta
		}
		*s, b = string(b[1:1+b[0]]), b[1+b[0]:]
	}
	return m, nil
}
