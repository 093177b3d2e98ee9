package cellserver

import (
	"time"

	"github.com/fairlead/fairlead/cell"
)

const (
	// diskFreeBytesMin is what must be free where the log is for new jobs to be taken. Below it submissions and retries are refused, and
	// everything that lets work end goes on: outcomes, leases and cancellations are small, and a snapshot frees more than they take.
	diskFreeBytesMin = 128 << 20
	// diskInterval is how often the free room is looked at: at a hundred megabytes a second, the room above would last longer than that.
	diskInterval = time.Second
)

// watchDisk looks at how much is free. A look that fails changes nothing: the log itself fails loudly when it cannot write.
func (s *Server) watchDisk() {
	if s.cfg.DiskFree == nil {
		return
	}
	free, err := s.cfg.DiskFree()
	if err != nil {
		s.cfg.Logger.Warn("the free room on the log's disk is not known", "error", err)
		return
	}
	full := free < diskFreeBytesMin
	if s.diskFull.Swap(full) != full {
		s.cfg.Logger.Warn("the log's disk", "full", full, "free_bytes", free, "free_bytes_min", int64(diskFreeBytesMin))
	}
	s.diskFree.Store(free)
}

// roomForJobs returns why new jobs are not taken: a *cell.LimitError while they must wait for room on the disk, and errDraining while the cell is to
// empty.
func (s *Server) roomForJobs() error {
	if s.drained.Load() {
		return errDraining
	}
	return s.roomOnDisk()
}

// roomOnDisk is roomForJobs for jobs that come from another cell: whether this one is to empty is decided with where they go.
func (s *Server) roomOnDisk() error {
	if !s.diskFull.Load() {
		return nil
	}
	return &cell.LimitError{
		Limit: "disk_free_bytes_min", Scope: cell.ScopeCell, Value: s.diskFree.Load(), Bound: diskFreeBytesMin, RetryAfter: 10 * time.Second,
		Remedy: "free room on the cell's disk; outcomes are still taken",
	}
}
