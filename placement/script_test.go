package placement_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs testdata/*.txt. A script is blocks, with blank lines between them: lines that start with # are prose, others are
// commands, one on each line, and what they print follows a line of four dashes.
//
//	cell C compute[/jobs[/bytes]] [dedicated] [forming|cordoned|draining] [groups=N hand=N] [key:value ...]      a cell, or another state of one
//	tenant T[*N] [of=O] [use=C[@FROM-TO]] [jobs=N] [bytes=N] [limited=DAYS] [days=N] [require=key:value,...] [apart=G] [min=C] [cell=C]
//	       [reserve=C] [home=C] [age=D]       tenants that used C slots in the hours FROM to TO of the last day and a tenth of it at others
//	moving T TARGET [age=D] [ended]           a move under way, or ended
//	set KEY VALUE                             the configuration
//	place T | placeall | rebalance | evacuate C | check | whales | loads | settle          settle carries the last plan out
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, cfg: placement.DefaultConfig()}
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, want, _ := strings.Cut(block+"\n", "----\n")
		var got strings.Builder
		for line := range strings.Lines(head) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				got.WriteString(s.run(strings.Fields(line)))
			}
		}
		if got.String() != want && !*rewrite {
			t.Errorf("%s: after\n%sgot\n%swant\n%s", file, head, got.String(), want)
		}
		if got.Len() > 0 {
			head += "----\n" + got.String()
		}
		out = append(out, head)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

type script struct {
	t       *testing.T
	cfg     placement.Config
	cells   []placement.Cell
	tenants []placement.Tenant
	moves   []placement.Move
	last    placement.Plan
}

func (s *script) run(f []string) string {
	s.t.Helper()
	switch f[0] {
	case "cell":
		s.cell(f[1:])
	case "tenant":
		s.tenant(f[1:])
	case "moving":
		s.moving(f[1:])
	case "set":
		s.set(f[1], f[2])
	case "place":
		return s.snapshot().Place(*s.find(f[1])).String()
	case "placeall":
		return s.plan(s.snapshot().PlaceAll())
	case "rebalance":
		return s.plan(s.snapshot().Rebalance())
	case "evacuate":
		plan, err := s.snapshot().Evacuate(cell.ID(f[1]))
		if err != nil {
			return err.Error() + "\n"
		}
		return s.plan(plan)
	case "check":
		return findings(s.snapshot().Check())
	case "whales":
		return whales(s.snapshot().Whales())
	case "loads":
		var b strings.Builder
		for _, l := range s.snapshot().Loads() {
			fmt.Fprintf(&b, "%s: %d tenants, %.4f of its capacity, peak %v\n", l.Cell, l.Tenants, l.Share, l.Settled.Peak())
		}
		return b.String()
	case "settle":
		for _, d := range s.last.Decisions {
			if d.Target != "" {
				t := s.find(string(d.Tenant))
				t.Home, t.Since = d.Target, now
			}
		}
	default:
		s.t.Fatalf("unknown command %q", f)
	}
	return ""
}

func (s *script) snapshot() *placement.Snapshot {
	return placement.NewSnapshot(s.cfg, now, s.cells, s.tenants, s.moves)
}

func (s *script) plan(p placement.Plan) string {
	s.last = p
	var b strings.Builder
	for _, d := range p.Decisions {
		b.WriteString(d.String())
	}
	for _, h := range p.Held {
		b.WriteString("held: " + h + "\n")
	}
	b.WriteString(whales(p.Whales))
	fmt.Fprintf(&b, "imbalance %.4f, then %.4f\n", p.ImbalanceBefore, p.ImbalanceAfter)
	return b.String()
}

func findings(found []placement.Finding) string {
	if len(found) == 0 {
		return "nothing found\n"
	}
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s", f.Kind)
		for _, of := range [][2]string{{"lost", string(f.Lost)}, {"cell", string(f.Cell)}, {"tenant", string(f.Tenant)}} {
			if of[1] != "" {
				b.WriteString(" " + of[0] + "=" + of[1])
			}
		}
		b.WriteString(": " + f.Text + "\n")
	}
	return b.String()
}

func whales(found []placement.Whale) string {
	var b strings.Builder
	for _, w := range found {
		since := "-"
		if w.Since != 0 {
			since = w.Since.Time().Format(time.RFC3339)
		}
		fmt.Fprintf(&b, "whale %s in %q: %s by %s since %s, share %.2f: %s\n", w.Tenant, w.Cell, w.Verdict, w.Signal, since, w.Share, w.Text)
	}
	return b.String()
}

func (s *script) find(id string) *placement.Tenant {
	for i := range s.tenants {
		if string(s.tenants[i].ID) == id {
			return &s.tenants[i]
		}
	}
	s.t.Fatalf("no tenant %s", id)
	return nil
}

func (s *script) cell(f []string) {
	c := placement.Cell{ID: cell.ID(f[0]), Kind: placement.KindPooled, Phase: placement.PhaseOpen, Generation: 3, Replicas: 1}
	for i, amount := range strings.Split(f[1], "/") {
		switch n := s.number(amount); i {
		case 0:
			c.Capacity.Compute = cell.Rate(n * cell.Unit)
		case 1:
			c.Capacity.Jobs = int64(n)
		case 2:
			c.Capacity.Bytes = int64(n)
		}
	}
	for _, word := range f[2:] {
		if k, err := placement.ParseKind("kind", word); err == nil {
			c.Kind = k
		} else if p, err := placement.ParsePhase("phase", word); err == nil {
			c.Phase = p
		} else if n, ok := strings.CutPrefix(word, "groups="); ok {
			c.Groups = int(s.number(n))
		} else if n, ok := strings.CutPrefix(word, "hand="); ok {
			c.Hand = int(s.number(n))
		} else {
			c.Labels = append(c.Labels, s.label(word))
		}
	}
	if err := placement.CheckLabels("labels", c.Labels); err != nil {
		s.t.Fatal(err)
	}
	for i := range s.cells {
		if s.cells[i].ID == c.ID {
			s.cells[i] = c
			return
		}
	}
	s.cells = append(s.cells, c)
}

func (s *script) label(word string) placement.Label {
	k, v, ok := strings.Cut(word, ":")
	if !ok {
		s.t.Fatalf("%q is not a label", word)
	}
	return placement.Label{Key: k, Value: v}
}

func (s *script) tenant(f []string) {
	name, times, _ := strings.Cut(f[0], "*")
	t := placement.Tenant{ID: cell.TenantID(name)}
	var use, jobs, bytes float64
	from, to, limited, days := 0, 24, 0, 1
	for _, word := range f[1:] {
		k, v, _ := strings.Cut(word, "=")
		switch k {
		case "of":
			t.Organization = cell.OrganizationID(v)
		case "use":
			amount, when, part := strings.Cut(v, "@")
			use = s.number(amount)
			if part {
				a, b, _ := strings.Cut(when, "-")
				from, to = int(s.number(a)), int(s.number(b))
			}
		case "jobs":
			jobs = s.number(v)
		case "bytes":
			bytes, t.Bytes = s.number(v), int64(s.number(v))
		case "limited":
			limited = int(s.number(v))
		case "days":
			days = int(s.number(v))
		case "require":
			for l := range strings.SplitSeq(v, ",") {
				t.Rules.Require = append(t.Rules.Require, s.label(l))
			}
		case "apart":
			t.Rules.Apart = v
		case "min":
			t.Rules.ComputeMin = cell.Rate(s.number(v) * cell.Unit)
		case "cell":
			t.Rules.Cell = cell.ID(v)
		case "reserve":
			t.Reserved = cell.Rate(s.number(v) * cell.Unit)
		case "home":
			t.Home = cell.ID(v)
		case "age":
			t.Since = now.Add(-s.duration(v))
		default:
			s.t.Fatalf("unknown word %q", word)
		}
	}
	if err := t.Rules.Check("rules"); err != nil {
		s.t.Fatal(err)
	}
	if use > 0 || jobs > 0 || limited > 0 {
		t.Profile = used(use, jobs, bytes, from, to, limited, days)
	}
	n := 1
	if times != "" {
		n = int(s.number(times))
	}
	for i := range n {
		if times != "" {
			t.ID = cell.TenantID(fmt.Sprintf("%s-%d", name, i+1))
		}
		s.tenants = append(s.tenants, t)
	}
}

// used is a profile of some days with an amount from an hour to another, and a tenth of it otherwise.
func used(use, jobs, bytes float64, from, to, limited, days int) placement.Profile {
	var p placement.Profile
	last := placement.HourMax.Of(now)
	for h := last - int64(days)*24; h < last; h++ {
		part := 0.1
		if of := int(h % 24); of >= from && of < to {
			part = 1
		}
		l := placement.Load{Compute: cell.Rate(use * part * cell.Unit), Jobs: int64(jobs * part), Bytes: int64(bytes * part)}
		sample := placement.Sample{Average: l.Scale(0.5), P95: l}
		if h/24 > last/24-1-int64(limited) && h%24 == 12 && h/24 < last/24 {
			sample.Limited = 5
		}
		p = p.Record(h, sample)
	}
	return p
}

func (s *script) moving(f []string) {
	t := s.find(f[0])
	m := placement.Move{Tenant: t.ID, Source: t.Home, Target: cell.ID(f[1]), Bytes: t.Bytes, Since: now}
	for _, word := range f[2:] {
		if d, ok := strings.CutPrefix(word, "age="); ok {
			m.Since = now.Add(-s.duration(d))
		} else {
			m.Ended = now
		}
	}
	s.moves = append(s.moves, m)
}

func (s *script) set(key, value string) {
	switch key {
	case "reserve":
		s.cfg.FailureReserve = value == "on"
	case "tenants":
		s.cfg.TenantsMax = int(s.number(value))
	case "organization":
		s.cfg.OrganizationTenantsMin = int(s.number(value))
	case "moves":
		s.cfg.MovesMax = int(s.number(value))
	case "bytes":
		s.cfg.MoveBytesMax = int64(s.number(value))
	default:
		s.t.Fatalf("unknown setting %s", key)
	}
	if err := s.cfg.Validate(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) number(text string) float64 {
	s.t.Helper()
	unit := 1.0
	for suffix, times := range map[string]float64{"MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = rest, times
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n * unit
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}
