package cellserver

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

const (
	// surveySteps bounds the records that are looked at while the cell's lock is held: a fraction of a millisecond when all of them are hashed.
	surveySteps = 64
	// surveyRest is how much longer the lock is left alone after each piece than it was held: what is computed beside the cell's work takes a tenth of
	// the lock and of a processor at most.
	surveyRest = 9
	// needsAge is how old what a tenant's jobs need may be before it is looked up again, needsKept of how many tenants it is kept: those that move.
	needsAge  = 10 * time.Second
	needsKept = 64
)

// survey is what is computed of lanes that move, piece by piece beside everything else: their digests, and which operations their tenants' jobs have. Its
// methods are safe for concurrent use.
type survey struct {
	mu     sync.Mutex
	wanted map[cell.Lane]bool // lanes whose digests are not known to be whole
	asked  map[cell.TenantID]bool
	needs  map[cell.TenantID]need
	wake   chan struct{} // capacity 1
}

// need is the operations of a tenant's jobs, as of a time.
type need struct {
	at         time.Time
	operations []string
}

func newSurvey() *survey {
	return &survey{
		wanted: map[cell.Lane]bool{}, asked: map[cell.TenantID]bool{}, needs: map[cell.TenantID]need{}, wake: make(chan struct{}, 1),
	}
}

// want asks for a lane's digest to be made whole.
func (v *survey) want(lane cell.Lane) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wanted[lane] = true
	v.signal()
}

func (v *survey) signal() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// known returns the operations of a tenant's jobs as they were lately; false when that is not known at all. What is older than needsAge is looked up again
// for the next who asks.
func (v *survey) known(tenant cell.TenantID, now time.Time) ([]string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, ok := v.needs[tenant]
	if ok && now.Sub(n.at) > needsAge && !v.asked[tenant] {
		v.asked[tenant] = true
		v.signal()
	}
	return n.operations, ok
}

// learn keeps a tenant's operations.
func (v *survey) learn(tenant cell.TenantID, n need) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.asked, tenant)
	v.needs[tenant] = n
	if len(v.needs) <= needsKept {
		return
	}
	var oldest cell.TenantID
	for t, n := range v.needs { // order-free: of equal ones any is forgotten
		if oldest == "" || n.at.Before(v.needs[oldest].at) {
			oldest = t
		}
	}
	delete(v.needs, oldest)
}

// next returns what is to be done next: a lane or a tenant; false when nothing is.
func (v *survey) next() (lane cell.Lane, tenant cell.TenantID, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for lane := range v.wanted { // order-free: all of them have their turn
		return lane, "", true
	}
	for tenant := range v.asked { // order-free: all of them have their turn
		return cell.Lane{}, tenant, true
	}
	return cell.Lane{}, "", false
}

// done forgets that a lane's digest was asked for.
func (v *survey) done(lane cell.Lane) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.wanted, lane)
}

// surveyLanes computes what is asked for until ctx ends. At its begin it asks for everything that is likely to be.
func (s *Server) surveyLanes(ctx context.Context) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		lane, tenant, ok := s.survey.next()
		if !ok {
			select {
			case <-s.survey.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		began := time.Now()
		if tenant != "" {
			s.survey.learn(tenant, s.lookUpNeeds(ctx, tenant))
		} else if s.advance(lane) {
			s.survey.done(lane)
		}
		rest.Reset(surveyRest * time.Since(began))
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
	}
}

// advance computes a piece of a lane's digest, and reports whether there is nothing more to compute.
func (s *Server) advance(id cell.Lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.state.Lane(id)
	return l == nil || !digested(l) || s.state.AdvanceDigest(id, surveySteps)
}

// digested reports whether somebody is to compare the lane: it is copied, or a copy.
func digested(l *engine.Lane) bool {
	return l.Tracked || l.Mode == cell.ModeStaged || l.Mode == cell.ModeStandby
}

// wantAll asks for the digests of all lanes that are to have one. The caller holds mu.
func (s *Server) wantAll() {
	for i := range s.state.TenantCount() {
		for _, c := range cell.Classes() {
			if l := s.state.TenantAt(i).Lane(c); digested(l) {
				s.survey.want(l.ID)
			}
		}
	}
}

// needs returns the operations of a tenant's jobs that have not ended, or ended lately, as they were lately.
func (s *Server) needs(ctx context.Context, tenant cell.TenantID) []string {
	now := time.Now()
	operations, ok := s.survey.known(tenant, now)
	if ok {
		return operations
	}
	n := s.lookUpNeeds(ctx, tenant)
	s.survey.learn(tenant, n)
	return n.operations
}

// lately is how long ago a job may have ended whose operation counts as one that the tenant has.
const lately = 7 * 24 * time.Hour

// lookUpNeeds looks at all of a tenant's jobs, a few at a time.
func (s *Server) lookUpNeeds(ctx context.Context, tenant cell.TenantID) need {
	n := need{at: time.Now()}
	seen := map[cell.Operation]bool{}
	since := s.now().Add(-lately)
	for before, more := uint64(0), true; more && ctx.Err() == nil; {
		more = false
		steps := 0
		var last uint64
		s.mu.RLock()
		s.state.List(tenant, before, func(j *engine.Job) bool {
			if steps >= surveySteps && j.Seq != last { // jobs of one number are looked at together
				more = true
				return false
			}
			steps++
			last = j.Seq
			if !j.State.Ended() || j.Finished >= since {
				seen[j.Spec.Operation] = true
			}
			return true
		})
		s.mu.RUnlock()
		before = last
	}
	for op := range seen { // order-free: they are sorted below
		n.operations = append(n.operations, string(op))
	}
	slices.SortFunc(n.operations, cmp.Compare[string])
	return n
}
