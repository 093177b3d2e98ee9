package route

import "maps"

// shardCount is how many pieces a map is kept in: a change copies the piece that it is in. With 100,000 entries that is some 400.
const shardCount = 256

// shards is a persistent map. Its zero value is empty. Values that are derived from one another share the pieces that are equal.
type shards[K comparable, V any] struct {
	of     func(K) uint8
	pieces [shardCount]map[K]V
	count  int
}

func (s *shards[K, V]) get(k K) (V, bool) {
	v, ok := s.pieces[s.of(k)][k]
	return v, ok
}

// edit is a map in the making. The pieces that it has copied are its own.
type edit[K comparable, V any] struct {
	shards[K, V]
	own [shardCount]bool
}

// edited returns a map that begins as s, which it leaves as it is.
func edited[K comparable, V any](s *shards[K, V]) *edit[K, V] { return &edit[K, V]{shards: *s} }

func (e *edit[K, V]) piece(k K) map[K]V {
	i := e.of(k)
	if !e.own[i] {
		e.own[i] = true
		m := make(map[K]V, len(e.pieces[i])+1)
		maps.Copy(m, e.pieces[i])
		e.pieces[i] = m
	}
	return e.pieces[i]
}

func (e *edit[K, V]) set(k K, v V) {
	m := e.piece(k)
	before := len(m)
	m[k] = v
	e.count += len(m) - before
}

func (e *edit[K, V]) remove(k K) {
	if _, ok := e.get(k); !ok {
		return
	}
	delete(e.piece(k), k)
	e.count--
}

// ofString spreads texts over the pieces: FNV-1a, whose low byte depends on every byte.
func ofString[K ~string](k K) uint8 {
	h := uint32(2166136261)
	for i := range len(k) {
		h = (h ^ uint32(k[i])) * 16777619
	}
	return uint8(h ^ h>>8 ^ h>>16 ^ h>>24)
}

// ofHash spreads hashes of secrets, which are spread already.
func ofHash(h Hash) uint8 { return h[0] }
