package controlserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Measurements of a cell: six in each of an hour's minutes, of which its 95th percentile is made. Where hours are short a cell is not asked more than
// twice a second, since in less time than jobs take those that begin together look like many more; but eight times an hour, so that one may be lost
// (see [placement.MeterGaps]).
const (
	measuresPerHour    = 6 * placement.MeterWindows
	measuresPerHourMin = 2 * placement.MeterGaps
	measureIntervalMin = 500 * time.Millisecond
)

// measureInterval is how long after a measurement of a cell the next is due.
func measureInterval(hour placement.HourLength) time.Duration {
	return max(hour.Length()/measuresPerHour, min(measureIntervalMin, hour.Length()/measuresPerHourMin))
}

// measure reads what the cell's tenants use and records the hours that this completes. Only tenants at home in the cell count: what is left of one that
// moved away says nothing of it.
func (s *Server) measure(ctx context.Context, l *link) {
	if c, ok := s.machine.View().Cell(l.cell); !ok || c.Phase == placement.PhaseForming {
		return
	}
	completed := make(map[int64][]command.TenantSample)
	seen := make(map[cell.TenantID]*placement.Meter, len(l.meters))
	err := l.to.measure(ctx, func(at cell.Instant, use *fairleadv1.TenantUse) {
		id := cell.TenantID(use.GetTenant())
		if !l.hosts(id) {
			return
		}
		m := l.meters[id]
		if m == nil {
			m = &placement.Meter{Hour: s.cfg.Reconcile.Placement.Hour}
		}
		seen[id] = m
		for _, h := range m.Observe(at, placement.Reading{
			Charged: use.GetChargedInteractive() + use.GetChargedBatch(), Jobs: use.GetJobs(), Bytes: use.GetBytes(), Limited: use.GetLimited(),
		}) {
			completed[h.Hour] = append(completed[h.Hour], command.TenantSample{Tenant: id, Sample: h.Sample})
		}
	})
	switch {
	case errors.Is(err, errNoMeasure) || ctx.Err() != nil:
		return
	case err != nil:
		l.log.WarnContext(ctx, "the cell was not measured", "error", err)
	default:
		l.meters = seen // without those that are gone
	}
	for _, hour := range slices.Sorted(maps.Keys(completed)) {
		s.recordHour(ctx, l, hour, completed[hour])
	}
}

// recordHour commits samples, which are in the order of their tenants because the cell measures in that order. An hour that is lost is made up for by the next
// day's.
func (s *Server) recordHour(ctx context.Context, l *link, hour int64, samples []command.TenantSample) {
	for chunk := range slices.Chunk(samples, command.SamplesMax) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := s.proposeQuietly(call, command.RecordDemand{Cell: l.cell, Hour: hour, Samples: chunk, Time: s.instant()})
		cancel()
		if err != nil {
			l.log.WarnContext(ctx, "what the cell's tenants used was not recorded", "hour", hour, "error", err)
			return
		}
	}
	if aheadOf(s.machine.View().Profile(samples[0].Tenant), hour) {
		l.log.ErrorContext(ctx, "demand was recorded in shorter hours before, so that nothing that is measured now counts",
			"hour", hour, "remedy", "give every control agent the agent.demand-hour that the cluster began with")
	}
}

// aheadOf reports whether a profile knows of hours so far after one that this was not recorded in it. No clock is so wrong: hours had another length.
func aheadOf(p placement.Profile, hour int64) bool {
	return slices.ContainsFunc(p.Hours[:], func(h placement.HourSample) bool { return h.Hour-hour > placement.ProfileHoursMax })
}
