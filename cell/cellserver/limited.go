package cellserver

import (
	"errors"
	"sync"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// limited counts how often each tenant was refused because of a limit of its own, since the process started: a hint of who has outgrown its
// plan. Only tenants that the cell knows are refused so, which bounds it.
type limited struct {
	mu sync.Mutex
	of map[cell.TenantID]int64
}

func (l *limited) count(tenant cell.TenantID, results []engine.Result) {
	var n int64
	for i := range results {
		if limit := (*cell.LimitError)(nil); errors.As(results[i].Err, &limit) && limit.Scope != cell.ScopeCell {
			n++
		}
	}
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[tenant] += n
}

func (l *limited) times(tenant cell.TenantID) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[tenant]
}
