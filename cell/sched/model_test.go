package sched

import (
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// model is a scheduler that looks at everything, always, with linear scans. It does not know whose turn it is among tenants: that is the
// tree's model to know. It knows what may run, which class is served, and which job of a tenant.
type model struct {
	cfg     Config
	now     cell.Instant
	began   cell.Instant
	waiting []Item
	held    []Held
	ending  []cell.JobID // named by Preempt or stopped, and held still
	stopped map[cell.JobID]bool
	slots   int64
	room    int64
	offers  map[OfferID][]cell.Operation
	groups  map[OfferID]cell.WorkerGroup
	workers map[OfferID]int
	starts  map[cell.TenantID][]cell.Instant
	bounds  map[string]bound // of keys, by tenant and name
	tenants map[cell.TenantID]cell.TenantPolicy
	ready   map[readiness]cell.Instant // when a class last had something to run for an offer
	short   [2]cell.Instant
	// Lanes that are suspended.
	suspended map[cell.Lane]bool
}

type bound struct {
	max int64
	seq uint64
}

type readiness struct {
	class int
	offer OfferID
}

func (m *model) policyOf(id cell.TenantID) cell.TenantPolicy { return m.tenants[id] }

func keyName(tenant cell.TenantID, key string) string { return string(tenant) + "/" + key }

// bind makes the bounds of a job's keys those of the job accepted last, while any job carries them.
func (m *model) bind(it Item) {
	for _, k := range it.Keys {
		name := keyName(it.Lane.Tenant, k.Key)
		if b, known := m.bounds[name]; !known || it.Seq >= b.seq {
			m.bounds[name] = bound{k.Max, it.Seq}
		}
	}
}

// unbind forgets the bounds of keys that nobody carries.
func (m *model) unbind() {
	carried := map[string]bool{}
	for _, it := range m.waiting {
		if m.holds(it.ID) {
			continue // it stands in no queue: its lease carries them
		}
		for _, k := range it.Keys {
			carried[keyName(it.Lane.Tenant, k.Key)] = true
		}
	}
	for _, h := range m.held {
		for _, k := range h.Keys {
			carried[keyName(h.Lane.Tenant, k.Key)] = true
		}
	}
	for name := range m.bounds {
		if !carried[name] {
			delete(m.bounds, name)
		}
	}
}

func (m *model) keyHeld(tenant cell.TenantID, key string) int64 {
	n := int64(0)
	for _, h := range m.held {
		if h.Lane.Tenant == tenant && slices.ContainsFunc(h.Keys, func(k cell.ConcurrencyKey) bool { return k.Key == key }) {
			n++
		}
	}
	return n
}

func (m *model) heldBy(tenant cell.TenantID) int64 {
	n := int64(0)
	for _, h := range m.held {
		if h.Lane.Tenant == tenant {
			n++
		}
	}
	return n
}

func (m *model) holds(id cell.JobID) bool {
	return slices.ContainsFunc(m.held, func(h Held) bool { return h.Job == id })
}

// reason returns what keeps a job waiting that is not its class's or others' doing; 0 for nothing.
func (m *model) reason(it Item, at cell.Instant) Reason {
	offered := false
	for offer := range m.offers {
		offered = offered || m.workers[offer] > 0 && m.serves(offer, it)
	}
	if !offered && !m.holds(it.ID) && !m.suspended[it.Lane] {
		return ReasonNoOffer
	}
	return m.blocked(it, at)
}

// elsewhere reports whether any worker offers the operation, whoever's jobs it runs.
func (m *model) elsewhere(op cell.Operation) bool {
	for offer, ops := range m.offers {
		if m.workers[offer] > 0 && slices.Contains(ops, op) {
			return true
		}
	}
	return false
}

// serves reports whether workers of an offer run a job once nothing is in its way: they offer its operation, and its tenant holds their group, or
// has no hand where they have none. FIFO knows no hands.
func (m *model) serves(offer OfferID, it Item) bool {
	if !slices.Contains(m.offers[offer], it.Operation) {
		return false
	}
	hand := m.policyOf(it.Lane.Tenant).Groups
	switch group := m.groups[offer]; {
	case m.cfg.Policy == PolicyFIFO:
		return true
	case group == 0:
		return hand == 0
	default:
		return slices.Contains(cell.WorkerGroups(hand), group)
	}
}

// blocked returns what of its own blocks a job, whoever asks; 0 for nothing.
func (m *model) blocked(it Item, at cell.Instant) Reason {
	p := m.policyOf(it.Lane.Tenant)
	fifo := m.cfg.Policy == PolicyFIFO
	started := int64(0)
	for _, s := range m.starts[it.Lane.Tenant] {
		if s.Add(p.Starts.Per) > at {
			started++
		}
	}
	switch {
	case m.holds(it.ID):
		return ReasonStopping
	case m.suspended[it.Lane]:
		return ReasonSuspended
	case !fifo && slices.ContainsFunc(it.Keys, func(k cell.ConcurrencyKey) bool {
		return m.keyHeld(it.Lane.Tenant, k.Key) >= m.bounds[keyName(it.Lane.Tenant, k.Key)].max
	}):
		return ReasonConcurrencyKey
	case !fifo && p.RunningMax > 0 && m.heldBy(it.Lane.Tenant) >= p.RunningMax:
		return ReasonRunningCap
	case !fifo && p.Starts.Jobs > 0 && started >= p.Starts.Jobs:
		return ReasonStartRate
	}
	return 0
}

// runs reports whether the job may run on the workers of an offer, as far as it is not for the class.
func (m *model) runs(it Item, offer OfferID, at cell.Instant) bool {
	return m.blocked(it, at) == 0 && m.serves(offer, it)
}

func (m *model) late(it Item) bool { return it.Deadline != 0 && it.Deadline <= m.now }

func (m *model) used() [2]int64 {
	var used [2]int64
	for _, h := range m.held {
		if !h.Private {
			used[h.Lane.Class.Index()]++
		}
	}
	return used
}

// nominals gives slot after slot to the class that is furthest from its part.
func (m *model) nominals() [2]int64 {
	parts := float64(m.cfg.Bulkheads[0].NominalParts + m.cfg.Bulkheads[1].NominalParts)
	best, at := 1e18, [2]int64{}
	for first := range m.slots + 1 {
		n := [2]int64{max(1, first), max(1, m.slots-first)}
		if m.slots > 1 && n[0]+n[1] > m.slots {
			continue
		}
		d := float64(first) - float64(m.slots)*float64(m.cfg.Bulkheads[0].NominalParts)/parts
		if d*d < best-1e-9 || d*d < best+1e-9 && n[0] > at[0] {
			best, at = min(best, d*d), n
		}
	}
	if m.slots == 0 {
		return [2]int64{}
	}
	return at
}

// lends is lend_after: quiet for long enough, as far as the offer goes.
func (m *model) lends(class int, offer OfferID, at cell.Instant) bool {
	after := m.cfg.Bulkheads[class].LendAfter
	if after == 0 {
		return true
	}
	if m.anyReady(class, offer, at) {
		return false
	}
	return at.Sub(max(m.began, m.ready[readiness{class, offer}])) >= after
}

func (m *model) mayTake(i int, offer OfferID, at cell.Instant) bool {
	n, used, other := m.nominals(), m.used(), m.cfg.Bulkheads[1-i]
	if used[0]+used[1] >= m.room {
		return false
	}
	kept := n[1-i]
	if m.lends(1-i, offer, at) {
		kept -= n[1-i] * other.LendablePercent / 100
	}
	if p := m.cfg.Bulkheads[i].BorrowMaxPercent; p < 100 && used[i] >= n[i]+m.slots*p/100 {
		return false
	}
	return kept == 0 || used[i] < max(n[i], m.slots-kept)
}

// anyReady reports whether a class has something to run for an offer, late or not: the late are thrown out when their turn comes.
func (m *model) anyReady(class int, offer OfferID, at cell.Instant) bool {
	return slices.ContainsFunc(m.waiting, func(it Item) bool {
		return it.Lane.Class.Index() == class && m.runs(it, offer, at)
	})
}

// look notes what is ready now.
func (m *model) look() {
	n, used := m.nominals(), m.used()
	for class := range 2 {
		any := false
		for offer := range m.offers {
			if m.workers[offer] > 0 && m.anyReady(class, offer, m.now) {
				m.ready[readiness{class, offer}] = m.now
				any = true
			}
		}
		switch short := any && used[class] < n[class]; {
		case !short:
			m.short[class] = 0
		case m.short[class] == 0:
			m.short[class] = m.now
		}
	}
}

// classes returns the classes in the order in which they are asked, interactive first where they are even.
func (m *model) classes() [2]int {
	n, used := m.nominals(), m.used()
	below := [2]bool{used[0] < n[0], used[1] < n[1]}
	share := [2]float64{float64(used[0]) / float64(max(1, n[0])), float64(used[1]) / float64(max(1, n[1]))}
	if below[1] && !below[0] || below[0] == below[1] && share[1] < share[0]-1e-12 {
		return [2]int{1, 0}
	}
	return [2]int{0, 1}
}

// best returns the first of a lane's jobs that may run, and whether there is any. Under FIFO every lane of the class is one.
func (m *model) best(lane cell.Lane, operations []cell.Operation) (Item, bool) {
	var best Item
	found := false
	for _, it := range m.waiting {
		own := it.Lane == lane || m.cfg.Policy == PolicyFIFO && it.Lane.Class == lane.Class
		if own && m.blocked(it, m.now) == 0 && slices.Contains(operations, it.Operation) && (!found || m.before(it, best)) {
			best, found = it, true
		}
	}
	return best, found
}

// front returns what of a lane could run at once, in its order, one after another until its keys are full.
func (m *model) front(lane cell.Lane) []cell.JobID {
	if m.cfg.Policy == PolicyFIFO && !m.suspended[lane] {
		return nil
	}
	waiting := slices.DeleteFunc(slices.Clone(m.waiting), func(it Item) bool { return it.Lane != lane || m.holds(it.ID) || m.late(it) })
	slices.SortFunc(waiting, func(a, b Item) int {
		if m.before(a, b) {
			return -1
		}
		return 1
	})
	taken := map[string]int64{}
	var ids []cell.JobID
	for _, it := range waiting {
		full := m.cfg.Policy != PolicyFIFO && slices.ContainsFunc(it.Keys, func(k cell.ConcurrencyKey) bool {
			name := keyName(lane.Tenant, k.Key)
			return m.keyHeld(lane.Tenant, k.Key)+taken[name] >= m.bounds[name].max
		})
		if full {
			continue
		}
		ids = append(ids, it.ID)
		for _, k := range it.Keys {
			taken[keyName(lane.Tenant, k.Key)]++
		}
	}
	return ids
}

func (m *model) before(a, b Item) bool {
	if m.cfg.Policy == PolicyFIFO {
		return a.Seq < b.Seq
	}
	x, y := a.Created-cell.Instant(a.Priority)*second, b.Created-cell.Instant(b.Priority)*second
	if x != y {
		return x < y
	}
	if a.Deadline != b.Deadline {
		return a.Deadline != 0 && (b.Deadline == 0 || a.Deadline < b.Deadline)
	}
	return a.Seq < b.Seq
}

// grantable reports whether some offer with workers would be given something.
func (m *model) grantable(at cell.Instant) bool {
	for offer := range m.offers {
		for class := range 2 {
			if m.workers[offer] > 0 && m.mayTake(class, offer, at) && m.anyReady(class, offer, at) {
				return true
			}
		}
	}
	return false
}

// claims returns how many leases Preempt may name for a class, 0 when it has no claim, and which those are in the order in which they go.
func (m *model) claims(owner int) (int64, []cell.JobID) {
	n, used := m.nominals(), m.used()
	after := m.cfg.Bulkheads[owner].PreemptAfter
	if after == 0 || m.short[owner] == 0 || m.now.Sub(m.short[owner]) < after {
		return 0, nil
	}
	var may []Held
	outstanding := int64(0)
	for _, h := range m.held {
		if h.Lane.Class.Index() != 1-owner || h.Private {
			continue
		}
		if slices.Contains(m.ending, h.Job) {
			outstanding++
			continue
		}
		if h.Preemptible && h.Offered && !m.suspended[h.Lane] && (h.Tier == tree.TierShared || h.Tier == tree.TierCredit) &&
			m.workers[h.Offer] > 0 && m.anyReady(owner, h.Offer, m.now) {
			may = append(may, h)
		}
	}
	slices.SortFunc(may, func(a, b Held) int {
		if a.Granted != b.Granted {
			return int(b.Granted - a.Granted)
		}
		return int(int64(b.Seq) - int64(a.Seq))
	})
	need := min(n[owner]-used[owner]-outstanding, used[1-owner]-n[1-owner]-outstanding, m.couldRun(owner)-outstanding)
	var ids []cell.JobID
	for _, h := range may {
		ids = append(ids, h.Job)
	}
	return max(0, need), ids
}

// couldRun returns how many jobs of the class could run at once if there were room: it starts one after another until caps and keys are
// full.
func (m *model) couldRun(class int) int64 {
	trial := *m
	trial.held = slices.Clone(m.held)
	trial.starts = map[cell.TenantID][]cell.Instant{}
	for id, at := range m.starts {
		trial.starts[id] = slices.Clone(at)
	}
	n := int64(0)
	for _, it := range m.waiting {
		if it.Lane.Class.Index() == class && trial.reason(it, m.now) == 0 {
			trial.held = append(trial.held, Held{Job: it.ID, Lane: it.Lane, Keys: it.Keys})
			trial.starts[it.Lane.Tenant] = append(trial.starts[it.Lane.Tenant], m.now)
			n++
		}
	}
	return n
}

// nextDue returns when the first lease has run for what it was charged.
func (m *model) nextDue() cell.Instant {
	at := cell.Instant(math.MaxInt64)
	for _, h := range m.held {
		if !h.Private && !m.stopped[h.Job] && h.Charged < cell.CostMax && !m.suspended[h.Lane] {
			at = min(at, h.Granted.Add(max(m.cfg.OverrunMin, time.Duration(h.Charged)*time.Microsecond)))
		}
	}
	return at
}
