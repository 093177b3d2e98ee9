package tree_test

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
	"github.com/fairlead/fairlead/cell/tree"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs testdata/*.txt. A script is blocks, with blank lines between them: lines that start with # are prose, others are commands, and
// what they print follows a line of four dashes. Rates are units per second, and a server serves a thousand.
//
//	organization ID [weight=W] [reservation=R] [limit=R]
//	tenant ID [of=ORGANIZATION] [weight=W] [reservation=R] [limit=R] [credit=MAX,REFILL,EXTRA]
//	activate|deactivate TENANT...
//	next N cost=C [every=D]     the next N turns, at the same time or one after each D: whose and by which tier
//	serve D cost=C              what one server serves in a time, by tenant and tier, per second
//	settle TENANT TIER DELTA    correct what was charged
//	time D                      nothing is polled meanwhile
//	standing TENANT             everything that decides its turn
//	wake                        when something changes by time alone
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
	w := newWorld(t, 1000)
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, want, _ := strings.Cut(block+"\n", "----\n")
		var got []string
		commands := false
		for line := range strings.Lines(head) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			commands = true
			if s := w.command(line); s != "" {
				got = append(got, s)
			}
			if err := w.tree.Check(); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		if !commands {
			out = append(out, strings.TrimSpace(head))
			continue
		}
		printed := strings.Join(got, "\n")
		if want = strings.TrimSpace(want); printed != want && !*rewrite {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", head, printed, want)
		}
		out = append(out, strings.TrimSpace(head+"----\n"+printed))
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// command carries out one line and returns what it prints.
func (w *world) command(line string) string {
	words := strings.Fields(line)
	args, options := []string{}, map[string]string{}
	for _, word := range words[1:] {
		if k, v, ok := strings.Cut(word, "="); ok {
			options[k] = v
		} else {
			args = append(args, word)
		}
	}
	args = append(args, "", "", "")
	switch words[0] {
	case "organization":
		p := organization(args[0], option(options, "weight", 1), option(options, "reservation", 0), option(options, "limit", 0))
		if err := w.tree.SetOrganization(p); err != nil {
			return err.Error()
		}
		return ""
	case "tenant":
		return w.setTenant(args[0], options)
	case "activate", "deactivate":
		for id := range strings.FieldsSeq(strings.Join(args, " ")) {
			if lane := w.tree.Tenant(cell.TenantID(id)).Lane(testClass); words[0] == "activate" {
				w.tree.Activate(lane, 0)
			} else {
				w.tree.Deactivate(lane, 0)
			}
		}
		return ""
	case "next":
		return w.turns(int(number(args[0])), option(options, "cost", 1), span(options["every"]))
	case "serve":
		return w.serve(span(args[0]), option(options, "cost", 1))
	case "settle":
		for tier := tree.TierNone; tier <= tree.TierShared; tier++ {
			if tier.String() == args[1] {
				w.tree.Settle(w.tree.Tenant(cell.TenantID(args[0])).Lane(testClass), 0, tier, cell.Cost(units(number(args[2]))))
				return ""
			}
		}
		return "no such tier"
	case "time":
		w.advance(span(args[0]))
		return ""
	case "standing":
		return w.standing(args[0])
	case "wake":
		if at := w.tree.Wake(); at != 0 {
			return "in " + at.Sub(w.now).String()
		}
		return "never"
	default:
		return "unknown command " + words[0]
	}
}

func (w *world) setTenant(id string, options map[string]string) string {
	p := cell.TenantPolicy{
		Tenant: cell.TenantID(id), Organization: cell.OrganizationID(options["of"]), Weight: cell.Weight(1000 * option(options, "weight", 1)),
		Limit: cell.Rate(units(option(options, "limit", 0))), Epoch: 1,
	}
	p.Reservation[testClass.Index()] = cell.Rate(units(option(options, "reservation", 0)))
	if c := strings.Split(options["credit"], ","); len(c) == 3 {
		credit(number(c[0]), number(c[1]), number(c[2]))(&p)
	}
	if _, err := w.tree.SetTenant(p, func(cell.Class) *line { return &line{claim: claim{id: id}} }); err != nil {
		return err.Error()
	}
	return ""
}

// turns prints whose turns are next, equal ones counted.
func (w *world) turns(n int, cost float64, every time.Duration) string {
	var out []string
	last, count := "", 0
	flush := func() {
		if count > 1 {
			last += " x" + strconv.Itoa(count)
		}
		if count > 0 {
			out = append(out, last)
		}
	}
	for range n {
		id, tier := w.one(cost)
		if turn := id + " " + tier.String(); turn != last {
			flush()
			last, count = turn, 0
		}
		count++
		w.now = w.now.Add(every)
	}
	flush()
	return strings.Join(out, ", ")
}

// serve prints what is served per second by tenant and tier.
func (w *world) serve(d time.Duration, cost float64) string {
	got := map[string]map[tree.Tier]float64{}
	var order []string
	for end := w.now.Add(d); w.now < end; w.now = w.now.Add(time.Duration(cost * 1e6)) {
		id, tier := w.take(cost)
		if got[id] == nil {
			got[id] = map[tree.Tier]float64{}
			order = append(order, id)
		}
		got[id][tier] += cost
	}
	var out []string
	for _, id := range order {
		all, parts := 0.0, []string{}
		for tier := tree.TierNone; tier <= tree.TierShared; tier++ {
			if n := got[id][tier]; n > 0 {
				all += n
				parts = append(parts, fmt.Sprintf("%s %.0f", tier, n/d.Seconds()))
			}
		}
		out = append(out, fmt.Sprintf("%s %.0f: %s", id, all/d.Seconds(), strings.Join(parts, ", ")))
	}
	return strings.Join(out, "\n")
}

func (w *world) standing(id string) string {
	w.tree.Advance(w.now)
	s := w.tree.Standing(w.tree.Tenant(cell.TenantID(id)).Lane(testClass))
	show := func(name string, p tree.Shares) string {
		out := fmt.Sprintf("%s: weight %v", name, p.Weight.Float())
		if p.Reservation > 0 {
			out += fmt.Sprintf(", reserves %v, %v ahead", p.Reservation, p.Ahead)
		}
		if p.Rounds > 0 {
			out += fmt.Sprintf(", %d rounds behind", p.Rounds)
		}
		return out
	}
	out := []string{show("own", s.Own)}
	if s.Organization != (tree.Shares{}) {
		out = append(out, show("organization", s.Organization))
	}
	if s.Held {
		out = append(out, "held")
	}
	if s.LimitedUntil != 0 {
		out = append(out, "limited for "+s.LimitedUntil.Sub(w.now).String())
	}
	if s.OrganizationLimitedUntil != 0 {
		out = append(out, "organization limited for "+s.OrganizationLimitedUntil.Sub(w.now).String())
	}
	if s.Credit != 0 || s.CreditTag != 0 {
		out = append(out, fmt.Sprintf("credit %s, spendable %t", cell.FormatUnits(int64(s.Credit)), s.Spendable))
	}
	return strings.Join(out, "\n")
}

func number(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return f
}

func option(options map[string]string, name string, other float64) float64 {
	if s := options[name]; s != "" {
		return number(s)
	}
	return other
}

func span(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
