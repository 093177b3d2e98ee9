package neighbour

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/e2e/harness"
)

func anHour() *durationpb.Duration { return durationpb.New(time.Hour) }

// full is the scenario of the benchmark: the flood takes 12.5 s of all slots, the quiet tenants submit for 8 s and want 3 % of them.
func full(policy string, crowd int) scenario {
	return scenario{policy: policy, flood: 20_000, period: 400 * time.Millisecond, length: 8 * time.Second, crowd: crowd}
}

// crowdSize is how many tenants more there are where there are many.
const crowdSize = 10_000

// BenchmarkNeighbour prints what quiet tenants wait beside a flood: under FIFO, under Fairlead, and with 10,000 tenants more whose jobs cannot
// run or, in the last one, all become ready at once.
func BenchmarkNeighbour(b *testing.B) {
	for name, sc := range map[string]scenario{
		"policy=fairlead/tenants=20":    full("fairlead", 0),
		"policy=fairlead/tenants=10020": full("fairlead", crowdSize),
		"policy=fifo/tenants=20":        full("fifo", 0),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f := run(b, sc)
				b.Log(f)
				f.report(b)
			}
		})
	}
	b.Run("policy=fairlead/ready=10020", func(b *testing.B) {
		for b.Loop() {
			f := runRound(b, crowdSize)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(f.crowd.Seconds(), "crowd-max-wait-s")
			b.ReportMetric(f.quiet.Seconds(), "quiet-max-wait-s")
			b.ReportMetric(f.round.Seconds(), "round-s")
			b.ReportMetric(100*f.busy, "slots-busy-%")
		}
	})
}

// TestQuietTenantsHardlyWait plays the scenario in small, under FIFO and under Fairlead. What else runs on a machine only ever adds to a wait, so
// the best of three counts. How long a wait is in milliseconds is judged only where the machine let the worker's slots be busy.
func TestQuietTenantsHardlyWait(t *testing.T) {
	const (
		waitMax   = 50 * time.Millisecond
		busyMin   = 0.6
		betterMin = 5
		tries     = 3
	)
	small := func(policy string) scenario {
		return scenario{policy: policy, flood: 2_000, period: 400 * time.Millisecond, length: 1200 * time.Millisecond}
	}
	fifo := run(t, small("fifo"))
	t.Logf("fifo:     %v", fifo)
	for n := 1; ; n++ {
		ours := run(t, small("fairlead"))
		t.Logf("fairlead: %v", ours)
		better := betterMin*ours.p95 <= fifo.p95
		if better && ours.p95 <= waitMax {
			return
		}
		if n < tries {
			continue
		}
		if better && ours.busy < busyMin {
			t.Logf("the machine is too busy to judge %v: slots were busy %.0f %% of their time", ours.p95, 100*ours.busy)
			return
		}
		t.Fatalf("the quiet tenants' p95 wait is %v, and %v under FIFO: want at most %v, and %d times better", ours.p95, fifo.p95, waitMax, betterMin)
	}
}

// TestNobodyWaitsBeyondARound lets a crowd of tenants have a job each that becomes ready at the same time, beside a flood, and looks at how long
// everybody waits.
func TestNobodyWaitsBeyondARound(t *testing.T) {
	runRound(t, 400)
}

// round is what came of everybody being ready at once.
type round struct {
	crowd, quiet time.Duration // the longest waits
	round        time.Duration // everybody's one job, over the slots
	busy         float64
}

// runRound has a flood and a crowd wait for a worker, lets that come, and has each quiet tenant submit job after job meanwhile, the next when the
// last has run. Nobody may wait longer than a round of the rotation, in which everybody runs a job: the noisy tenant a few, as its quantum
// allows. It allows for slots that are not always busy, and for a machine that does other things.
func runRound(tb testing.TB, n int) round {
	tb.Helper()
	harness.NeedSignals(tb)
	const (
		flood   = 2_000
		busyMin = 0.7
		slack   = 1500 * time.Millisecond
	)
	s := newStage(tb, "fairlead")
	c := gather(tb, s.server, n)
	c.ready()
	s.flood(flood)
	s.startWorker()
	select {
	case <-s.arrived:
	case <-s.worker.Ended():
		tb.Fatal("the worker ended")
	}
	began := time.Now()
	f := round{round: time.Duration(n+quiet+1) * jobTime / slots}
	bound := time.Duration(float64(f.round)/busyMin) + slack

	var wg sync.WaitGroup
	subs := make([][]submission, quiet)
	for i := range quiet {
		wg.Go(func() {
			for k := 0; time.Since(began) < f.round; k++ {
				sub := s.submit(quietName(i), k)
				subs[i] = append(subs[i], sub)
				if _, err := s.clients[sub.tenant].Wait(tb.Context(), sub.id); err != nil {
					tb.Errorf("waiting for a job of %s: %v", sub.tenant, err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.finish(flood + n)
	s.end()
	s.longest(&f, began, subs)
	tb.Logf("%d tenants ready at once: a round is %v; the longest wait in the crowd is %v, of a quiet tenant %v; slots busy %.1f %%",
		n, f.round, f.crowd, f.quiet, 100*f.busy)
	if f.crowd > bound || f.quiet > bound {
		tb.Errorf("somebody waited longer than %v: a round over %v, and %v", bound, busyMin, slack)
	}
	return f
}

// finish waits until so many jobs have succeeded. It looks seldom: a look at all lanes is work for the server that is being measured.
func (s *stage) finish(jobs int) {
	s.tb.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		status, err := s.server.Status(s.tb.Context())
		switch {
		case err != nil:
			s.tb.Fatal(err)
		case status.GetJobs().GetSucceeded() >= int64(jobs):
			return
		case time.Now().After(deadline):
			s.tb.Fatalf("%d jobs have not ended: %v", jobs, status.GetJobs())
		}
		harness.Pause(s.tb, 300*time.Millisecond)
	}
}

// longest works out the longest waits.
func (s *stage) longest(f *round, began time.Time, subs [][]submission) {
	at := map[string]map[int]time.Time{}
	for _, of := range subs {
		for _, sub := range of {
			if at[sub.tenant] == nil {
				at[sub.tenant] = map[int]time.Time{}
			}
			at[sub.tenant][sub.n] = sub.at
		}
	}
	var busy, last int64
	for _, x := range s.ran {
		since, isQuiet := at[x.Tenant][x.N]
		busy += x.End - x.Start
		last = max(last, x.End)
		switch {
		case isQuiet:
			f.quiet = max(f.quiet, time.Duration(x.Start-since.UnixNano()))
		case x.Tenant != noisy:
			f.crowd = max(f.crowd, time.Duration(x.Start-began.UnixNano()))
		}
	}
	f.busy = float64(busy) / float64(slots*(last-began.UnixNano()))
}
