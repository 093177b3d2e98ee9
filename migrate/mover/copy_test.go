package mover

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const batch = fairleadv1.Class_CLASS_BATCH

// pair is a source with jobs and a target that is staged.
func pair(ctx context.Context, t interface{ Fatal(...any) }, jobs int) (source, target *fakeCell, r *round) {
	source, target = newFakeCell("east"), newFakeCell("west")
	source.open("ash", 1, jobs)
	move := &fairleadv1.Move{Migration: "m", Attempt: 1}
	if _, err := source.TrackLane(ctx, &fairleadv1.TrackLaneRequest{Move: move, Tenant: "ash", Class: batch}); err != nil {
		t.Fatal(err)
	}
	_, err := target.StageLane(ctx, &fairleadv1.StageLaneRequest{
		Move: move, Class: batch, Epoch: 2, Tenant: &fairleadv1.TenantPromise{Tenant: "ash"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return source, target, &round{move: move, tenant: "ash", class: batch, from: source, to: target, callMax: time.Second, cursor: &fairleadv1.LaneCursor{}}
}

// Whatever changes, whatever is refused and whatever answer is lost on the way: once a copy has come to an end with nothing changing, both have the same.
func TestCopyConverges(t *testing.T) {
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		source, target, r := pair(ctx, t, rapid.IntRange(0, 60).Draw(t, "jobs"))
		source.most = rapid.IntRange(1, 20).Draw(t, "records in a chunk")
		steps := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 30).Draw(t, "steps")
		n := 0
		lose := false
		target.refuse = func(method string, m proto.Message) error {
			if len(steps) == 0 || method != "ImportLane" {
				return nil
			}
			step := steps[0]
			steps = steps[1:]
			switch step {
			case 0:
				n++
				return source.submit("ash", batch, string(rune('a'+n)))
			case 1:
				_ = source.finish("ash", batch, "ash-CLASS_BATCH-0")
			case 2:
				return errors.New("refused")
			case 3: // it was done, and nobody knows
				if lose {
					return nil
				}
				lose = true
				req, ok := m.(*fairleadv1.ImportLaneRequest)
				if !ok {
					t.Fatalf("%T", m)
				}
				_, err := target.ImportLane(ctx, req)
				lose = false
				return errors.Join(errors.New("lost"), err)
			}
			return nil
		}
		for done := false; !done; {
			quiet, asked := len(steps) == 0, target.calls["ImportLane"]
			_, err := r.copy(ctx)
			if err != nil { // the driver looks again
				r.cursor = &fairleadv1.LaneCursor{}
				if l := target.lanes[laneKey{"ash", batch}]; l != nil {
					r.cursor = proto.CloneOf(l.cursor)
				}
			}
			done = err == nil && (quiet || asked == target.calls["ImportLane"])
		}
		from, to := source.lanes[laneKey{"ash", batch}], target.lanes[laneKey{"ash", batch}]
		if string(from.digest()) != string(to.digest()) || to.cursor.GetSeeded() != math.MaxUint64 || to.cursor.GetChange() != from.change {
			t.Errorf("%v at %v, not %v at %d", to.jobs, to.cursor, from.jobs, from.change)
		}
	})
}

// A target that is elsewhere each time is not asked for ever.
func TestCopyGivesUp(t *testing.T) {
	ctx := t.Context()
	_, target, r := pair(ctx, t, 5)
	target.refuse = func(method string, _ proto.Message) error {
		if method == "ImportLane" {
			target.set(func() { target.lanes[laneKey{"ash", batch}].cursor.Change++ })
		}
		return nil
	}
	if _, err := r.copy(ctx); !errors.Is(err, errElsewhere) {
		t.Error(err)
	}
}

// A call that hangs ends with its bound, and what was read ahead with it.
func TestCopyFromHungCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		source, target, r := pair(ctx, t, 100)
		target.hangs = true
		began := time.Now()
		if _, err := r.copy(t.Context()); err == nil || time.Since(began) != r.callMax {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		target.set(func() { target.hangs = false })
		source.set(func() { source.hangs = true })
		if _, err := r.copy(t.Context()); err == nil {
			t.Error("from a cell that hangs")
		}
	})
}

// The rate falls to the half while the budget of slow answers is used up and more come, rises while it holds, stays in its bounds, and what was allowed is kept
// over any second.
func TestThrottle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		most := rapid.Int64Range(migrate.BytesPerSecondMin, 64<<20).Draw(t, "most")
		th := newThrottle(most, now)
		th.allow(most, rapid.Bool().Draw(t, "it may rest"))
		th.begin(10 * time.Millisecond)
		th.learn(20 * time.Millisecond)
		began, taken, answers := now, 0.0, uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "chunks") {
			more, slow := rapid.Uint64Range(0, 300).Draw(t, "answers"), rapid.Int64Range(0, 3).Draw(t, "slow")
			if rapid.IntRange(0, 20).Draw(t, "another leader") == 0 {
				answers = 0
			}
			answers += more
			before, since := th.rate, now.Sub(th.adjusted)
			th.observe(answers, slow, now)
			switch {
			case th.rate < min(max(rateMin, float64(most)/leastPart), float64(most)) || th.rate > float64(most):
				t.Fatalf("a rate of %v, of at most %d", th.rate, most)
			case th.budget > savedMax || th.budget < -owedMax:
				t.Fatalf("a budget of %v", th.budget)
			case th.budget < 0 && slow > 0 && since >= fallInterval && th.rate > max(th.floor(), before/2):
				t.Fatalf("%v, after %v, while the source suffers", th.rate, before)
			case th.budget < 0 && th.rate > before:
				t.Fatalf("%v, after %v, with a budget of %v", th.rate, before, th.budget)
			case th.budget > 0 && since >= riseInterval && before < float64(most) && th.rate <= before:
				t.Fatalf("%v, after %v, with a budget of %v", th.rate, before, th.budget)
			}
			n := rapid.IntRange(1, chunkBytes).Draw(t, "bytes")
			wait := th.took(n, now)
			if wait < 0 || wait != th.owes(now) {
				t.Fatal(wait)
			}
			taken += float64(n)
			now = now.Add(wait + time.Duration(rapid.IntRange(0, 300).Draw(t, "beside"))*time.Millisecond)
			if allowed := float64(most) * (now.Sub(began).Seconds() + burstMax.Seconds()); taken > allowed+chunkBytes {
				t.Fatalf("%v bytes in %v, of at most %v", taken, now.Sub(began), allowed)
			}
		}
	})
}

// Whatever a source can bear, over a long copy hardly more of its answers are slow than may be, and the copy goes about as fast as that allows.
func TestThrottleKeepsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perSecond, chunk, seconds = 200, 128 << 10, 600
		bears := rapid.Float64Range(2*rateMin, 8<<20).Draw(t, "bytes a second without harm")
		now := time.Unix(1000, 0)
		th := newThrottle(16<<20, now)
		th.begin(4 * time.Millisecond)
		th.learn(10 * time.Millisecond)
		began, taken, answers, slow := now, 0.0, 0.0, 0.0
		last := now
		for owed := 0.0; now.Sub(began) < seconds*time.Second; {
			took := max(th.took(chunk, now), time.Millisecond)
			now = now.Add(took)
			taken += chunk
			span := now.Sub(last).Seconds()
			last = now
			answers += perSecond * span
			if rate := chunk / took.Seconds(); rate > bears {
				owed += perSecond * span * min(1, rate/bears-1) / 10 // the more it is asked for, the more are slow
			}
			told := math.Floor(owed)
			owed, slow = owed-told, slow+told
			th.observe(uint64(answers), int64(told), now)
		}
		if most := answers*slowThousandths/1000 + 2*owedMax; slow > most {
			t.Errorf("%v of %v answers were slow, of at most %v", slow, answers, most)
		}
		if rate := taken / seconds; rate < bears/2 {
			t.Errorf("%v bytes a second, of %v that do no harm", rate, bears)
		}
	})
}

// A source that is slow at the least rate is left alone for a while. One that is as slow by itself becomes what the copy is measured by, and is not spared for
// ever; one that is slow by the copy is spared, and left alone ever more seldom.
func TestThrottleFindsTheBaseline(t *testing.T) {
	const fine, slow = 5 * time.Millisecond, 50 * time.Millisecond
	for name, c := range map[string]struct {
		alone time.Duration
		rate  float64
		rests int
	}{
		"by itself":   {slow, 16 << 20, 1},
		"by the copy": {fine, rateMin, 4}, // after 30, 60, 120 and 240 s
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			th := newThrottle(16<<20, now)
			th.allow(16<<20, true)
			th.begin(fine)
			answers, rests, resting := uint64(0), 0, false
			for range 600 {
				now = now.Add(time.Second)
				answers += 100
				was := resting
				resting = th.owes(now) >= time.Second
				if resting && !was {
					rests++
				}
				if resting {
					th.learn(c.alone)
					continue
				}
				many := int64(0)
				if _, after := th.ask(); slow > after {
					many = 100
				}
				th.learn(slow)
				th.observe(answers, many, now)
			}
			if th.rate != c.rate || rests != c.rests {
				t.Errorf("it rested %d times, and goes at %v", rests, th.rate)
			}
		})
	}
}

// While the last changes are copied nothing rests.
func TestThrottleRestsWhileSeeding(t *testing.T) {
	now := time.Unix(1000, 0)
	th := newThrottle(16<<20, now)
	th.allow(16<<20, false)
	th.begin(time.Millisecond)
	for n := range uint64(600) {
		now = now.Add(time.Second)
		th.learn(time.Second)
		th.observe(100*n, 100, now)
		if wait := th.owes(now); wait > 0 {
			t.Fatalf("it rests for %v", wait)
		}
	}
}

// What a round owes is waited for by the next one: rounds that end before it is paid copy nothing, however many there are.
func TestThrottleHoldsOverRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, _, r := pair(t.Context(), t, 60_000)
		source.most = 8000     // some seconds' worth
		const most = 300 << 10 // below what is copied of a source that suffers
		r.throttle = newThrottle(most, time.Now())
		r.throttle.begin(0)
		taken, largest := 0, 0
		r.chunked = func(c chunk, _ *fairleadv1.LaneCursor) {
			taken, largest = taken+len(c.GetRecords()), max(largest, len(c.GetRecords()))
		}
		began := time.Now()
		for time.Since(began) < 20*time.Second {
			r.until = time.Now().Add(roundMax)
			if _, err := r.copy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r.cursor.GetSeeded() == math.MaxUint64 {
				break
			}
		}
		allowed := most * (time.Since(began) + burstMax).Seconds()
		if taken == 0 || float64(taken) > allowed+float64(largest) {
			t.Errorf("%d bytes in %v, of at most %v", taken, time.Since(began), allowed)
		}
	})
}
