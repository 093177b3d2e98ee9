package sim

import (
	"math/bits"
	"time"
)

// rotation is round robin: a job of each tenant in turn, whatever it costs. Tenants stand in the order of their first jobs in the scenario,
// and the cursor moves to the tenant after the one that was served. With a cap, tenants with as many jobs running are passed over.
type rotation struct {
	offers  []operations
	keys    *keyring
	index   map[string]int
	tenants []tenant
	waits   bitmap // tenants with something that waits
	cursor  int
	cap     int64 // 0 for none
}

type tenant struct {
	lineup  lineup
	running int64
}

func newRotation(s *Scenario, limit int64) *rotation {
	names := tenantsOf(s)
	r := &rotation{
		offers: offersOf(s), keys: newKeyring(), index: make(map[string]int, len(names)), tenants: make([]tenant, len(names)),
		waits: newBitmap(len(names)), cap: limit,
	}
	for i, name := range names {
		r.index[name] = i
		r.tenants[i].lineup.keys = r.keys
	}
	return r
}

// Rules implements Ruled.
func (r *rotation) Rules() Rules { return Rules{RunningMax: r.cap} }

// Arrive implements Dispatcher.
func (r *rotation) Arrive(_ time.Duration, rec *Record) error {
	i := r.index[rec.Job.Tenant]
	r.tenants[i].lineup.push(rec)
	r.waits.set(i)
	return nil
}

// Next implements Dispatcher.
func (r *rotation) Next(_ time.Duration, workers int) (*Record, bool) {
	offered := r.offers[workers]
	// Once around: from the cursor to the end, and from the start to the cursor.
	for _, part := range [2][2]int{{r.cursor, len(r.tenants)}, {0, r.cursor}} {
		for i := r.waits.next(part[0]); i < part[1]; i = r.waits.next(i + 1) {
			t := &r.tenants[i]
			if r.cap > 0 && t.running >= r.cap {
				continue
			}
			k := t.lineup.first(offered)
			if k == nil {
				continue
			}
			rec := t.lineup.take(k)
			r.idle(i)
			r.keys.hold(rec.Job, 1)
			t.running++
			r.cursor = (i + 1) % len(r.tenants)
			return rec, true
		}
	}
	return nil, false
}

// idle takes a tenant out of the rotation that has nothing more.
func (r *rotation) idle(i int) {
	if r.tenants[i].lineup.waits == 0 {
		r.waits.clear(i)
	}
}

// Complete implements Dispatcher.
func (r *rotation) Complete(_ time.Duration, rec *Record) {
	r.tenants[r.index[rec.Job.Tenant]].running--
	r.keys.hold(rec.Job, -1)
}

// Remove implements Dispatcher.
func (r *rotation) Remove(_ time.Duration, rec *Record) {
	i := r.index[rec.Job.Tenant]
	r.tenants[i].lineup.removed()
	r.idle(i)
}

// bitmap is a set of small numbers.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) set(i int)   { b[i/64] |= 1 << (i % 64) }
func (b bitmap) clear(i int) { b[i/64] &^= 1 << (i % 64) }

// next returns the least member from i on, or a number beyond all.
func (b bitmap) next(i int) int {
	word := i / 64
	if word >= len(b) {
		return 64 * len(b)
	}
	if rest := b[word] >> (i % 64); rest != 0 {
		return i + bits.TrailingZeros64(rest)
	}
	for word++; word < len(b); word++ {
		if b[word] != 0 {
			return 64*word + bits.TrailingZeros64(b[word])
		}
	}
	return 64 * len(b)
}
