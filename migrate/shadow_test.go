package migrate

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// TestShadow has the target's scheduler agree with the source's and not: that is told, and holds nothing up.
func TestShadow(t *testing.T) {
	i := cell.ClassBatch.Index()
	for name, c := range map[string]struct {
		edit        func(*ideal)
		order, wait Verdict
	}{
		"both agree": {func(w *ideal) {
			w.o.Source.Lanes[i].Front[0], w.o.Target.Lanes[i].Front[0] = "job_1", "job_1"
		}, Pass, Pass},
		"another order": {func(w *ideal) {
			w.o.Source.Lanes[i].Front, w.o.Target.Lanes[i].Front = [FrontMax]string{"job_1", "job_2"}, [FrontMax]string{"job_2", "job_1"}
		}, Warn, Pass},
		"one job fewer": {func(w *ideal) { w.o.Source.Lanes[i].Front[0] = "job_1" }, Warn, Pass},
		"of two changes": {func(w *ideal) {
			w.o.Source.Lanes[i].Front[0] = "job_1"
			w.o.Source.Lanes[i].Change++
		}, Pass, Pass},
		"a longer wait":               {func(w *ideal) { w.o.Target.Lanes[i].PredictedWait = time.Minute }, Pass, Warn},
		"one that is not much longer": {func(w *ideal) { w.o.Target.Lanes[i].PredictedWait = time.Second }, Pass, Pass},
		"one that was long at home too": {func(w *ideal) {
			w.o.Source.Lanes[i].PredictedWait, w.o.Target.Lanes[i].PredictedWait = time.Hour, time.Hour
		}, Pass, Pass},
	} {
		t.Run(name, func(t *testing.T) {
			w := reach(t, DefaultOptions(), inState(Shadowing))
			for at := range w.o.Source.Lanes { // both are known as of one change
				w.o.Source.Lanes[at].DigestDone, w.o.Source.Lanes[at].DigestChange = Whole, w.o.Source.Lanes[at].Change
				w.o.Target.Lanes[at].DigestDone, w.o.Target.Lanes[at].DigestChange = Whole, w.o.Source.Lanes[at].Change
				w.o.Target.Lanes[at].Cursor = Cursor{Seeded: SeededAll, Change: w.o.Source.Lanes[at].Change}
				w.o.Target.Lanes[at].Digest = w.o.Source.Lanes[at].Digest
			}
			c.edit(w)
			gates := Gates(w.r, w.o, w.cfg)
			of := func(name string) Verdict { // the worst of both classes
				v := Pass
				for _, g := range gates {
					if g.Name == name {
						v = max(v, g.Verdict)
					}
				}
				return v
			}
			if of(GateOrder) != c.order || of(GateWait) != c.wait {
				t.Errorf("%v", gates)
			}
			if slices.ContainsFunc(gates, func(g Gate) bool { return g.Verdict == Fail && (g.Name == GateOrder || g.Name == GateWait) }) {
				t.Errorf("it holds the migration up: %v", gates)
			}
		})
	}
}
