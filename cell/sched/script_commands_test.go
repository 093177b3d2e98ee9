package sched

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

func (s *script) grants(w words) string {
	var got []string
	for range number(w.at(0)) {
		g, ok := s.grant(w.text("by", ""))
		if !ok {
			got = append(got, "-")
			break
		}
		name := s.names[g.Item.ID]
		if g.Tier != tree.TierShared {
			name += "(" + g.Tier.String() + ")"
		}
		got = append(got, name)
	}
	return wrap(strings.Join(got, " "))
}

func (s *script) grant(by string) (Grant, bool) {
	g, ok := s.Next(Ask{Now: s.now, Offer: s.offers[by], Classes: [2]bool{true, true}})
	if ok {
		s.started[s.names[g.Item.ID]] = s.now
	}
	return g, ok
}

func (s *script) private(w words) string {
	var got []string
	for range max(1, number("0"+w.at(1))) {
		g, ok := s.NextPrivate(s.now, cell.TenantID(w.at(0)), []cell.Operation{"op"}, [2]bool{true, true})
		if !ok {
			got = append(got, "-")
			break
		}
		s.started[s.names[g.Item.ID]] = s.now
		got = append(got, s.names[g.Item.ID])
	}
	return strings.Join(got, " ")
}

func (s *script) end(w words) string {
	for _, name := range w.list {
		ran := s.now.Sub(s.started[name])
		if d, ok := w.named["ran"]; ok {
			ran = duration(d)
		}
		s.Settle(s.ids[name], cell.Cost(ran.Microseconds()))
		if ran > 0 {
			s.Observe(s.items[name].Lane.Tenant, s.items[name].Operation, cell.Cost(ran.Microseconds()))
		}
		if !s.Drop(s.ids[name]) {
			return name + " is not held"
		}
	}
	return ""
}

func (s *script) drop(w words) string {
	var out []string
	for _, name := range w.list {
		if !s.Drop(s.ids[name]) {
			out = append(out, name+" is not held")
		}
	}
	return strings.Join(out, "\n")
}

func (s *script) stop(w words) string {
	for _, name := range w.list {
		s.Stop(s.ids[name])
	}
	return ""
}

func (s *script) spare(w words) string {
	for _, name := range w.list {
		s.Spare(s.ids[name])
	}
	return ""
}

func (s *script) remove(w words) string {
	for _, name := range w.list {
		if !s.Remove(s.ids[name]) {
			return name + " does not wait"
		}
	}
	return ""
}

func (s *script) again(w words) string {
	for _, name := range w.list {
		if added, err := s.Add(s.items[name]); !added || err != nil {
			return fmt.Sprint(name, " is not added: ", err)
		}
	}
	return ""
}

func (s *script) hold(w words) string {
	it := s.item(w, w.at(1))
	at := s.now.Add(-duration(w.text("ago", "0s")))
	s.Hold(Held{
		Job: it.ID, Lane: it.Lane, Operation: it.Operation, Keys: it.Keys, Seq: it.Seq, Granted: at, Charged: 10_000, Preemptible: it.Preemptible,
	})
	s.Adopt(it.ID, s.offers[""])
	s.started[w.at(1)] = at
	return ""
}

func (s *script) suspendLane(w words) string {
	if !s.Suspend(laneNamed(w.at(0))) {
		return "its tenant is not known"
	}
	return ""
}

func (s *script) resumeLane(w words) string {
	if !s.Resume(laneNamed(w.at(0))) {
		return "its tenant is not known"
	}
	return ""
}

func (s *script) frontOf(w words) string {
	return s.namesOf(s.Front(laneNamed(w.at(0)), int(number(w.at(1)))))
}

func (s *script) forecast(w words) string {
	wait, known := s.Forecast(laneNamed(w.at(0)))
	if !known {
		return "nobody knows"
	}
	return wait.String()
}

func (s *script) after(w words) string {
	s.now = s.now.Add(duration(w.at(0)))
	s.Advance(s.now)
	return ""
}

func (s *script) wakeAt(words) string {
	at := s.Wake(s.now)
	if at == 0 {
		return "never"
	}
	return "in " + at.Sub(s.now).String()
}

func (s *script) revoke(words) string {
	ids := s.Preempt(s.now, 100)
	if len(ids) == 0 {
		return "none"
	}
	return s.namesOf(ids)
}

func (s *script) namesOf(ids []cell.JobID) string {
	var names []string
	for _, id := range ids {
		names = append(names, s.names[id])
	}
	return strings.Join(names, " ")
}

func (s *script) overrun(words) string {
	var out []string
	for _, o := range s.Overruns(s.now, 100) {
		out = append(out, fmt.Sprintf("%s is charged %v", s.names[o.Job], time.Duration(o.Total)*time.Microsecond))
	}
	return strings.Join(out, "\n")
}

func (s *script) why(w words) string {
	y, ok := s.Explain(s.now, s.ids[w.at(0)])
	if !ok {
		return "it does not wait"
	}
	out := fmt.Sprintf("%v: position %d of its lane, %d tenants", y.Reason, y.Place.Position, y.Place.Tenants)
	if y.Groups != 0 {
		out += ", of groups " + cell.FormatWorkerGroups(y.Groups)
	}
	if y.Elsewhere {
		out += ", others do"
	}
	if y.Key != "" {
		out += ", key " + y.Key
	}
	if y.Bound != 0 {
		out += fmt.Sprintf(", %d of %d", y.Value, y.Bound)
	}
	if y.Rate != 0 {
		out += fmt.Sprintf(", %v/s", y.Rate)
	}
	if y.Next != 0 {
		out += fmt.Sprintf(", ends in %v", y.Next.Sub(s.now))
	}
	if len(y.Holders) > 0 {
		out += ", held by " + s.namesOf(y.Holders)
	}
	return out
}

func (s *script) use(words) string {
	var out []string
	for _, c := range cell.Classes() {
		u := s.Use(c)
		line := fmt.Sprintf("%v: %d of %d nominal, at most %d", c, u.Used, u.Nominal, u.Limit)
		if u.Lent > 0 {
			line += fmt.Sprintf(", %d lent", u.Lent)
		}
		if u.HeldBack > 0 {
			line += fmt.Sprintf(", %d held back", u.HeldBack)
		}
		if u.Until > 0 {
			line += fmt.Sprintf(" for %v", u.Until.Sub(s.now))
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func (s *script) standing(words) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		x, _ := s.ExplainTenant(s.now, cell.TenantID(name))
		line := fmt.Sprintf("%s: %d wait, %d held", name, x.Lanes[0].Ready+x.Lanes[1].Ready, x.Held)
		if x.RunningMax > 0 {
			line += fmt.Sprintf(" of %d", x.RunningMax)
		}
		line += fmt.Sprintf(", charged %v", time.Duration(x.Lanes[0].Charged+x.Lanes[1].Charged)*time.Microsecond)
		if x.Rate.Jobs > 0 {
			line += fmt.Sprintf(", %d of %d started within %v", x.Starts, x.Rate.Jobs, x.Rate.Per)
		}
		for _, k := range x.Keys {
			line += fmt.Sprintf(", key %s %d of %d and %d asleep", k.Key, k.Held, k.Max, k.Waiting)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// work lets the cell run by itself: at every moment what has run for its time ends, and slots are filled again.
func (s *script) work(w words) string {
	end := s.now.Add(duration(w.at(0)))
	times := map[string]time.Duration{}
	for v := range strings.SplitSeq(w.text("for", "1s"), ",") {
		if tenant, d, ok := strings.Cut(v, ":"); ok {
			times[tenant] = duration(d)
		} else {
			times[""] = duration(v)
		}
	}
	lasts := func(name string) time.Duration {
		if d, ok := times[string(s.items[name].Lane.Tenant)]; ok {
			return d
		}
		return times[""]
	}
	starts, had := map[string]int{}, map[string]time.Duration{}
	for {
		for _, name := range slices.Sorted(maps.Keys(s.started)) {
			if _, held := s.Held(s.ids[name]); held && s.now.Sub(s.started[name]) >= lasts(name) {
				s.end(words{list: []string{name}})
			}
		}
		for g, ok := s.grant(""); ok; g, ok = s.grant("") {
			starts[string(g.Item.Lane.Tenant)]++
		}
		next := end
		for name, at := range s.started {
			if _, held := s.Held(s.ids[name]); held {
				next = min(next, at.Add(lasts(name)))
			}
		}
		if at := s.Wake(s.now); at > s.now {
			next = min(next, at)
		}
		for name := range s.started {
			if h, held := s.Held(s.ids[name]); held {
				had[string(h.Lane.Tenant)] += next.Sub(s.now)
			}
		}
		s.now = next
		s.Overruns(s.now, 100)
		if s.now >= end {
			break
		}
	}
	var out []string
	for _, tenant := range slices.Sorted(maps.Keys(had)) {
		out = append(out, fmt.Sprintf("%s: %d started, %v", tenant, starts[tenant], had[tenant]))
	}
	return strings.Join(out, "\n")
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// rate reads a rate in slots.
func rate(text string) cell.Rate {
	r, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return cell.Rate(r * 1e6)
}

// wrap breaks a text at spaces into lines of at most 100 bytes.
func wrap(s string) string {
	var lines []string
	for len(s) > 100 {
		i := strings.LastIndexByte(s[:100], ' ')
		lines = append(lines, s[:i])
		s = s[i+1:]
	}
	return strings.Join(append(lines, s), "\n")
}
