package placement_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

func compute(units float64) placement.Load {
	return placement.Load{Compute: cell.Rate(units * cell.Unit)}
}

func TestDemandIsTheLargest(t *testing.T) {
	hour := placement.HourMax.Of(now)
	h := int(hour % 24)
	for name, c := range map[string]struct {
		sample placement.Sample
		floor  placement.Load
		want   placement.Load
	}{
		"nothing known": {want: placement.Load{}},
		"the floor":     {floor: compute(2), sample: placement.Sample{Average: compute(1), P95: compute(1.5)}, want: compute(2)},
		"the p95":       {floor: compute(1), sample: placement.Sample{Average: compute(1), P95: compute(1.5)}, want: compute(1.5)},
		"the average":   {floor: compute(1), sample: placement.Sample{Average: compute(2), P95: compute(1.5)}, want: compute(2)},
		"each resource": {
			floor:  placement.Load{Compute: 5, Jobs: 1, Bytes: 1},
			sample: placement.Sample{Average: placement.Load{Compute: 1, Jobs: 5, Bytes: 1}, P95: placement.Load{Compute: 1, Jobs: 1, Bytes: 5}},
			want:   placement.Load{Compute: 5, Jobs: 5, Bytes: 5},
		},
	} {
		p := placement.Profile{}.Record(hour, c.sample)
		if got := p.Demand(c.floor, h); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		// Of other hours nothing is known: the largest that is stands for them.
		if got := p.Demand(c.floor, (h+7)%24); got != c.want {
			t.Errorf("%s, at another hour: got %v, want %v", name, got, c.want)
		}
	}
	if got := (placement.Profile{}).Demand(compute(3), 5); got != compute(3) {
		t.Errorf("without any measurement: %v", got)
	}
}

func TestProfileForgets(t *testing.T) {
	hour := placement.HourMax.Of(now)
	h := int(hour % 24)
	p := placement.Profile{}.Record(hour, placement.Sample{Average: compute(8), P95: compute(16)})
	// A quiet day: half of the average, and three quarters of the p95.
	p = p.Record(hour+24, placement.Sample{})
	if s := p.Hours[h]; s.Average != compute(4) || s.P95 != compute(12) || s.Hour != hour+24 {
		t.Errorf("after a quiet day %+v", s)
	}
	p = p.Record(hour+3*24, placement.Sample{P95: compute(1)})
	if s := p.Hours[h]; s.Average != compute(2) || s.P95 != compute(6.75) {
		t.Errorf("after two more %+v", s)
	}
	// An hour that was recorded before is not counted twice, and an older one changes nothing.
	again := p.Record(hour+3*24, placement.Sample{P95: compute(1)})
	again = again.Record(hour+24, placement.Sample{P95: compute(100), Average: compute(100)})
	again = again.Record(-1, placement.Sample{P95: compute(100)})
	if again != p {
		t.Errorf("recorded again: %+v, want %+v", again, p)
	}
	// What is older than three days than anything new is not known any more.
	p = p.Record(hour+6*24+1, placement.Sample{P95: compute(0.5)})
	if s := p.Hours[h]; s != (placement.HourSample{}) {
		t.Errorf("after three more days without anything at this hour %+v", s)
	}
	if got := p.Demand(placement.Load{}, h); got != compute(0.5) {
		t.Errorf("the demand is %v", got)
	}
	// After a long pause an hour begins anew.
	p = p.Record(hour+60*24, placement.Sample{Average: compute(1), P95: compute(1)})
	if s := p.Hours[h]; s.Average != compute(1) || s.P95 != compute(1) {
		t.Errorf("after a pause %+v", s)
	}
}

func TestProfileRemembersDays(t *testing.T) {
	day := placement.HourMax.Of(now) / 24
	var p placement.Profile
	for d := range int64(20) {
		for h := range int64(24) {
			limited := int64(0)
			if h == 3 {
				limited = d
			}
			p = p.Record((day+d)*24+h, placement.Sample{P95: compute(float64(d) + float64(h)/100), Limited: limited})
		}
	}
	p = p.Record((day+19)*24+3, placement.Sample{Limited: 25}) // some more of the same hour
	for d := int64(6); d < 20; d++ {
		got := p.Days[(day+d)%placement.DaysKept]
		want := placement.DaySample{Day: day + d, Peak: compute(float64(d) + 0.23), Limited: d}
		if d == 19 {
			want.Limited = 25
		}
		if got != want {
			t.Errorf("day %d: got %+v, want %+v", d, got, want)
		}
	}
}

func TestHourOf(t *testing.T) {
	for at, want := range map[cell.Instant]int64{
		0: 0, 1: 0, cell.Instant(time.Hour) - 1: 0, cell.Instant(time.Hour): 1, -1: -1, -cell.Instant(time.Hour): -1, -cell.Instant(time.Hour) - 1: -2,
	} {
		if got := placement.HourMax.Of(at); got != want {
			t.Errorf("%d: hour %d, want %d", at, got, want)
		}
	}
}

// TestMeter reads a tenant every ten seconds that runs two slots, and ten of them for five minutes.
func TestMeter(t *testing.T) {
	var m placement.Meter
	r := placement.Reading{Charged: 1000, Jobs: 4, Bytes: 100, Limited: 7}
	var got []placement.HourSample
	for at := now; at <= now.Add(2*time.Hour); at = at.Add(10 * time.Second) {
		in := at.Sub(now)
		busy := in > 20*time.Minute && in <= 25*time.Minute
		if at > now {
			r.Charged += 20 * cell.Unit
			if busy {
				r.Charged += 80 * cell.Unit
			}
		}
		r.Jobs, r.Bytes = 4, 100
		if busy {
			r.Jobs, r.Bytes = 40, 1000
		}
		if in == 30*time.Minute {
			r.Limited += 3
		}
		got = append(got, m.Observe(at, r)...)
	}
	if len(got) != 2 {
		t.Fatalf("got %+v", got)
	}
	first, second := got[0], got[1]
	if first.Hour != placement.HourMax.Of(now) || second.Hour != first.Hour+1 || first.Limited != 3 || second.Limited != 0 {
		t.Errorf("got %+v", got)
	}
	// (55 x 2 + 5 x 10) / 60 slots; five of sixty minutes are more than a twentieth. The reading at the end of the busy minutes is in the next one too.
	if first.Average.Compute != 2_666_666 || first.P95.Compute != 10*cell.Unit || first.P95.Jobs != 40 || first.P95.Bytes != 1000 {
		t.Errorf("first %+v", first)
	}
	if second.Average != (placement.Load{Compute: 2 * cell.Unit, Jobs: 4, Bytes: 100}) || second.P95 != second.Average {
		t.Errorf("second %+v", second)
	}
}

// TestMeterOfThreeBusyMinutes: a twentieth of the hour's minutes is not what a tenant needs room for.
func TestMeterOfThreeBusyMinutes(t *testing.T) {
	for busy, want := range map[int]cell.Rate{3: cell.Unit, 4: 9 * cell.Unit} {
		var m placement.Meter
		charged := int64(0)
		m.Observe(now, placement.Reading{})
		for minute := range 60 {
			charged += 60 * cell.Unit
			if minute < busy {
				charged += 8 * 60 * cell.Unit
			}
			for _, s := range m.Observe(now.Add(time.Duration(minute+1)*time.Minute), placement.Reading{Charged: charged}) {
				if s.P95.Compute != want {
					t.Errorf("%d busy minutes: p95 is %v, want %v", busy, s.P95.Compute, want)
				}
			}
		}
	}
}

func TestMeterBeginsAnew(t *testing.T) {
	var m placement.Meter
	m.Observe(now, placement.Reading{Charged: 1e12, Limited: 50})
	for minute := 1; minute <= 30; minute++ {
		m.Observe(now.Add(time.Duration(minute)*time.Minute), placement.Reading{Charged: 1e12 + int64(minute)*60*cell.Unit, Limited: 50})
	}
	// The cell restarts from nothing: the time until then is not counted, and nothing is charged less than nothing.
	m.Observe(now.Add(31*time.Minute), placement.Reading{Charged: 5, Limited: 2})
	// A reading of the past changes nothing.
	m.Observe(now.Add(5*time.Minute), placement.Reading{Charged: 1e15, Limited: 1e6})
	var got []placement.HourSample
	for minute := 32; minute <= 61; minute++ {
		got = append(got, m.Observe(now.Add(time.Duration(minute)*time.Minute),
			placement.Reading{Charged: 5 + int64(minute-31)*60*cell.Unit, Limited: 3})...)
	}
	if len(got) != 1 || got[0].Average.Compute != cell.Unit || got[0].P95.Compute != cell.Unit || got[0].Limited != 1 {
		t.Errorf("got %+v", got)
	}
	// Of a gap that is too long nothing is known; nor is there an hour in which too little is.
	if got := m.Observe(now.Add(5*time.Hour), placement.Reading{Charged: 1e13, Limited: 4}); len(got) != 0 {
		t.Errorf("a gap of hours: %+v", got)
	}
	if got := m.Observe(now.Add(5*time.Hour+10*time.Minute), placement.Reading{Charged: 1e13 + 600*cell.Unit, Limited: 4}); len(got) != 0 {
		t.Errorf("the hour is not over: %+v", got)
	}
	if got := m.Observe(now.Add(7*time.Hour), placement.Reading{Charged: 1e13 + 600*cell.Unit, Limited: 4}); len(got) != 1 || got[0].Average.Compute != cell.Unit {
		t.Errorf("ten minutes of an hour: %+v", got)
	}
}

// TestMeterLosesNothing: whatever the times of readings, what was charged is what the hours' averages come to.
func TestMeterLosesNothing(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 14))
		var m placement.Meter
		at, charged, total := now, int64(0), int64(0)
		m.Observe(at, placement.Reading{})
		var spent []int64 // by hour, counted by the nanosecond's share
		for at < now.Add(5*time.Hour) {
			next := at.Add(time.Duration(1 + random.Int64N(int64(4*time.Minute))))
			if hour := cell.Instant(placement.HourMax.Of(at)+1) * cell.Instant(time.Hour); next > hour {
				next = hour // a reading at each full hour, so that hours can be summed apart
			}
			rate := random.Int64N(20 * cell.Unit)
			charge := rate * int64(next.Sub(at)) / int64(time.Second)
			charged += charge
			i := int(placement.HourMax.Of(at) - placement.HourMax.Of(now))
			for len(spent) <= i {
				spent = append(spent, 0)
			}
			spent[i] += charge
			for _, s := range m.Observe(next, placement.Reading{Charged: charged}) {
				got := int64(s.Average.Compute) * 3600
				want := spent[s.Hour-placement.HourMax.Of(now)]
				if got > want || got < want-3600-3600*60 {
					t.Fatalf("seed %d: an hour of %d is said to be of %d", seed, want, got)
				}
				total += got
			}
			at = next
		}
		if total == 0 {
			t.Fatalf("seed %d: no hour was completed", seed)
		}
	}
}

func TestLoadArithmetic(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 15))
	load := func() placement.Load {
		n := func() int64 { return random.Int64N(pick(random, 1, 1000, int64(placement.AmountMax))) }
		return placement.Load{Compute: cell.Rate(n()), Jobs: n(), Bytes: n()}
	}
	for range 1000 {
		a, b := load(), load()
		if a.Add(b).Sub(b) != a || a.Add(b) != b.Add(a) || a.Max(b) != b.Max(a) || a.Scale(1) != a || a.Scale(0) != (placement.Load{}) {
			t.Fatalf("%v and %v do not add up", a, b)
		}
		if !a.Fits(a.Add(b)) {
			t.Fatalf("%v does not fit in more", a)
		}
		if d := a.Dominant(a.Max(b)); d < 0 || d > 1 {
			t.Fatalf("%v is %v of more", a, d)
		}
		var day placement.Day
		for h := range day {
			day[h] = a
		}
		if day.Add(day).Sub(day) != day || day.Peak() != a || day.Dominant(b) != a.Dominant(b) {
			t.Fatal("a day is not 24 hours")
		}
	}
	most := placement.Load{Compute: 1<<63 - 1, Jobs: 1<<63 - 1, Bytes: 1<<63 - 1}
	least := placement.Load{Compute: -1 << 63, Jobs: -1 << 63, Bytes: -1 << 63}
	if most.Add(most) != most || least.Add(least) != least || least.Sub(most) != least || most.Sub(least) != most || most.Scale(2) != most || least.Scale(2) != least {
		t.Error("sums are not held at the ends")
	}
	nothing := 0.0
	if got := compute(1).Scale(nothing / nothing); got != (placement.Load{}) {
		t.Errorf("times what is no number: %v", got)
	}
	if got := (placement.Load{Compute: 1_500_000, Bytes: 3}).String(); got != "compute 1.5, bytes 3" {
		t.Errorf("got %q", got)
	}
}
