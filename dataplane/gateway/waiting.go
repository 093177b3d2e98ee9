package gateway

import (
	"sync"

	"github.com/fairlead/fairlead/cell"
)

// waiting is the room for requests of tenants that move, which wait until a cell takes them. They hold nothing of any cell's room meanwhile.
// A tenant has a bound of its own, a part of the whole, so that none uses up what others need. Its methods may be called concurrently.
type waiting struct {
	cfg *ForwardConfig

	mu      sync.Mutex
	count   int
	bytes   int64
	tenants map[cell.TenantID]share // no entry for none; inFlight counts those that wait
}

// enter counts a request of the tenant with a body of so many bytes, or returns the refusal.
func (w *waiting) enter(tenant cell.TenantID, bytes int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.tenants[tenant]
	switch {
	case s.inFlight >= w.cfg.WaitingPerTenantMax:
		return refuseWaiting(tenant, LimitWaitingPerTenant, int64(s.inFlight)+1, int64(w.cfg.WaitingPerTenantMax))
	case s.bytes+bytes > w.cfg.WaitingBytesPerTenantMax:
		return refuseWaiting(tenant, LimitWaitingBytesPerTenant, s.bytes+bytes, w.cfg.WaitingBytesPerTenantMax)
	case w.count >= w.cfg.WaitingMax:
		return refuseWaiting("", LimitWaiting, int64(w.count)+1, int64(w.cfg.WaitingMax))
	case w.bytes+bytes > w.cfg.WaitingBytesMax:
		return refuseWaiting("", LimitWaitingBytes, w.bytes+bytes, w.cfg.WaitingBytesMax)
	}
	w.count++
	w.bytes += bytes
	s.inFlight++
	s.bytes += bytes
	w.tenants[tenant] = s
	return nil
}

// leave takes back what enter counted.
func (w *waiting) leave(tenant cell.TenantID, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	w.bytes -= bytes
	s := w.tenants[tenant]
	s.inFlight--
	s.bytes -= bytes
	if s == (share{}) {
		delete(w.tenants, tenant)
		return
	}
	w.tenants[tenant] = s
}
