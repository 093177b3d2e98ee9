package migrate

import "time"

// Config says how migrations are driven, all of them alike. A zero field has its default.
type Config struct {
	// What the target may lack of a lane that is about to be fenced.
	LagTimeMax    time.Duration // 500 ms
	LagBytesMax   int64         // 1 MB
	LagRecordsMax int64         // 1,000
	// ReadyTime is for how long that has to be so.
	ReadyTime time.Duration // 1 s
	// CatchUpMax is how long it may catch up before it is held for lag.
	CatchUpMax time.Duration // 10 min
	// ShadowMax is how long digests may be compared without ever being of one change; the fence compares them in any case.
	ShadowMax time.Duration // 10 s
	// UnreachableMax is how long a cell may not answer before the migration is held.
	UnreachableMax time.Duration // 30 s
	// LookEvery is how old an observation may be.
	LookEvery time.Duration // 1 s
	// FencesMax is how often a class may be un-fenced because of its pause before it is held. The n-th time it waits for n-1 doublings of FenceDelay.
	FencesMax  uint32        // 3
	FenceDelay time.Duration // 5 s
	// CommitMax is the commit time (p99) of a cell's log above which nothing is fenced.
	CommitMax time.Duration // 1 s
	// WindowTime is how long a breach has to last while a class is observed, before it is reversed.
	WindowTime time.Duration // 10 s
	// StallTime is how long the target may grant nothing although jobs are ready and slots are free.
	StallTime time.Duration // 30 s
	// BaselineMax is how long a migration that is ready waits until the source knows what it does.
	BaselineMax time.Duration // 15 s
	// ErrorsMax is how many more attempts of a thousand may end badly at the target than at the source before, in each of both windows. It is judged from
	// AttemptsMin attempts in a window on.
	ErrorsMax   int64 // 5
	AttemptsMin int64 // 20
	// StartPercentMax is how long jobs may wait at the target until they start (p99), in hundredths of what it was at the source, and StartSlack how much
	// longer at least it has to be to count. RatePercentMin is how often they have to be granted. Both are judged from StartsMin starts in a window on.
	StartPercentMax int64         // 150
	StartSlack      time.Duration // 250 ms
	RatePercentMin  int64         // 80
	StartsMin       int64         // 100
	// ReadyMin is how many jobs have to be ready all the time for the rate to be the cell's doing: a few may wait for what nobody offers.
	ReadyMin int64 // 10
	// ReverseLagMax is how far the source may be behind while it can still be reversed to.
	ReverseLagMax time.Duration // 30 s
	// WipeDelay is how long the source's data is kept after the migration was completed.
	WipeDelay time.Duration // 10 min
	// ProgressEvery is how often a checkpoint of the progress is proposed, at most.
	ProgressEvery time.Duration // 1 s
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		LagTimeMax: 500 * time.Millisecond, LagBytesMax: 1_000_000, LagRecordsMax: 1000,
		ReadyTime: time.Second, CatchUpMax: 10 * time.Minute, ShadowMax: 10 * time.Second,
		UnreachableMax: 30 * time.Second, LookEvery: time.Second,
		FencesMax: 3, FenceDelay: 5 * time.Second, CommitMax: time.Second,
		WindowTime: 10 * time.Second, StallTime: 30 * time.Second, ReverseLagMax: 30 * time.Second,
		BaselineMax: 15 * time.Second, ErrorsMax: 5, AttemptsMin: 20, StartPercentMax: 150, StartSlack: 250 * time.Millisecond, RatePercentMin: 80, StartsMin: 100, ReadyMin: 10,
		WipeDelay: 10 * time.Minute, ProgressEvery: time.Second,
	}
}

// WithDefaults returns c with the defaults in place of zeroes.
func (c Config) WithDefaults() Config {
	d := DefaultConfig()
	for _, f := range []struct{ have, def *time.Duration }{
		{&c.LagTimeMax, &d.LagTimeMax},
		{&c.ReadyTime, &d.ReadyTime},
		{&c.CatchUpMax, &d.CatchUpMax},
		{&c.ShadowMax, &d.ShadowMax},
		{&c.UnreachableMax, &d.UnreachableMax},
		{&c.LookEvery, &d.LookEvery},
		{&c.FenceDelay, &d.FenceDelay},
		{&c.CommitMax, &d.CommitMax},
		{&c.WindowTime, &d.WindowTime},
		{&c.StallTime, &d.StallTime},
		{&c.BaselineMax, &d.BaselineMax},
		{&c.StartSlack, &d.StartSlack},
		{&c.ReverseLagMax, &d.ReverseLagMax},
		{&c.WipeDelay, &d.WipeDelay},
		{&c.ProgressEvery, &d.ProgressEvery},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
	for _, f := range []struct{ have, def *int64 }{
		{&c.LagBytesMax, &d.LagBytesMax},
		{&c.LagRecordsMax, &d.LagRecordsMax},
		{&c.ErrorsMax, &d.ErrorsMax},
		{&c.AttemptsMin, &d.AttemptsMin},
		{&c.StartPercentMax, &d.StartPercentMax},
		{&c.RatePercentMin, &d.RatePercentMin},
		{&c.StartsMin, &d.StartsMin},
		{&c.ReadyMin, &d.ReadyMin},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
	if c.FencesMax == 0 {
		c.FencesMax = d.FencesMax
	}
	return c
}
