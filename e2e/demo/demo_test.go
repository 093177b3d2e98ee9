// Package demorun runs the real fairlead demo, as a newcomer does, and looks at what it prints and at what it leaves behind.
//
// Its workloads are small, so that they say little about how much better Fairlead is: that is the demo's own to show. What is asserted is the
// form of the answer, that nothing is lost, and that the quiet tenants wait less.
package demorun_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, nil)) }

// demoTimeout bounds one demo of these on a busy machine.
const demoTimeout = 2 * time.Minute

// demo is a running demo whose temporary directory is its own.
type demo struct {
	*harness.Process
	out bytes.Buffer // its standard output; read once it has ended
	tmp string
}

func start(t *testing.T, args ...string) *demo {
	t.Helper()
	d := &demo{tmp: t.TempDir()}
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), append([]string{"demo"}, args...)...)
	cmd.Dir, cmd.Stdout = t.TempDir(), &d.out
	cmd.Env = []string{"TMPDIR=" + d.tmp}
	d.Process = harness.Start(t, "fairlead demo", cmd)
	return d
}

// end waits until the demo has ended, with a code, and left nothing behind.
func (d *demo) end(t *testing.T, code int) {
	t.Helper()
	got, err := d.Wait(demoTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if got != code {
		t.Errorf("the exit code is %d, want %d", got, code)
	}
	if left := d.left(t); len(left) > 0 {
		t.Errorf("it left %q behind", left)
	}
}

func (d *demo) left(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(d.tmp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// The object of -o json, field by field: pointers tell what is missing from what is 0.
type (
	waits struct {
		P50, P95, Max *float64
	}
	policy struct {
		QuietWaitMS    *waits   `json:"quiet_wait_ms"`
		BulkFinishedMS *float64 `json:"bulk_finished_ms"`
		JobsPerSecond  *float64 `json:"jobs_per_second"`
	}
	report struct {
		Jobs *struct {
			Accepted, Completed, Lost *int
		} `json:"jobs"`
		Policies *struct {
			FIFO, Fairlead *policy
		} `json:"policies"`
	}
)

// decode reads exactly one object into v, and nothing that v does not know.
func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if d.More() {
		t.Fatalf("more than one object:\n%s", text)
	}
}

func TestDemo(t *testing.T) {
	d := start(t, "-o", "json", "--bulk-jobs", "120", "--service", "50ms", "--slots", "4", "--quiet-tenants", "6")
	d.end(t, 0)
	var r report
	decode(t, d.out.Bytes(), &r)
	if r.Jobs == nil || r.Jobs.Accepted == nil || r.Jobs.Completed == nil || r.Jobs.Lost == nil || r.Policies == nil {
		t.Fatalf("fields are missing:\n%s", &d.out)
	}
	if want := 2 * (120 + 6*4); *r.Jobs.Accepted != want || *r.Jobs.Completed != want || *r.Jobs.Lost != 0 {
		t.Errorf("%d accepted, %d completed and %d lost, of %d", *r.Jobs.Accepted, *r.Jobs.Completed, *r.Jobs.Lost, want)
	}
	for name, p := range map[string]*policy{"fifo": r.Policies.FIFO, "fairlead": r.Policies.Fairlead} {
		if p == nil || p.QuietWaitMS == nil || p.BulkFinishedMS == nil || p.JobsPerSecond == nil {
			t.Fatalf("%s lacks fields:\n%s", name, &d.out)
		}
		q := p.QuietWaitMS
		if q.P50 == nil || q.P95 == nil || q.Max == nil {
			t.Fatalf("%s lacks quantiles:\n%s", name, &d.out)
		}
		if *q.P50 <= 0 || *q.P50 > *q.P95 || *q.P95 > *q.Max {
			t.Errorf("%s: the quantiles are not in order:\n%s", name, &d.out)
		}
		// 120 jobs of at least 37.5 ms in 4 slots take more than a second, and no slot runs two jobs at once.
		if *p.BulkFinishedMS < 1125 || *p.JobsPerSecond <= 0 || *p.JobsPerSecond > 4/0.0375 {
			t.Errorf("%s: the bulk cannot have finished so soon:\n%s", name, &d.out)
		}
	}
	if fifo, fair := *r.Policies.FIFO.QuietWaitMS.P95, *r.Policies.Fairlead.QuietWaitMS.P95; fair >= fifo {
		t.Errorf("quiet tenants' p95 wait is %.0f ms through Fairlead, %.0f ms without", fair, fifo)
	}
}

func TestDemoForPeople(t *testing.T) {
	d := start(t, "--bulk-jobs", "20", "--service", "10", "--slots", "2", "--quiet-tenants", "2")
	d.end(t, 0)
	for _, want := range []string{"FIFO  Fairlead\n", "Quiet jobs' wait p50", "Lost jobs", "All 56 accepted jobs were completed", "fairlead dev"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("the answer lacks %q:\n%s", want, &d.out)
		}
	}
	if strings.ContainsRune(d.out.String(), '\x1b') {
		t.Errorf("a pipe gets control sequences:\n%q", &d.out)
	}
	if !strings.Contains(d.Output(), "fairlead: done in") {
		t.Errorf("there is no progress:\n%s", d.Output())
	}
}

// folder makes two tenants' files: nested ones, and what is to be left out.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"acme/1": "one\ntwo\n", "acme/deep/er/2": "three\n", "acme/3": "", "two words/1": "four\n", "acme/.hidden": "x", "loose": "x",
	} {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDemoOfAFolder(t *testing.T) {
	d := start(t, "--dir", folder(t))
	d.end(t, 0)
	for _, want := range []string{"acme  ", "two words  ", "For example, acme/1 gave: 2 lines, 8 bytes", "1 hidden", "1 in no tenant's folder"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("the answer lacks %q:\n%s", want, &d.out)
		}
	}
}

// TestDemoWithAProgram runs one that fails on one of the files, and writes down what it was given.
func TestDemoWithAProgram(t *testing.T) {
	harness.NeedSignals(t) // a POSIX system
	log := filepath.Join(t.TempDir(), "log")
	program := `x=$(wc -l) && echo "$FAIRLEAD_FILE" $x >> '` + log + `'; case $FAIRLEAD_FILE in */3) echo "cannot do this one" >&2; exit 7;; esac`
	dir := folder(t)
	d := start(t, "--dir", dir, "-o", "json", "--exec", program)
	d.end(t, 1)
	type perTenant struct {
		Tenant     string
		Files      int
		Bytes      int64
		Failed     int
		WaitMS     waits   `json:"wait_ms"`
		FinishedMS float64 `json:"finished_ms"`
	}
	type folderPolicy struct {
		Tenants       []perTenant
		FinishedMS    float64 `json:"finished_ms"`
		JobsPerSecond float64 `json:"jobs_per_second"`
		Failures      []struct {
			Error, File string
			Count       int
		}
	}
	var r struct {
		Jobs     struct{ Accepted, Completed, Failed, Lost int }
		Skipped  struct{ Hidden, Special, Loose int }
		Policies struct{ FIFO, Fairlead folderPolicy }
	}
	decode(t, d.out.Bytes(), &r)
	if r.Jobs.Accepted != 8 || r.Jobs.Completed != 6 || r.Jobs.Failed != 2 || r.Jobs.Lost != 0 {
		t.Errorf("the jobs are %+v", r.Jobs)
	}
	for name, p := range map[string]folderPolicy{"fifo": r.Policies.FIFO, "fairlead": r.Policies.Fairlead} {
		if len(p.Tenants) != 2 || p.Tenants[0].Tenant != "acme" || p.Tenants[0].Files != 3 || p.Tenants[0].Bytes != 14 || p.Tenants[0].Failed != 1 || p.Tenants[1].Failed != 0 {
			t.Errorf("%s: the tenants are %+v", name, p.Tenants)
		}
		if len(p.Failures) != 1 || p.Failures[0].File != "acme/3" || !strings.Contains(p.Failures[0].Error, "exit status 7: cannot do this one") {
			t.Errorf("%s: the failures are %+v", name, p.Failures)
		}
	}
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"acme/1 2\n", "acme/deep/er/2 1\n", "acme/3 0\n", "two words/1 1\n"} {
		if got := strings.Count(string(said), filepath.Join(dir, want)); got != 2 {
			t.Errorf("the program was run %d times for %q:\n%s", got, want, said)
		}
	}
}

// under starts a demo that runs for long, and waits until its jobs do.
func under(t *testing.T) *demo {
	t.Helper()
	harness.NeedSignals(t)
	d := start(t, "--bulk-jobs", "400", "--service", "1s")
	harness.Eventually(t, demoTimeout, "the demo runs jobs", func() bool { return strings.Contains(d.Output(), "fifo: 0 ms") })
	return d
}

// TestInterruptedDemo: it ends in order, says so, and leaves nothing behind.
func TestInterruptedDemo(t *testing.T) {
	d := under(t)
	if code := d.Terminate(demoTimeout); code != 130 {
		t.Errorf("the exit code is %d", code)
	}
	d.end(t, 130)
	gone(t, d)
}

// TestKilledDemo: its processes end by themselves, and take the state directory with them.
func TestKilledDemo(t *testing.T) {
	d := under(t)
	d.Kill()
	harness.Eventually(t, demoTimeout, "the state directory is removed", func() bool { return len(d.left(t)) == 0 })
	gone(t, d)
}

// gone waits until no process has the demo's temporary directory in its environment, on systems that show it.
func gone(t *testing.T, d *demo) {
	t.Helper()
	harness.Eventually(t, demoTimeout, "the demo's processes are gone", func() bool {
		environments, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range environments {
			if text, err := os.ReadFile(at); err == nil && bytes.Contains(text, []byte("TMPDIR="+d.tmp)) {
				return false
			}
		}
		return true
	})
}

// clusterReport is the object of demo --cluster -o json.
type clusterReport struct {
	Jobs      *struct{ Accepted, Completed, Lost, Errors *int } `json:"jobs"`
	Formed    *float64                                          `json:"formed_ms"`
	Failovers []struct {
		Log, Killed, Leader string
		NewLeader           *float64 `json:"new_leader_ms"`
		Tenants             []struct {
			Tenant        string
			FirstAccepted *float64 `json:"first_accepted_ms"`
			Longest       *float64 `json:"longest_submission_ms"`
		}
	}
	Tenants []struct {
		Tenant, Cell                string
		Accepted, Completed, Errors *int
		Longest                     *float64 `json:"longest_submission_ms"`
	}
}

// clusterTimeout bounds a demo of a cluster, whose own bounds on each of its steps end it before.
const clusterTimeout = 8 * time.Minute

// TestDemoOfACluster: leaders are killed, and nothing that was accepted is lost.
func TestDemoOfACluster(t *testing.T) {
	harness.NeedCluster(t)
	d := start(t, "--cluster", "-o", "json")
	code, err := d.Wait(clusterTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	if left := d.left(t); len(left) > 0 {
		t.Errorf("it left %q behind", left)
	}
	var r clusterReport
	decode(t, d.out.Bytes(), &r)
	if r.Jobs == nil || r.Jobs.Accepted == nil || r.Jobs.Completed == nil || r.Jobs.Lost == nil || r.Jobs.Errors == nil || r.Formed == nil {
		t.Fatalf("fields are missing:\n%s", &d.out)
	}
	if n := r.Jobs; *n.Accepted == 0 || *n.Accepted != *n.Completed || *n.Lost != 0 {
		t.Errorf("%d accepted, %d completed and %d lost", *n.Accepted, *n.Completed, *n.Lost)
	}
	if len(r.Failovers) != 2 || r.Failovers[0].Log != "control" || r.Failovers[1].Log != "cell-a" {
		t.Fatalf("the failovers are:\n%s", &d.out)
	}
	for _, f := range r.Failovers {
		if f.Killed == "" || f.Leader == "" || f.Killed == f.Leader || f.NewLeader == nil || *f.NewLeader <= 0 || len(f.Tenants) != 2 {
			t.Errorf("the failover of %s is:\n%s", f.Log, &d.out)
		}
	}
	if len(r.Tenants) != 2 || r.Tenants[1].Cell != "cell-b" || r.Tenants[1].Errors == nil || *r.Tenants[1].Errors != 0 {
		t.Errorf("the tenants are:\n%s", &d.out)
	}
	gone(t, d)
}

// TestKilledDemoOfACluster: its processes end by themselves, and take the folder with them.
func TestKilledDemoOfACluster(t *testing.T) {
	harness.NeedCluster(t)
	harness.NeedSignals(t)
	d := start(t, "--cluster")
	harness.Eventually(t, demoTimeout, "the demo starts agents", func() bool { return strings.Contains(d.Output(), "making them a cluster") })
	d.Kill()
	harness.Eventually(t, demoTimeout, "the folder is removed", func() bool { return len(d.left(t)) == 0 })
	gone(t, d)
}

// TestInterruptedDemoOfACluster: it ends in order, says so, and leaves nothing behind.
func TestInterruptedDemoOfACluster(t *testing.T) {
	harness.NeedCluster(t)
	harness.NeedSignals(t)
	d := start(t, "--cluster")
	harness.Eventually(t, demoTimeout, "the demo starts agents", func() bool { return strings.Contains(d.Output(), "making them a cluster") })
	if code := d.Terminate(demoTimeout); code != 130 {
		t.Errorf("the exit code is %d", code)
	}
	d.end(t, 130)
	gone(t, d)
}

// whaleReport is the object of demo --whale -o json.
type whaleReport struct {
	Jobs      *struct{ Accepted, Completed *int } `json:"jobs"`
	Formed    *float64                            `json:"formed_ms"`
	Detected  string                              `json:"detected"`
	After     float64                             `json:"detected_after_ms"`
	Migration *struct {
		ID, Tenant, Source, Target, State string
		Reason, Actor                     string
		Attempt                           int
		Lost, Twice                       *int
		ClientErrors                      *int `json:"client_errors"`
		RunsAgain                         *int `json:"runs_again"`
		Pause                             *struct {
			P50, P99, Predicted *float64
			Classes             map[string]float64
		} `json:"pause_ms"`
		Took              float64 `json:"took_ms"`
		JobsCopied        int     `json:"jobs_copied"`
		BytesCopied       int     `json:"bytes_copied"`
		LongestSubmission float64 `json:"longest_submission_ms"`
	} `json:"migration"`
	Neighbours *struct{ Before, During, After *float64 } `json:"neighbours_wait_ms"`
}

// TestDemoOfAWhale: control finds it and moves it while it floods its cell, and nobody is told of an error or loses anything by it.
func TestDemoOfAWhale(t *testing.T) {
	harness.NeedCluster(t)
	d := start(t, "--whale", "-o", "json")
	code, err := d.Wait(clusterTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	if left := d.left(t); len(left) > 0 {
		t.Errorf("it left %q behind", left)
	}
	var r whaleReport
	decode(t, d.out.Bytes(), &r)
	m := r.Migration
	if r.Jobs == nil || m == nil || m.Lost == nil || m.Twice == nil || m.ClientErrors == nil || m.Pause == nil || m.Pause.P50 == nil || m.Pause.P99 == nil ||
		r.Neighbours == nil || r.Neighbours.Before == nil || r.Neighbours.During == nil || r.Neighbours.After == nil {
		t.Fatalf("fields are missing:\n%s", &d.out)
	}
	if m.State != "cut_over" || *m.Lost != 0 || *m.Twice != 0 || *m.ClientErrors != 0 || *r.Jobs.Accepted == 0 || *r.Jobs.Accepted != *r.Jobs.Completed {
		t.Errorf("it ended as:\n%s", &d.out)
	}
	if m.Reason != "whale" || m.Actor != "control" || r.After <= 0 || !strings.Contains(r.Detected, "for 6 hours in a row, of 6 that make a whale (hours of ") {
		t.Errorf("it was not control that found it by what was measured:\n%s", &d.out)
	}
	if *m.Pause.P50 <= 0 || *m.Pause.P99 < *m.Pause.P50 {
		t.Errorf("the pauses are:\n%s", &d.out)
	}
	gone(t, d)
}
