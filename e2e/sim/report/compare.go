package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Verdict is what a tenant makes of going from one policy to another.
type Verdict int8

// The verdicts.
const (
	VerdictLoses Verdict = -1
	VerdictSame  Verdict = 0
	VerdictGains Verdict = 1
)

func (v Verdict) String() string {
	switch v {
	case VerdictLoses:
		return "loses"
	case VerdictGains:
		return "gains"
	case VerdictSame:
		return "same"
	default:
		return fmt.Sprintf("verdict(%d)", int8(v))
	}
}

// Change is what going from one policy to another means for one tenant.
type Change struct {
	Before, After Group
	Verdict       Verdict
}

// Comparison is two runs of the same work, tenant by tenant.
type Comparison struct {
	Before, After *Summary
	// Changes has every tenant once: who loses first, those that lose most before; then who gains, those that gain most before; then the others.
	Changes          []Change
	Gain, Lose, Stay int
}

// Compare says what going from one run's policy to another's means for each tenant. A tenant gains when more of its jobs are completed; or else
// when its p95 wait is shorter; or else its p50; or else when it is done sooner. The first of these that differs decides.
func Compare(before, after *Summary) *Comparison {
	c := &Comparison{Before: before, After: after}
	at := map[string]*Group{}
	for i := range after.Tenants {
		at[after.Tenants[i].Name] = &after.Tenants[i]
	}
	for _, b := range before.Tenants {
		a := Group{Name: b.Name}
		if g := at[b.Name]; g != nil {
			a = *g
		}
		v := judge(&b, &a)
		c.Changes = append(c.Changes, Change{Before: b, After: a, Verdict: v})
		switch v {
		case VerdictGains:
			c.Gain++
		case VerdictLoses:
			c.Lose++
		case VerdictSame:
			c.Stay++
		}
	}
	slices.SortStableFunc(c.Changes, func(x, y Change) int {
		if r := cmp.Compare(x.order(), y.order()); r != 0 {
			return r
		}
		return cmp.Or(cmp.Compare(y.size(), x.size()), cmp.Compare(x.Before.Name, y.Before.Name))
	})
	return c
}

func judge(before, after *Group) Verdict {
	return Verdict(cmp.Or(
		cmp.Compare(after.Completed, before.Completed),
		cmp.Compare(before.Wait.P95, after.Wait.P95),
		cmp.Compare(before.Wait.P50, after.Wait.P50),
		cmp.Compare(before.Finished, after.Finished),
	))
}

func (c *Change) order() int {
	switch c.Verdict {
	case VerdictLoses:
		return 0
	case VerdictGains:
		return 1
	case VerdictSame:
		return 2
	default:
		return 3
	}
}

// size is how much it matters, among changes of one verdict.
func (c *Change) size() time.Duration {
	return max(c.Before.Wait.P95-c.After.Wait.P95, c.After.Wait.P95-c.Before.Wait.P95)
}

// sideMax is how many of those that lose, and of those that gain, a table lists unless it is wide.
const sideMax = 10

// policyRunesMax is how much of a policy's name, which may be a path, the head of a column shows.
const policyRunesMax = 20

// Table returns the comparison for people: wide shows every tenant.
func (c *Comparison) Table(o Options) string {
	before, after := cut(plain(c.Before.Policy), policyRunesMax), cut(plain(c.After.Policy), policyRunesMax)
	g := &grid{columns: []column{{head: "TENANT", left: true}, {head: "JOBS"}}}
	for _, over := range []string{"wait p50", "wait p95", "done after"} {
		g.columns = append(g.columns, column{head: before, over: over}, column{head: after, over: over}, column{head: "CHANGE", over: over})
	}
	g.columns = append(g.columns, column{left: true})
	shown := map[Verdict]int{}
	for i := range c.Changes {
		ch := &c.Changes[i]
		if !o.Wide && (shown[ch.Verdict] == sideMax || ch.Verdict == VerdictSame) {
			continue
		}
		shown[ch.Verdict]++
		g.add(append(changeCells(&ch.Before, &ch.After), ch.Verdict.String())...)
	}
	all := changeCells(&c.Before.All, &c.After.All)
	all[0] = "all together"
	g.add(append(all, "")...)
	s := ""
	if o.About != "" {
		s = wrap(plain(o.About), width(o)) + "\n\n"
	}
	s += g.String()
	if hidden := len(c.Changes) - shown[VerdictLoses] - shown[VerdictGains] - shown[VerdictSame]; hidden > 0 {
		s += fmt.Sprintf("(%s not listed: -o wide shows all)\n", count(hidden, "tenant"))
	}
	return s + "\n" + wrap(c.reading(), width(o)) + "\n"
}

func changeCells(b, a *Group) []string {
	return []string{
		cut(plain(b.Name), nameRunesMax), number(b.Jobs),
		span(b.Wait.P50), span(a.Wait.P50), change(b.Wait.P50, a.Wait.P50),
		span(b.Wait.P95), span(a.Wait.P95), change(b.Wait.P95, a.Wait.P95),
		span(b.Finished), span(a.Finished), change(b.Finished, a.Finished),
	}
}

// reading says in words what the table says.
func (c *Comparison) reading() string {
	b, a := c.Before, c.After
	s := fmt.Sprintf("From %s to %s, %s, %s", plain(b.Policy), plain(a.Policy), verb(c.Gain, "tenant", "gains", "gain"), verb(c.Lose, "", "loses", "lose"))
	if c.Stay > 0 {
		s += ", " + verb(c.Stay, "", "is as before", "are as before")
	}
	s += fmt.Sprintf(". The slots are busy %s of the time instead of %s.", percent(a.Utilisation), percent(b.Utilisation))
	if c.Lose > 0 {
		w := &c.Changes[0]
		s += fmt.Sprintf(" %s loses most: %s.", plain(w.Before.Name), loss(&w.Before, &w.After))
	}
	if bc, ac := b.All.Completed, a.All.Completed; bc != ac {
		s += fmt.Sprintf(" %s are completed instead of %s.", count(ac, "job"), number(bc))
	}
	return s
}

// verb puts a number before what it does, in the singular or the plural.
func verb(n int, thing, one, many string) string {
	subject := number(n)
	if thing != "" {
		subject = count(n, thing)
	}
	if n == 1 {
		return subject + " " + one
	}
	return subject + " " + many
}

// loss says what a tenant loses, by the first of [Compare]'s measures that differs.
func loss(b, a *Group) string {
	switch {
	case a.Completed != b.Completed:
		return fmt.Sprintf("%s completed instead of %s", count(a.Completed, "job"), number(b.Completed))
	case a.Wait.P95 != b.Wait.P95:
		return fmt.Sprintf("its p95 wait goes from %s to %s", span(b.Wait.P95), span(a.Wait.P95))
	case a.Wait.P50 != b.Wait.P50:
		return fmt.Sprintf("its p50 wait goes from %s to %s", span(b.Wait.P50), span(a.Wait.P50))
	default:
		return fmt.Sprintf("it is done after %s instead of %s", span(a.Finished), span(b.Finished))
	}
}

// The JSON form.
type (
	jsonComparison struct {
		Scenario string       `json:"scenario"`
		Seed     uint64       `json:"seed"`
		Before   jsonSide     `json:"before"`
		After    jsonSide     `json:"after"`
		Gain     int          `json:"gain"`
		Lose     int          `json:"lose"`
		Same     int          `json:"same"`
		Tenants  []jsonChange `json:"tenants"`
	}
	jsonSide struct {
		Policy      string        `json:"policy"`
		Jobs        int           `json:"jobs"`
		Completed   int           `json:"completed"`
		Wait        jsonQuantiles `json:"wait_ms"`
		Finished    millis        `json:"finished_ms"`
		Utilisation hundredths    `json:"utilisation_percent"`
	}
	jsonChange struct {
		Name      string    `json:"name"`
		Verdict   string    `json:"verdict"`
		Jobs      int       `json:"jobs"`
		Completed jsonPair  `json:"completed"`
		P50       jsonDelta `json:"wait_p50_ms"`
		P95       jsonDelta `json:"wait_p95_ms"`
		Finished  jsonDelta `json:"finished_ms"`
	}
	jsonPair struct {
		Before int `json:"before"`
		After  int `json:"after"`
	}
	jsonDelta struct {
		Before millis `json:"before"`
		After  millis `json:"after"`
		Change millis `json:"change"`
	}
)

// JSON returns the comparison as one JSON object, with every tenant.
func (c *Comparison) JSON() ([]byte, error) {
	side := func(s *Summary) jsonSide {
		return jsonSide{
			Policy: s.Policy, Jobs: s.All.Jobs, Completed: s.All.Completed, Wait: jsonOf(s.All.Wait), Finished: millis(s.All.Finished),
			Utilisation: hundredths(s.Utilisation),
		}
	}
	delta := func(b, a time.Duration) jsonDelta {
		return jsonDelta{Before: millis(b), After: millis(a), Change: millis(a - b)}
	}
	out := jsonComparison{
		Scenario: c.Before.Scenario, Seed: c.Before.Seed, Before: side(c.Before), After: side(c.After), Gain: c.Gain, Lose: c.Lose, Same: c.Stay,
		Tenants: []jsonChange{},
	}
	for i := range c.Changes {
		b, a := &c.Changes[i].Before, &c.Changes[i].After
		out.Tenants = append(out.Tenants, jsonChange{
			Name: b.Name, Verdict: c.Changes[i].Verdict.String(), Jobs: b.Jobs, Completed: jsonPair{b.Completed, a.Completed},
			P50: delta(b.Wait.P50, a.Wait.P50), P95: delta(b.Wait.P95, a.Wait.P95), Finished: delta(b.Finished, a.Finished),
		})
	}
	return encode(out)
}

// CSV returns a line for each tenant. Times are in milliseconds.
func (c *Comparison) CSV() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	write := func(cells ...string) { _ = w.Write(cells) } // a buffer takes all
	write("scenario", "seed", "policy_before", "policy_after", "tenant", "verdict", "jobs", "completed_before", "completed_after",
		"wait_p50_before_ms", "wait_p50_after_ms", "wait_p95_before_ms", "wait_p95_after_ms", "finished_before_ms", "finished_after_ms")
	for i := range c.Changes {
		x, y := &c.Changes[i].Before, &c.Changes[i].After
		write(c.Before.Scenario, strconv.FormatUint(c.Before.Seed, 10), c.Before.Policy, c.After.Policy, x.Name, c.Changes[i].Verdict.String(),
			decimal(x.Jobs), decimal(x.Completed), decimal(y.Completed), ms(x.Wait.P50), ms(y.Wait.P50), ms(x.Wait.P95), ms(y.Wait.P95),
			ms(x.Finished), ms(y.Finished))
	}
	w.Flush()
	return b.Bytes(), w.Error()
}
