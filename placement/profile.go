package placement

// Sample is what a tenant used in one hour.
type Sample struct {
	Average Load  // over the hour
	P95     Load  // of the hour's minutes
	Limited int64 // how often it was refused because of a limit of its own
}

// HourSample is the sample of an hour.
type HourSample struct {
	Hour int64 // hours since the Unix epoch, above 0
	Sample
}

// DaySample is what is remembered of a day, in UTC.
type DaySample struct {
	Day     int64 // days since the Unix epoch, above 0
	Peak    Load  // the largest p95 of any of its hours
	Limited int64 // how often the tenant was refused because of a limit of its own
}

// DaysKept is for how many days a profile remembers the peak.
const DaysKept = 14

// ProfileHoursMax is how much older than the newest hour a profile's hours may be: what a tenant did at this time of day half a week ago says
// little about what it does today.
const ProfileHoursMax = 3 * HoursPerDay

// Profile is what a tenant was measured to use: by hour of the day, and day by day. It is a value: two are the same when they are equal. The zero
// value knows nothing.
//
// An hour of the day holds the average as it was lately, each day counting as much as all before it together, and the p95, of which a quarter is
// forgotten with each day: a quiet day does not make a tenant small at once, and an unusual one is not remembered for ever.
type Profile struct {
	Hours [HoursPerDay]HourSample // by hour of the day; the Hour of those of which nothing is known is 0
	Days  [DaysKept]DaySample     // by day modulo their number; the Day of those of which nothing is known is 0
}

// Record returns the profile with one more hour, given as hours since the Unix epoch. Of an hour that it has already it takes what is larger, so
// that recording twice does not count twice. Hours before the one that is known of the same time of day change nothing.
func (p Profile) Record(hour int64, s Sample) Profile {
	s.Average, s.P95, s.Limited = s.Average.bounded(), s.P95.bounded(), max(0, s.Limited)
	slot := &p.Hours[max(hour, 0)%HoursPerDay]
	if hour <= 0 || hour < slot.Hour || hour < p.newest()-ProfileHoursMax {
		return p
	}
	fresh := s.Limited
	switch days := (hour - slot.Hour) / HoursPerDay; {
	case hour == slot.Hour:
		fresh = max(0, s.Limited-slot.Limited)
		slot.P95, slot.Limited = slot.P95.Max(s.P95), max(slot.Limited, s.Limited)
	case slot.Hour == 0 || days > ProfileHoursMax/HoursPerDay:
		*slot = HourSample{Hour: hour, Sample: s}
	default:
		faded := slot.P95
		for range days {
			faded = faded.Sub(Load{Compute: faded.Compute / 4, Jobs: faded.Jobs / 4, Bytes: faded.Bytes / 4})
		}
		sum := slot.Average.Add(s.Average)
		average := Load{Compute: sum.Compute / 2, Jobs: sum.Jobs / 2, Bytes: sum.Bytes / 2}
		*slot = HourSample{Hour: hour, Sample: Sample{Average: average, P95: faded.Max(s.P95), Limited: s.Limited}}
	}
	p.recordDay(hour/HoursPerDay, s.P95, fresh)
	for i := range p.Hours {
		if p.Hours[i].Hour < p.newest()-ProfileHoursMax {
			p.Hours[i] = HourSample{}
		}
	}
	return p
}

func (p *Profile) recordDay(day int64, peak Load, limited int64) {
	d := &p.Days[day%DaysKept]
	if day < d.Day {
		return
	}
	if day > d.Day {
		*d = DaySample{Day: day}
	}
	d.Peak = d.Peak.Max(peak)
	d.Limited = sum(d.Limited, limited)
}

// newest returns the newest hour that is known; 0 for none.
func (p *Profile) newest() int64 {
	newest := int64(0)
	for i := range p.Hours {
		newest = max(newest, p.Hours[i].Hour)
	}
	return newest
}

// Demand returns what the tenant is counted with in an hour of the day, 0 to 23 in UTC: the largest of the recent average, the p95 and the
// declared floor, resource by resource. Hours of which nothing is known count as the largest that is known: a day's shape is not taken for quiet
// before it was seen.
func (p Profile) Demand(floor Load, hourOfDay int) Load {
	if s := &p.Hours[hourOfDay]; s.Hour > 0 {
		return floor.Max(s.Average).Max(s.P95)
	}
	return floor.Max(p.peak())
}

// Day is Demand for each hour of the day.
func (p Profile) Day(floor Load) Day {
	var d Day
	unknown := floor.Max(p.peak())
	for h := range d {
		if s := &p.Hours[h]; s.Hour > 0 {
			d[h] = floor.Max(s.Average).Max(s.P95)
		} else {
			d[h] = unknown
		}
	}
	return d
}

// peak returns the largest that is known of any hour.
func (p *Profile) peak() Load {
	var top Load
	for h := range p.Hours {
		top = top.Max(p.Hours[h].Average).Max(p.Hours[h].P95)
	}
	return top
}
