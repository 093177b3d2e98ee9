package sched

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

func (s *script) cell(w words) string {
	cfg := DefaultConfig()
	if w.has("fifo") {
		cfg.Policy = PolicyFIFO
	}
	parts, lend, borrow := pairOf(w, "parts", "1:1", number), pairOf(w, "lend", "100:100", number), pairOf(w, "borrow", "100:100", number)
	after, preempt := pairOf(w, "after", "0s:0s", duration), pairOf(w, "preempt", "0s:0s", duration)
	capacity := pairOf(w, "capacity", "0:0", rate)
	for i := range cfg.Bulkheads {
		cfg.Bulkheads[i] = Bulkhead{
			NominalParts: parts[i], LendablePercent: lend[i], BorrowMaxPercent: borrow[i], LendAfter: after[i], PreemptAfter: preempt[i],
			Capacity: capacity[i],
		}
	}
	cfg.Quantum = duration(w.text("quantum", "10ms")).Microseconds()
	cfg.OverrunMin = duration(w.text("overrun", "0s"))
	cfg.CostDefault = cell.Cost(duration(w.text("cost", "10ms")).Microseconds())
	s.now = 1000 * second
	sched, err := New(cfg, s.now)
	if err != nil {
		s.t.Fatal(err)
	}
	*s = script{
		Scheduler: sched, t: s.t, now: s.now, counts: map[string]int{}, ids: map[string]cell.JobID{}, names: map[cell.JobID]string{},
		items: map[string]Item{}, offers: map[string]OfferID{}, started: map[string]cell.Instant{},
	}
	s.worker(words{list: []string{"", "op"}})
	return s.slots(w)
}

func (s *script) slots(w words) string {
	n := number(w.at(0))
	s.Resize(n, number(w.text("room", strconv.FormatInt(n, 10))))
	return ""
}

func (s *script) worker(w words) string {
	var ops []cell.Operation
	for op := range strings.SplitSeq(w.at(1), ",") {
		ops = append(ops, cell.Operation(op))
	}
	offer, err := s.Open(SortOperations(ops), cell.WorkerGroup(number(w.text("group", "0"))))
	if err != nil {
		return err.Error()
	}
	s.offers[w.at(0)] = offer
	return ""
}

func (s *script) gone(w words) string {
	s.Leave(s.offers[w.at(0)])
	return ""
}

// handOf reads groups with commas between them.
func handOf(text string) uint64 {
	hand := uint64(0)
	for group := range strings.SplitSeq(text, ",") {
		hand |= cell.WorkerGroup(number(group)).Bit()
	}
	return hand
}

func (s *script) tenantPolicy(w words) string {
	p := cell.TenantPolicy{
		Tenant: cell.TenantID(w.at(0)), Organization: cell.OrganizationID(w.text("of", "")), Weight: cell.Weight(1000 * number(w.text("weight", "1"))),
		Reservation: pairOf(w, "reserve", "0:0", rate), Limit: rate(w.text("limit", "0")), RunningMax: number(w.text("running", "0")),
		Groups: handOf(w.text("hand", "0")),
	}
	if jobs, per, ok := strings.Cut(w.text("starts", ""), "/"); ok {
		p.Starts = cell.StartRate{Jobs: number(jobs), Per: duration(per)}
	}
	if v := strings.Split(w.text("credit", ""), "/"); len(v) == 3 {
		p.Credit = cell.Credit{Max: cell.Cost(rate(v[0])), Refill: rate(v[1]), Extra: rate(v[2])}
	}
	return problem(s.SetTenant(p))
}

func (s *script) organization(w words) string {
	return problem(s.SetOrganization(cell.OrganizationPolicy{
		Organization: cell.OrganizationID(w.at(0)), Weight: cell.Weight(1000 * number(w.text("weight", "1"))),
		Reservation: pairOf(w, "reserve", "0:0", rate), Limit: rate(w.text("limit", "0")),
	}))
}

func problem(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// laneNamed reads a tenant, or a tenant's interactive lane.
func laneNamed(text string) cell.Lane {
	if tenant, ok := strings.CutSuffix(text, "/i"); ok {
		return cell.Lane{Tenant: cell.TenantID(tenant), Class: cell.ClassInteractive}
	}
	return cell.Lane{Tenant: cell.TenantID(text), Class: cell.ClassBatch}
}

// item makes an item of a new job, whose tenant has the usual policy unless it has another.
func (s *script) item(w words, name string) Item {
	it := Item{
		Lane: laneNamed(w.at(0)), Operation: cell.Operation(w.text("op", "op")), Created: s.now, Priority: int32(number(w.text("priority", "0"))),
		Preemptible: w.has("preemptible"), Cost: cell.Cost(duration(w.text("cost", "0s")).Microseconds()),
	}
	if d, ok := w.named["deadline"]; ok {
		it.Deadline = s.now.Add(duration(d))
	}
	if v, ok := w.named["keys"]; ok {
		for k := range strings.SplitSeq(v, ",") {
			key, most, _ := strings.Cut(k, ":")
			it.Keys = append(it.Keys, cell.ConcurrencyKey{Key: key, Max: number(most)})
		}
	}
	if s.tree.Tenant(it.Lane.Tenant) == nil {
		if err := s.SetTenant(cell.TenantPolicy{Tenant: it.Lane.Tenant, Weight: cell.WeightDefault}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.seq++
	it.ID, it.Seq = id(s.seq), s.seq
	if name == "" {
		s.counts[string(it.Lane.Tenant)]++
		name = fmt.Sprint(it.Lane.Tenant, s.counts[string(it.Lane.Tenant)])
	}
	s.ids[name], s.names[it.ID], s.items[name] = it.ID, name, it
	return it
}

func (s *script) addJobs(w words) string {
	n := int64(1)
	if x, ok := strings.CutPrefix(w.at(1), "x"); ok {
		n = number(x)
	}
	for range n {
		it := s.item(w, "")
		if added, err := s.Add(it); !added || err != nil {
			s.t.Fatal(added, err)
		}
	}
	return ""
}
