package leader

import (
	"time"

	"github.com/fairlead/fairlead/cell"
)

// drainRate is how fast the cell's jobs end, smoothed over some seconds, to tell those who are refused for a full backlog when to come back.
type drainRate struct {
	at        cell.Instant
	ended     uint64
	perSecond float64
}

// The bounds of what a refused submission is told to wait.
const (
	retryAfterMin = time.Second
	retryAfterMax = time.Minute
)

func (r *drainRate) observe(now cell.Instant, ended uint64) {
	if r.at == 0 {
		r.at, r.ended = now, ended
		return
	}
	elapsed := now.Sub(r.at)
	if elapsed < time.Second {
		return
	}
	rate := float64(ended-r.ended) / elapsed.Seconds()
	r.perSecond += (rate - r.perSecond) / 4
	r.at, r.ended = now, ended
}

// wait returns about how long it takes until a twentieth of bound has ended.
func (r *drainRate) wait(bound int64) time.Duration {
	if r.perSecond <= 0 {
		return retryAfterMin
	}
	seconds := float64(bound) / 20 / r.perSecond
	return max(retryAfterMin, min(retryAfterMax, time.Duration(seconds*float64(time.Second))))
}
