package worker

import (
	"testing"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// When a Lease is opened: for room that no Report will fill, or that the last one could not.
func TestWantsLease(t *testing.T) {
	for name, tt := range map[string]struct {
		held   int
		ended  int
		change func(l *ledger)
		want   bool
	}{
		"nothing held":                          {want: true},
		"some room":                             {held: 2, want: true},
		"no room":                               {held: 3},
		"one is open":                           {change: func(l *ledger) { l.leasing = true }},
		"draining":                              {change: func(l *ledger) { l.draining = true }},
		"a Report will ask":                     {held: 2, ended: 1},
		"a Report asks":                         {held: 2, change: func(l *ledger) { l.reporting, l.fetching = true, true }},
		"a Report does not ask":                 {held: 2, change: func(l *ledger) { l.reporting = true }, want: true},
		"the last Report brought too few":       {held: 2, ended: 1, change: func(l *ledger) { l.starved = true }, want: true},
		"too few, but there is no room by then": {held: 3, ended: 1, change: func(l *ledger) { l.starved = true }},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(3)
			var leases []*fairleadv1.JobLease
			for i := range tt.held {
				leases = append(leases, &fairleadv1.JobLease{JobId: string(rune('a' + i))})
			}
			l.grant(leases, time.Time{}, time.Minute)
			for range tt.ended {
				a := l.next(time.Time{})
				l.end(a, reportOf(a.lease, Outcome{Verdict: VerdictSuccess}))
			}
			if tt.change != nil {
				tt.change(&l)
			}
			if got := l.wantsLease(); got != tt.want {
				t.Errorf("wantsLease = %v", got)
			}
		})
	}
}
