package sched

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/cell"
)

// TestChainsDoNotHoldUpOthers has thousands of jobs that share two keys and have a third of their own: with every job that ends all of them
// change the key that they sleep at. No call follows them all, the others' jobs run meanwhile, and nobody is forgotten.
func TestChainsDoNotHoldUpOthers(t *testing.T) {
	const chain = 3000
	d := newDesk(t, nil)
	keys := func(names ...string) []cell.ConcurrencyKey {
		var out []cell.ConcurrencyKey
		for _, name := range names {
			out = append(out, cell.ConcurrencyKey{Key: name, Max: 1})
		}
		return out
	}
	d.add(Item{Lane: laneOf("p"), Keys: keys("a")})
	d.add(Item{Lane: laneOf("p"), Keys: keys("b")})
	if got := d.rest(d.offer, 5); got != "p1 p2" {
		t.Fatal(got)
	}
	for n := range chain {
		d.add(Item{Lane: laneOf("p"), Keys: keys("a", "b", fmt.Sprint("own", n))})
	}
	asleep := func(key string) int64 { return d.tenantOf("p").keys[key].sleepers() }
	if n := asleep("a"); n != chain {
		t.Fatalf("%d sleep", n)
	}
	d.Drop(id(1))
	if n := asleep("b"); n == 0 || n > movesMax {
		t.Fatalf("one call has moved %d", n)
	}
	if at := d.Wake(d.now); at != d.now {
		t.Errorf("to wake at %d, and something is left undone", at)
	}
	d.add(Item{Lane: laneOf("q")})
	if got := d.rest(d.offer, 2); got != fmt.Sprint("q", chain+3) {
		t.Errorf("%q is granted meanwhile", got)
	}
	d.check()
	calls := 0
	for !d.pending.empty() {
		d.Advance(d.now)
		calls++
	}
	if n := asleep("b"); n != chain || calls > chain/movesMax {
		t.Errorf("%d sleep at the other key after %d calls", n, calls)
	}
	if at := d.Wake(d.now); at != 1001*second {
		t.Errorf("to wake at %d, and only an overrun is to come", at)
	}
	d.Drop(id(2))
	if got := d.rest(d.offer, 2); got != "p3" {
		t.Errorf("%q is granted in the end", got)
	}
	d.check()
}

// TestManyOperationsShareAKey has a key with room again that thousands of operations wait for: they are woken call by call, whoever is
// first.
func TestManyOperationsShareAKey(t *testing.T) {
	const operations = 1000
	names := []cell.Operation{"op"}
	for n := range OperationsMax - 1 {
		names = append(names, cell.Operation(fmt.Sprint("op", operations-1-n)))
	}
	d := newDesk(t, nil, names...)
	key := []cell.ConcurrencyKey{{Key: "k", Max: 1}}
	d.add(Item{Lane: laneOf("p"), Keys: key})
	if got := d.rest(d.offer, 2); got != "p1" {
		t.Fatal(got)
	}
	for n := range operations {
		d.add(Item{Lane: laneOf("p"), Operation: cell.Operation(fmt.Sprint("op", n)), Keys: key})
	}
	d.Drop(id(1))
	granted := 0
	for range 20 * OperationsMax {
		g, ok := d.Next(d.ask(d.offer))
		if ok {
			granted++
			d.Drop(g.Item.ID)
		}
	}
	if granted != OperationsMax-1 {
		t.Errorf("%d of %d that are offered have run", granted, OperationsMax-1)
	}
	d.check()
}
