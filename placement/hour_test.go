package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// A shorter hour changes nothing but how fast the time goes: whatever is measured, it gives what the same readings give on a time axis that is stretched
// to real hours.

// stretches are lengths of hours of which a real hour is a whole multiple and whose windows are whole numbers of nanoseconds: there it holds exactly.
func stretches() map[int64]placement.HourLength {
	all := make(map[int64]placement.HourLength)
	for times := int64(1); placement.HourMax/placement.HourLength(times) >= placement.HourMin; times++ {
		if int64(placement.HourMax)%(times*placement.MeterWindows) == 0 {
			all[times] = placement.HourMax / placement.HourLength(times)
		}
	}
	return all
}

func drawStretch(t *rapid.T) (times int64, hour placement.HourLength) {
	all := stretches()
	var of []int64
	for n := range all { // order-free: sorted below
		of = append(of, n)
	}
	slices.Sort(of)
	times = rapid.SampledFrom(of).Draw(t, "times")
	return times, all[times]
}

const someHour = 500_000

// readings draws a tenant's readings over some hours: of every density, with gaps, and with totals that fall.
func readings(t *rapid.T, hour placement.HourLength, hours int) (at []cell.Instant, of []placement.Reading) {
	length := int64(hour.Length())
	now := cell.Instant(someHour * length).Add(time.Duration(rapid.Int64Range(0, length-1).Draw(t, "offset")))
	r := placement.Reading{Charged: 5}
	for end := cell.Instant((someHour + int64(hours)) * length); now < end && len(at) < 300; {
		at, of = append(at, now), append(of, r)
		step := rapid.OneOf(rapid.Int64Range(1, length/60), rapid.Int64Range(1, length/3), rapid.Int64Range(1, 2*length)).Draw(t, "step")
		now = now.Add(time.Duration(step))
		r.Charged += rapid.Int64Range(0, 1e9).Draw(t, "charged")
		r.Limited += rapid.Int64Range(0, 3).Draw(t, "limited")
		r.Jobs, r.Bytes = rapid.Int64Range(0, 1e6).Draw(t, "jobs"), rapid.Int64Range(0, 1e9).Draw(t, "bytes")
		if rapid.IntRange(0, 30).Draw(t, "anew") == 0 {
			r.Charged, r.Limited = 0, 0
		}
	}
	return at, of
}

func observe(hour placement.HourLength, times int64, at []cell.Instant, of []placement.Reading) (samples []placement.HourSample) {
	m := placement.Meter{Hour: hour}
	for i := range at {
		samples = append(samples, m.Observe(at[i]*cell.Instant(times), of[i])...)
	}
	return samples
}

func TestMeterOfShorterHours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times, hour := drawStretch(t)
		at, of := readings(t, hour, 12)
		short, long := observe(hour, 1, at, of), observe(0, times, at, of)
		for i := range short { // the same charge in so many times the time
			short[i].Average.Compute /= cell.Rate(times)
			short[i].P95.Compute /= cell.Rate(times)
		}
		if !slices.Equal(short, long) {
			t.Fatalf("hours of %v:\n%+v\nstretched to an hour:\n%+v", hour.Length(), short, long)
		}
	})
}

// Of hours of any length nothing is lost: where readings are close, and one is at the end of each hour, an hour's average is what was charged in it.
func TestMeterOfOddHours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hour := placement.HourLength(rapid.Int64Range(int64(placement.HourMin), int64(placement.HourMax)).Draw(t, "hour"))
		length := int64(hour.Length())
		m, r := placement.Meter{Hour: hour}, placement.Reading{}
		m.Observe(cell.Instant(someHour*length), r)
		for n := int64(someHour); n < someHour+3; n++ {
			begin := r.Charged
			var got []placement.HourSample
			for at := n * length; at < (n+1)*length; {
				at = min((n+1)*length, at+rapid.Int64Range(length/50, length/placement.MeterGaps).Draw(t, "step"))
				r.Charged += rapid.Int64Range(0, 1e9).Draw(t, "charged")
				got = append(got, m.Observe(cell.Instant(at), r)...)
			}
			want := (r.Charged - begin) * 1000 / (length / int64(time.Millisecond)) // within the rounding of the length
			if len(got) != 1 || got[0].Hour != n || max(int64(got[0].Average.Compute)-want, want-int64(got[0].Average.Compute)) > 1+want/500 {
				t.Fatalf("the hour %d of %v is %+v, want compute %d", n, hour.Length(), got, want)
			}
		}
	})
}

func TestHourLengthAtTheEnds(t *testing.T) {
	for _, hour := range []placement.HourLength{-1, 0, placement.HourMin, placement.HourMin + 1, placement.HourMax} {
		length := cell.Instant(hour.Length())
		for at, want := range map[cell.Instant]int64{0: 0, length - 1: 0, length: 1, -1: -1, -length: -1, -length - 1: -2} {
			if got := hour.Of(at); got != want {
				t.Errorf("hours of %v: %d is in %d, want %d", hour.Length(), at, got, want)
			}
		}
		for _, at := range []cell.Instant{-1 << 63, 1<<63 - 1} {
			if n := hour.Of(at); n != 0 && (n > 0) != (at > 0) {
				t.Errorf("hours of %v: %d is in %d", hour.Length(), at, n)
			}
		}
	}
}

// TestWhalesOfShorterHours: of the same profiles the same whales, since the same time of the other axis.
func TestWhalesOfShorterHours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times, hour := drawStretch(t)
		last := int64(someHour + rapid.IntRange(0, 23).Draw(t, "last"))
		cells := append(pooled(2, compute(20)), placement.Cell{
			ID: "own", Kind: placement.KindDedicated, Phase: placement.PhaseOpen, Capacity: compute(20), Generation: 1,
			Labels: []placement.Label{{Key: placement.LabelTenant, Value: "t0"}},
		})
		var short, long []placement.Tenant
		for i := range 3 {
			one := placement.Tenant{
				ID: cell.TenantID(fmt.Sprint("t", i)), Home: cells[rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "home")].ID,
				Since: cell.Instant((last - rapid.Int64Range(1, 400).Draw(t, "since")) * int64(hour.Length())), Profile: someProfile(t, last),
			}
			if one.Home == "own" {
				one.ID = "t0"
			}
			if slices.ContainsFunc(short, func(o placement.Tenant) bool { return o.ID == one.ID }) {
				continue
			}
			short = append(short, one)
			one.Since *= cell.Instant(times)
			long = append(long, one)
		}
		now := cell.Instant(last * int64(hour.Length())).Add(time.Duration(rapid.Int64Range(0, int64(hour.Length())-1).Draw(t, "into")))
		cfg := placement.DefaultConfig()
		want := placement.NewSnapshot(cfg, now*cell.Instant(times), cells, long, nil).Whales()
		cfg.Hour = hour
		got := placement.NewSnapshot(cfg, now, cells, short, nil).Whales()
		for i := range got {
			if noted := strings.Contains(got[i].Text, fmt.Sprintf("(hours of %v each)", hour.Length())); noted != (times > 1) {
				t.Errorf("hours of %v are said to be so: %v: %s", hour.Length(), noted, got[i].Text)
			}
			got[i].Text = strings.Replace(got[i].Text, fmt.Sprintf(" (hours of %v each)", hour.Length()), "", 1)
			got[i].Since *= cell.Instant(times)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("hours of %v:\n%+v\nstretched to an hour:\n%+v", hour.Length(), got, want)
		}
	})
}

// TestReturnAfterShorterHours: a tenant that is small goes back after so many days of short hours, and no sooner.
func TestReturnAfterShorterHours(t *testing.T) {
	const hour = placement.HourLength(3 * time.Second)
	const last = someHour + 23
	cfg := placement.DefaultConfig()
	cfg.Hour = hour
	cells := append(pooled(2, compute(20)), placement.Cell{
		ID: "own", Kind: placement.KindDedicated, Phase: placement.PhaseOpen, Capacity: compute(20), Generation: 1,
		Labels: []placement.Label{{Key: placement.LabelTenant, Value: "t0"}},
	})
	var p placement.Profile
	for h := int64(last - 10*placement.HoursPerDay); h < last; h++ {
		p = p.Record(h, placement.Sample{Average: compute(0.1), P95: compute(0.1)})
	}
	now := cell.Instant(last * int64(hour.Length()))
	for _, days := range []int{cfg.ReturnDays - 1, cfg.ReturnDays, cfg.ReturnDays + 1} {
		since := now.Add(-time.Duration(days*placement.HoursPerDay) * hour.Length())
		whales := placement.NewSnapshot(cfg, now, cells, []placement.Tenant{{ID: "t0", Home: "own", Since: since, Profile: p}}, nil).Whales()
		returns := len(whales) == 1 && whales[0].Verdict == placement.VerdictReturn
		if returns != (days >= cfg.ReturnDays) {
			t.Errorf("there for %d days: %+v", days, whales)
		}
	}
}

// someProfile is of days and hours of which some are quiet, some are not known and some met limits.
func someProfile(t *rapid.T, last int64) placement.Profile {
	var p placement.Profile
	level := 0.0
	for h := last - rapid.Int64Range(1, 10*placement.HoursPerDay).Draw(t, "known"); h < last; h++ {
		switch rapid.IntRange(0, 9).Draw(t, "change") {
		case 0:
			level = rapid.Float64Range(0, 6).Draw(t, "level")
		case 1:
			continue
		}
		l := compute(level)
		p = p.Record(h, placement.Sample{Average: l.Scale(0.5), P95: l, Limited: rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 1}).Draw(t, "limited")})
	}
	return p
}
