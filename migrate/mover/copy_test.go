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

// The rate falls to the half while the source suffers, rises while it does not, stays in its bounds, and what was allowed is kept over any second.
func TestThrottle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		most := rapid.Int64Range(rateMin, 64<<20).Draw(t, "most")
		th := newThrottle(most, now)
		th.observe(10*time.Millisecond, now)
		began, taken := now, 0.0
		for range rapid.IntRange(1, 200).Draw(t, "chunks") {
			p99 := time.Duration(rapid.IntRange(1, 40).Draw(t, "p99")) * time.Millisecond
			before, due := th.rate, now.Sub(th.adjusted) >= adjustInterval
			th.observe(p99, now)
			suffers := p99*100 > th.baseline*sufferHundredths
			switch {
			case th.rate < rateMin || th.rate > float64(most):
				t.Fatalf("a rate of %v, of at most %d", th.rate, most)
			case due && suffers && before > rateMin && th.rate > max(rateMin, before/2):
				t.Fatalf("%v, after %v, while the source suffers", th.rate, before)
			case due && !suffers && before < float64(most) && th.rate <= before:
				t.Fatalf("%v, after %v, while it does not", th.rate, before)
			}
			n := rapid.IntRange(1, chunkBytes).Draw(t, "bytes")
			wait := th.took(n, now)
			if wait < 0 {
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

// A source that is slow by itself becomes what the copy is measured by: it is not spared for ever.
func TestThrottleFindsTheBaseline(t *testing.T) {
	now := time.Unix(1000, 0)
	th := newThrottle(16<<20, now)
	th.observe(10*time.Millisecond, now)
	for range 200 {
		now = now.Add(time.Second)
		th.observe(50*time.Millisecond, now)
	}
	if th.rate < 16<<20 {
		t.Errorf("it still goes at %v", th.rate)
	}
}
