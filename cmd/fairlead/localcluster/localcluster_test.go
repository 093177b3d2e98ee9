package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMember: a child tells its parent's goodbye from its parent's end, and removes what is to go only after the latter.
func TestMember(t *testing.T) {
	for name, tc := range map[string]struct {
		rest   string
		orphan bool
	}{
		"goodbye":    {"stop\n", false},
		"end":        {"", true},
		"other word": {"go\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			scratch := filepath.Join(t.TempDir(), "scratch")
			if err := os.MkdirAll(scratch, 0o700); err != nil {
				t.Fatal(err)
			}
			first, err := json.Marshal(instructions{Args: []string{"agent"}, Scratch: scratch})
			if err != nil {
				t.Fatal(err)
			}
			failure := errors.New("on purpose")
			err = Member(t.Context(), strings.NewReader(string(first)+"\n"+tc.rest), func(ctx context.Context, args []string) error {
				<-ctx.Done()
				if !slices.Equal(args, []string{"agent"}) {
					t.Errorf("it is to run %q", args)
				}
				return failure
			})
			if !errors.Is(err, failure) {
				t.Errorf("it ended with %v", err)
			}
			if _, err := os.Stat(scratch); os.IsNotExist(err) != tc.orphan {
				t.Errorf("the folder: %v", err)
			}
		})
	}
	for _, in := range []string{"", "\n", "stop\n", "{"} {
		err := Member(t.Context(), strings.NewReader(in), func(context.Context, []string) error { panic("it runs") })
		if err == nil || !strings.Contains(err.Error(), "is for fairlead demo") {
			t.Errorf("%q are instructions: %v", in, err)
		}
	}
}

// TestLayout: no two ports are the same, and a folder's second layout is its first.
func TestLayout(t *testing.T) {
	dir := t.TempDir()
	l, err := layoutOf(dir, failovers().agents)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, a := range l.Agents {
		for _, port := range []int{a.API, a.Raft, a.Gossip} {
			if port < portMin || port > portMax || seen[port] {
				t.Errorf("%s has the port %d", a.Name, port)
			}
			seen[port] = true
		}
	}
	again, err := layoutOf(dir, failovers().agents)
	if err != nil || !reflect.DeepEqual(again, l) {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := layoutOf(dir, whaleBlueprint().agents); err == nil || !strings.Contains(err.Error(), "another cluster's") {
		t.Errorf("another cluster's layout: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, layoutFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := layoutOf(dir, failovers().agents); err == nil {
		t.Error("a damaged layout is one")
	}
}

// sample is a loader that has seen a few things, at times after began.
func sample(began time.Time, tenant Tenant) *loader {
	at := func(d time.Duration) time.Time { return began.Add(d) }
	return &loader{
		tenant: tenant,
		submissions: []submission{
			{begun: at(0), ended: at(10 * time.Millisecond), id: "a"},
			{begun: at(time.Second), ended: at(4 * time.Second), id: "b"},
			{begun: at(2 * time.Second), ended: at(4500 * time.Millisecond), id: "c"},
			{begun: at(3 * time.Second), ended: at(3100 * time.Millisecond), err: io.ErrUnexpectedEOF},
		},
		open:      map[int]time.Time{7: at(5 * time.Second)},
		succeeded: map[string]bool{"a": true, "b": true, "unknown": true},
	}
}

func TestTally(t *testing.T) {
	began := time.Unix(1_000, 0)
	l := sample(began, Tenants()[0])
	got := l.tally(began.Add(6 * time.Second))
	want := tally{
		tenant: Tenants()[0], accepted: 3, completed: 2, errors: 1, waiting: time.Second, longest: 3 * time.Second, firstError: io.ErrUnexpectedEOF,
	}
	if got != want || got.missing() != 1 {
		t.Errorf("%+v", got)
	}
	first, longest, ok := l.after(began.Add(1500*time.Millisecond), time.Minute)
	if !ok || first != 3*time.Second || longest != 3*time.Second {
		t.Errorf("after the kill: %v, %v, %v", first, longest, ok)
	}
	if _, _, ok := l.after(began.Add(2500*time.Millisecond), time.Minute); ok {
		t.Error("a submission that failed was accepted")
	}
}

func TestReport(t *testing.T) {
	began := time.Unix(1_000, 0)
	r := &Report{formed: 1500 * time.Millisecond, failovers: []Failover{{
		Log: "control", Killed: "control-2", Leader: "control-3", NewLeader: 1250 * time.Millisecond,
		Tenants: []Felt{{Tenants()[1], 5 * time.Millisecond, 7 * time.Millisecond}},
	}}}
	for _, tenant := range Tenants() {
		r.tenants = append(r.tenants, sample(began, tenant).tally(began))
	}
	if n := r.Jobs(); n != (Jobs{Accepted: 6, Completed: 4, Lost: 2, Errors: 2}) {
		t.Errorf("%+v", n)
	}
	if n, err := r.ElsewhereErrors(); n != 1 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("elsewhere %d: %v", n, err)
	}
	text, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"accepted": 6`, `"lost": 2`, `"formed_ms": 1500`, `"new_leader_ms": 1250`, `"first_accepted_ms": 5`, `"longest_submission_ms": 7`, `"cell": "cell-b"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the object lacks %s:\n%s", want, text)
		}
	}
	for _, width := range []int{0, 20, 100} {
		text := r.Text(width)
		for _, want := range []string{"Lost      2", "control-2,", "acme in cell-a saw 1 errors.", "--keep"} {
			if !strings.Contains(text, want) {
				t.Errorf("the text lacks %q:\n%s", want, text)
			}
		}
	}
}

// TestFrameFits: the view is never larger than the terminal, and as high whatever happened, where there is room.
func TestFrameFits(t *testing.T) {
	s := state{tenants: []tally{{tenant: Tenants()[0], waiting: time.Second}, {tenant: Tenants()[1]}}}
	for _, a := range failovers().agents {
		s.agents = append(s.agents, line{agent: a, leads: a.Name == "cell-a-1", down: a.Name == "control-1"})
	}
	height := 0
	for n := range 20 {
		s.events = append(s.events, event{time.Duration(n) * time.Second, strings.Repeat("something happened ", 10)})
		if got := strings.Count(frame("A cluster.", s, "Ctrl-C stops.", 80, 50), "\n"); height == 0 {
			height = got
		} else if got != height {
			t.Fatalf("the view has %d lines, and had %d", got, height)
		}
	}
	for _, height := range []int{1, 3, 10, 24} {
		if got := strings.Count(frame("A cluster.", s, "Ctrl-C stops.", 80, height), "\n") + 1; got > max(1, height-1) {
			t.Errorf("%d lines on a terminal of %d", got, height)
		}
	}
}

// TestEventsAreWhole: what does not fit into a row goes on in the next, and rows are no wider than the terminal.
func TestEventsAreWhole(t *testing.T) {
	const said = "placement (watch): the tenant whale has 20 % of the load of pool or more, for 3 hours in a row, of 6 that make a whale (hours of 3s each)"
	for _, width := range []int{40, 80, 200} {
		rows := lastRows([]event{{time.Second, "one"}, {20 * time.Second, said}}, width)
		if len(rows) < 2 || rows[0] != "  1.0 s  one" {
			t.Fatalf("%d columns: %q", width, rows)
		}
		for _, row := range rows {
			if len(row) > width {
				t.Errorf("%d columns: %q", width, row)
			}
		}
		if got := strings.Join(strings.Fields(strings.Join(rows[1:], " ")), " "); got != "20.0 s "+said {
			t.Errorf("%d columns: %q", width, got)
		}
	}
}

func TestLines(t *testing.T) {
	var out strings.Builder
	l := lines{out: &out}
	s := state{events: []event{{1200 * time.Millisecond, "one"}}}
	l.say(s)
	l.say(s)
	s.events = append(s.events, event{2 * time.Second, "two"})
	s.elapsed, s.tenants = 4*time.Second, []tally{{tenant: Tenants()[0], accepted: 3, completed: 2, waiting: 2 * time.Second}}
	l.say(s)
	l.say(s)
	want := "  1.2 s  one\n  2.0 s  two\n  4.0 s  acme: 3 accepted, 2 completed, 0 errors, waiting for 2.0s\n"
	if out.String() != want {
		t.Errorf("it said:\n%s\nwant:\n%s", &out, want)
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{"/tmp/a-b_c.1": "/tmp/a-b_c.1", "/a b": "'/a b'", "it's": `'it'\''s'`} {
		if got := quoted(in); got != want {
			t.Errorf("%q is %s", in, got)
		}
	}
}
