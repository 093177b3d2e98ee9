package fairness

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts answer into them")

// variations is how many times a block runs: as it is written, and then with other numbers and names, which must make no difference. With
// more cases (see casesVar) it is tried on more.
const variations, variationsMax = 2, 10

// TestScripts runs the scenarios of testdata. A script is prose, commands, and after ---- what they answer, up to an empty line. Every
// block runs several times: the first time with the least value of each of its variables and the names as written; then with values drawn
// from the variables' ranges, and with tenants, organizations and operations under other names, which sort otherwise. The answers must be
// the same.
//
//	vary N=5..50 r=10ms..2s       variables: $N and $r stand for a value of the range below
//	cell [fifo] [parts=3:2] [lend=100:100] [borrow=100:100] [after=0s:0s] [preempt=0s:0s] [burst=1s:10s] [quantum=N]
//	org NAME [weight=1] [reserve=0:2.5] [limit=3]      rates are in slots; reserve is interactive:batch
//	tenant NAME [org=NAME] [weight=1] [reserve=0:2.5] [limit=3] [credit=max:refill:extra] [running=N] [starts=N/120s] [jobs=N]
//	       [hand=1,2]
//	worker NAME slots=N [prefetch=N] [ops=a,b] [classes=batch] [tenant=NAME] [lease=30s] [stops=1s] [group=N]
//	submit TENANT [N] [class=batch] [op=a] [run=1s] [cost=N|run] [priority=N] [deadline=10s] [delay=1s] [key=k:2,l:5] [preemptible]
//	       [fails=N] [kills] [attempts=N] [idem=K]
//	run 10s [restarts=1s] [order|firstN|times|counts|seconds]
//	                              what started since the last run. restarts is how often a new leader begins from a snapshot meanwhile.
//	                              Times may be sums and products: 60s+3*$r
//	want wait JOB <= 2*$r         nothing when it is true. Of a job its wait; of a TENANT, or TENANT/key, in the last run its share in
//	                              percent, its slot time, the count of its starts, the most that ran at once; now what is running, or
//	                              waits, or succeeded; of a CLASS what it held
//	kill|drain|deaf|hear WORKER
//	lose [applied]                the next entry gets lost, or is in the log unknown to its leader
//	commit 10ms                   how long an entry takes
//	restart                       a new leader from a snapshot
//	cancel|retry|state|why JOB
//	check JOB STATE [attempts=N] [failed=N] [lost=N] [charged=1s]
//	                              nothing when it is so
//	use                           what the classes hold
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		head, want, _ := strings.Cut(block+"\n", "----\n")
		var commands []string
		for line := range strings.SplitSeq(strings.TrimSpace(head), "\n") {
			if !strings.HasPrefix(line, "#") && line != "" {
				commands = append(commands, line)
			}
		}
		if len(commands) == 0 {
			out = append(out, strings.TrimSpace(head))
			continue
		}
		title, _, _ := strings.Cut(block, "\n")
		got := runBlock(t, title, commands)
		if want = strings.TrimSpace(want); got != want && !*rewrite {
			t.Errorf("%s: %s\ngot:\n%s\nwant:\n%s", file, title, got, want)
		}
		out = append(out, strings.TrimSpace(head)+"\n----\n"+got)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// runBlock runs a block in all its variations, and returns what the first one answers.
func runBlock(t *testing.T, title string, commands []string) string {
	t.Helper()
	n := variations
	if os.Getenv(casesVar) != "" {
		n = variationsMax
	}
	var answer string
	for seed := range uint64(n) {
		s := newScript(t, seed)
		got := s.play(commands)
		if seed == 0 {
			answer = got
		} else if got != answer {
			t.Errorf("%s\nanswers otherwise with %v:\n%s\nthan as it is written:\n%s", title, s.values, got, answer)
		}
	}
	return answer
}

// script is one run of a block.
type script struct {
	t      *testing.T
	rng    *rand.Rand
	seed   uint64
	values map[string]string // of variables
	other  map[string]string // names that the cell sees, by the names as written
	named  map[string]int    // jobs so far, by tenant
	jobs   map[string]*plan
	r      *rig
	last   int          // starts until the end of the last run
	shown  int          // starts until the end of the one before
	since  cell.Instant // when the last run began
}

func newScript(t *testing.T, seed uint64) *script {
	return &script{
		t: t, rng: rand.New(rand.NewPCG(seed, 11)), seed: seed, values: map[string]string{}, other: map[string]string{},
		named: map[string]int{}, jobs: map[string]*plan{},
	}
}

func (s *script) play(commands []string) string {
	var out strings.Builder
	for _, line := range commands {
		if rest, ok := strings.CutPrefix(line, "vary "); ok {
			s.vary(strings.Fields(rest))
			continue
		}
		for name, v := range s.values { // order-free: no variable's name begins with another's, see vary
			line = strings.ReplaceAll(line, "$"+name, v)
		}
		if answer := s.do(parse(s.t, line)); answer != "" {
			fmt.Fprintf(&out, "%s\n", strings.TrimSpace(s.asWritten(answer)))
		}
	}
	return strings.TrimSpace(out.String())
}

// vary draws a value for each variable.
func (s *script) vary(ranges []string) {
	s.t.Helper()
	for _, text := range ranges {
		name, values, _ := strings.Cut(text, "=")
		least, most, ok := strings.Cut(values, "..")
		if !ok || len(name) != 1 {
			s.t.Fatalf("%q is no variable of one letter with a range", text)
		}
		if s.seed == 0 {
			s.values[name] = least
			continue
		}
		if a, err := strconv.ParseInt(least, 10, 64); err == nil {
			b, err := strconv.ParseInt(most, 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			s.values[name] = strconv.FormatInt(a+s.rng.Int64N(b-a+1), 10)
			continue
		}
		a, b := duration(s.t, least), duration(s.t, most)
		s.values[name] = (a + time.Duration(s.rng.Int64N(int64((b-a)/time.Millisecond)+1))*time.Millisecond).String()
	}
}

// name returns the name that the cell sees for one in the script.
func (s *script) name(written string) string {
	if written == "" || s.seed == 0 {
		return written
	}
	if s.other[written] == "" {
		s.other[written] = fmt.Sprintf("%c%d-%s", 'a'+s.rng.IntN(26), s.rng.IntN(10), strings.ToLower(written))
	}
	return s.other[written]
}

// asWritten turns the cell's names into those of the script.
func (s *script) asWritten(text string) string {
	for written, other := range s.other { // order-free: no other name is part of another
		text = strings.ReplaceAll(text, other, written)
	}
	return text
}

// args is a command: its words, and the settings among them.
type args struct {
	t     *testing.T
	words []string
	set   map[string]string
}

func parse(t *testing.T, line string) args {
	a := args{t: t, set: map[string]string{}}
	for w := range strings.FieldsSeq(line) {
		name, v, ok := strings.Cut(w, "=")
		if ok && name != "" && name != "<" && name != ">" {
			a.set[name] = v
		} else {
			a.words = append(a.words, w)
		}
	}
	return a
}

func (a args) word(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return ""
}

func (a args) has(word string) bool { return slices.Contains(a.words[1:], word) }

func (a args) text(name, otherwise string) string {
	if v, ok := a.set[name]; ok {
		return v
	}
	return otherwise
}

func (a args) int(name string, otherwise int64) int64 {
	a.t.Helper()
	v, ok := a.set[name]
	if !ok {
		return otherwise
	}
	return integer(a.t, v)
}

func (a args) duration(name, otherwise string) time.Duration {
	a.t.Helper()
	return duration(a.t, a.text(name, otherwise))
}

// pair reads what is said of interactive and of batch.
func (a args) pair(name, otherwise string) [2]string {
	a.t.Helper()
	x, y, ok := strings.Cut(a.text(name, otherwise), ":")
	if !ok {
		a.t.Fatalf("%s=%s is not a pair", name, a.set[name])
	}
	return [2]string{x, y}
}

// integer reads a sum of products.
func integer(t *testing.T, text string) int64 {
	t.Helper()
	sum := int64(0)
	for term := range strings.SplitSeq(text, "+") {
		product := int64(1)
		for factor := range strings.SplitSeq(term, "*") {
			n, err := strconv.ParseInt(factor, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			product *= n
		}
		sum += product
	}
	return sum
}

// float reads a product.
func float(t *testing.T, text string) float64 {
	t.Helper()
	product := 1.0
	for factor := range strings.SplitSeq(text, "*") {
		f, err := strconv.ParseFloat(factor, 64)
		if err != nil {
			t.Fatal(err)
		}
		product *= f
	}
	return product
}

// duration reads a sum of products of numbers and durations: 60s+3*100ms.
func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	var sum time.Duration
	for term := range strings.SplitSeq(text, "+") {
		product, unit := 1.0, time.Duration(0)
		for factor := range strings.SplitSeq(term, "*") {
			if f, err := strconv.ParseFloat(factor, 64); err == nil {
				product *= f
				continue
			}
			d, err := time.ParseDuration(factor)
			if err != nil {
				t.Fatal(err)
			}
			unit = d
		}
		sum += time.Duration(product * float64(unit))
	}
	return sum
}
