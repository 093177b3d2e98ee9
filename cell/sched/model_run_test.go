package sched

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// pair is a scheduler and its model, which are told the same.
type pair struct {
	*model

	s   *Scheduler
	seq uint64
	// What is drawn from: little of it, so that jobs meet.
	names      []cell.TenantID
	operations []cell.Operation
	kinds      []cell.Class
	maxima     []int64
	keys       []int // how many a job has
	without    []string
	crews      []cell.WorkerGroup // of workers; nil for none
	hands      []uint64           // of tenants; nil for none
	moves      int                // of strands, in a call; 0 is the usual
}

// settle makes calls until nothing is left undone.
func (p *pair) settle() {
	for !p.s.pending.empty() {
		p.s.Advance(p.now)
	}
}

func tenantNames() []cell.TenantID { return []cell.TenantID{"a", "b", "c"} }

func (p *pair) anyTenant(t *rapid.T) cell.TenantID {
	return rapid.SampledFrom(p.names).Draw(t, "tenant")
}

// TestModel runs random commands against the model.
func TestModel(t *testing.T) {
	all := pair{
		names: tenantNames(), operations: []cell.Operation{"x", "y", "z", "nobody's"}, kinds: []cell.Class{cell.ClassInteractive, cell.ClassBatch},
		maxima: []int64{1, 1, 2, 3}, keys: []int{0, 1, 1, 2, 3, 4},
	}
	t.Run("fairlead", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFairlead, all) })
	})
	t.Run("fifo", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFIFO, all) })
	})
	// Tenants with hands, and workers in groups.
	t.Run("hands", func(t *testing.T) {
		dealt := all
		dealt.crews, dealt.hands = []cell.WorkerGroup{0, 1, 2, 3, 64}, []uint64{0, 1, 2, 3, 5, 1 << 63, 1<<63 | 2, math.MaxUint64}
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFairlead, dealt) })
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFIFO, dealt) })
		dealt.operations, dealt.keys = []cell.Operation{"x"}, []int{0}
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFairlead, dealt) })
	})
	// One tenant's jobs of one operation, which share keys with more than one place.
	t.Run("keys", func(t *testing.T) {
		one := pair{
			names: []cell.TenantID{"a"}, operations: []cell.Operation{"x"}, kinds: []cell.Class{cell.ClassBatch}, maxima: []int64{2, 2, 3},
			keys: []int{1, 2, 3}, without: []string{"private", "open", "leave", "resize", "settle", "stop", "overruns", "preempt", "policy", "restart"},
		}
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFairlead, one) })
		one.moves = 1
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFairlead, one) })
	})
	// Jobs without keys, that take slots of each other's class.
	t.Run("bulkheads", func(t *testing.T) {
		two := pair{
			names: []cell.TenantID{"a", "b"}, operations: []cell.Operation{"x", "x", "x", "y"}, kinds: all.kinds, maxima: []int64{1},
			keys: []int{0, 0, 0, 1}, without: []string{"private", "leave", "settle", "restart", "remove", "again"},
		}
		rapid.Check(t, func(t *rapid.T) { runModel(t, PolicyFairlead, two) })
	})
}

func runModel(t *rapid.T, policy Policy, draws pair) {
	cfg := DefaultConfig()
	cfg.Policy = policy
	for i := range cfg.Bulkheads {
		after := func(name string) time.Duration {
			return rapid.SampledFrom([]time.Duration{0, 0, 200 * time.Millisecond, 1500 * time.Millisecond}).Draw(t, name)
		}
		cfg.Bulkheads[i] = Bulkhead{
			NominalParts: int64(rapid.IntRange(1, 5).Draw(t, "parts")), LendablePercent: int64(50 * rapid.IntRange(0, 2).Draw(t, "lend")),
			BorrowMaxPercent: rapid.SampledFrom([]int64{100, 100, 50, 0}).Draw(t, "borrow"), LendAfter: after("lend after"), PreemptAfter: after("preempt"),
		}
	}
	p := &draws
	p.model = &model{
		cfg: cfg, offers: map[OfferID][]cell.Operation{}, groups: map[OfferID]cell.WorkerGroup{}, workers: map[OfferID]int{}, starts: map[cell.TenantID][]cell.Instant{},
		bounds: map[string]bound{}, tenants: map[cell.TenantID]cell.TenantPolicy{}, ready: map[readiness]cell.Instant{},
		stopped: map[cell.JobID]bool{}, suspended: map[cell.Lane]bool{}, now: 1000 * second, began: 1000 * second,
	}
	s, err := New(cfg, p.now)
	if err != nil {
		t.Fatal(err)
	}
	p.s = s
	if p.moves > 0 {
		s.pending.most = p.moves
	}
	for _, tenant := range tenantNames() {
		p.set(t, cell.TenantPolicy{Tenant: tenant, Weight: cell.WeightDefault, Groups: p.hand(t)})
	}
	p.commands(t)
}

func (p *pair) commands(t *rapid.T) {
	commands := map[string]func(*rapid.T){
		"add":  p.add,
		"add2": p.add,
		"next": func(t *rapid.T) {
			if offer, ok := p.anyOffer(t); ok && p.workers[offer] > 0 {
				p.next(t, offer, [2]bool{rapid.IntRange(0, 3).Draw(t, "i") > 0, rapid.IntRange(0, 3).Draw(t, "b") > 0})
			}
		},
		"all": func(t *rapid.T) {
			if offer, ok := p.anyOffer(t); ok && p.workers[offer] > 0 {
				for range 5 {
					p.next(t, offer, [2]bool{true, true})
				}
			}
		},
		"private": p.private,
		"drop":    p.drop,
		"drop2":   p.drop,
		"again": func(t *rapid.T) {
			if h := p.anyHeld(t); h != nil {
				p.again(t, *h)
			}
		},
		"remove": p.remove,
		"open":   p.open,
		"leave": func(t *rapid.T) {
			if offer, ok := p.anyOffer(t); ok && p.workers[offer] > 0 {
				p.look()
				p.s.Leave(offer)
				p.workers[offer]--
			}
		},
		"resize": func(t *rapid.T) {
			p.slots = int64(rapid.IntRange(0, 12).Draw(t, "slots"))
			p.room = p.slots + p.slots*int64(rapid.IntRange(0, 2).Draw(t, "prefetch"))
			p.s.Resize(p.slots, p.room)
		},
		"settle":   p.settleOne,
		"stop":     p.stop,
		"overruns": p.overruns,
		"preempt":  p.preempt,
		"suspend":  p.suspend,
		"rebound":  p.rebound,
		"policy":   p.policy,
		"time":     p.time,
		"restart":  p.restart,
		"":         p.check,
	}
	for _, name := range p.without {
		delete(commands, name)
	}
	if len(p.without) > 0 {
		offer, err := p.s.Open([]cell.Operation{"x"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.offers[offer], p.workers[offer], p.slots, p.room = []cell.Operation{"x"}, 1, 6, 6
		p.s.Resize(p.slots, p.room)
	}
	t.Repeat(commands)
}
