package drr_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cell/drr"
)

func TestQueueInterleavesExactly(t *testing.T) {
	q, err := drr.NewQueue[string, string](drr.Config{Quantum: 1_000_000, FlowsMax: 10})
	if err != nil {
		t.Fatal(err)
	}
	push := func(items string) {
		for it := range strings.FieldsSeq(items) {
			if err := q.Push(it[:1], it, 1_000_000); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	pop := func(n int) {
		for range n {
			it, ok := q.Pop()
			if !ok {
				t.Fatal("empty")
			}
			got = append(got, it)
		}
	}
	push("A1 A2 A3")
	pop(2)
	push("B1 B2 B3")
	pop(4)
	if s := strings.Join(got, " "); s != "A1 A2 B1 A3 B2 B3" {
		t.Errorf("got %s", s)
	}
}
