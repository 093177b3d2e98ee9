package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/report"
)

var rewrite = flag.Bool("rewrite", false, "write what is reported and drawn into the files it is compared with")

// golden compares with testdata/name, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	same(t, filepath.Join("testdata", name), got)
}

func same(t *testing.T, file string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is made now: look at the difference, and write it with -rewrite if it is meant\n%s", file, firstDifference(got, want))
	}
}

func firstDifference(got, want []byte) string {
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range max(len(g), len(w)) {
		var a, b []byte
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if !bytes.Equal(a, b) {
			return "got:  " + string(a[:min(len(a), 300)]) + "\nwant: " + string(b[:min(len(b), 300)])
		}
	}
	return ""
}

// TestForms holds every form to its golden file, and the figures in them are those published for this workload. Twice the same runs give twice the
// same bytes.
func TestForms(t *testing.T) {
	for range 2 {
		runs := threePolicies()
		sums := summaries(runs)
		r := report.New(sums, report.Options{Objective: 250 * time.Millisecond, About: "one bulk tenant beside nineteen quiet ones"})
		golden(t, "three.txt", []byte(r.Table()))
		wide := report.New(sums, report.Options{Wide: true, Tenants: true})
		golden(t, "three-wide.txt", []byte(wide.Table()))
		plain := report.New(sums, report.Options{})
		golden(t, "three.json", must(plain.JSON()))
		golden(t, "three-tenants.json", must(report.New(sums[2:], report.Options{Tenants: true, Objective: time.Second}).JSON()))
		golden(t, "three.csv", must(plain.CSV()))
		golden(t, "three-tenants.csv", must(wide.CSV()))
		golden(t, "one.txt", []byte(report.New(sums[1:2], report.Options{Tenants: true}).Table()))
		golden(t, "timeline.svg", report.Timeline(runs, report.Window{}))
		golden(t, "timeline-start.svg", report.Timeline(runs, report.Window{To: 3 * time.Second}))
		golden(t, "waits.svg", report.Waits(runs))
		golden(t, "shares.svg", report.Shares(runs[1:2], report.Window{From: time.Second, To: 3 * time.Second}))
		c := report.Compare(sums[0], sums[2])
		golden(t, "compared.txt", []byte(c.Table(report.Options{})))
		golden(t, "compared-wide.txt", []byte(c.Table(report.Options{Wide: true})))
		golden(t, "compared.json", must(c.JSON()))
		golden(t, "compared.csv", must(c.CSV()))
		var b bytes.Buffer
		if err := report.WriteJobs(&b, []*sim.Run{mixed()}); err != nil {
			t.Fatal(err)
		}
		golden(t, "mixed-jobs.csv", b.Bytes())
		golden(t, "mixed.txt", []byte(report.New(summaries([]*sim.Run{mixed()}), report.Options{Tenants: true, Objective: time.Second}).Table()))
		golden(t, "mixed.json", must(report.New(summaries([]*sim.Run{mixed()}), report.Options{Objective: time.Second}).JSON()))
		golden(t, "mixed.svg", report.Timeline([]*sim.Run{mixed()}, report.Window{}))
		if *rewrite {
			return
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func summaries(runs []*sim.Run) []*report.Summary {
	var out []*report.Summary
	for _, r := range runs {
		out = append(out, report.Summarise(r))
	}
	return out
}
