package demo

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// The JSON form of a report.
type (
	jsonJobs struct {
		Accepted  int `json:"accepted"`
		Completed int `json:"completed"`
		Lost      int `json:"lost"`
	}
	jsonWaits struct {
		P50 float64 `json:"p50"`
		P95 float64 `json:"p95"`
		Max float64 `json:"max"`
	}
	jsonPolicy struct {
		QuietWaitMS    jsonWaits `json:"quiet_wait_ms"`
		BulkFinishedMS float64   `json:"bulk_finished_ms"`
		JobsPerSecond  float64   `json:"jobs_per_second"`
	}
	jsonPolicies[T any] struct {
		FIFO     T `json:"fifo"`
		Fairlead T `json:"fairlead"`
	}
	jsonReport struct {
		Jobs     jsonJobs                 `json:"jobs"`
		Policies jsonPolicies[jsonPolicy] `json:"policies"`
	}
	jsonTenant struct {
		Tenant     string    `json:"tenant"`
		Files      int       `json:"files"`
		Bytes      int64     `json:"bytes"`
		WaitMS     jsonWaits `json:"wait_ms"`
		FinishedMS float64   `json:"finished_ms"`
		Failed     int       `json:"failed"`
	}
	jsonFailure struct {
		Error string `json:"error"`
		Count int    `json:"count"`
		File  string `json:"file"` // the first that failed so
	}
	jsonFolder struct {
		Tenants       []jsonTenant  `json:"tenants"`
		FinishedMS    float64       `json:"finished_ms"`
		JobsPerSecond float64       `json:"jobs_per_second"`
		Failures      []jsonFailure `json:"failures"`
	}
	jsonFolderReport struct {
		Jobs     Jobs                     `json:"jobs"`
		Skipped  Skipped                  `json:"skipped"`
		Policies jsonPolicies[jsonFolder] `json:"policies"`
	}
)

// JSON returns the report as one JSON object. Times are milliseconds.
func (r *Report) JSON() ([]byte, error) {
	if r.workload.folder != "" {
		return json.MarshalIndent(jsonFolderReport{
			Jobs: r.Jobs(), Skipped: r.skipped,
			Policies: jsonPolicies[jsonFolder]{FIFO: r.jsonFolder(policyFIFO), Fairlead: r.jsonFolder(policyFairlead)},
		}, "", "  ")
	}
	n := r.Jobs()
	return json.MarshalIndent(jsonReport{
		Jobs:     jsonJobs{Accepted: n.Accepted, Completed: n.Completed, Lost: n.Accepted - n.Completed},
		Policies: jsonPolicies[jsonPolicy]{FIFO: r.jsonPolicy(policyFIFO), Fairlead: r.jsonPolicy(policyFairlead)},
	}, "", "  ")
}

func (r *Report) jsonPolicy(policy string) jsonPolicy {
	f := r.figures(policy)
	return jsonPolicy{QuietWaitMS: jsonOf(f.quiet), BulkFinishedMS: milliseconds(f.bulkFinished), JobsPerSecond: round(f.throughput)}
}

func (r *Report) jsonFolder(policy string) jsonFolder {
	f := jsonFolder{
		Tenants: []jsonTenant{}, FinishedMS: milliseconds(r.finished(policy, all)), JobsPerSecond: round(r.throughput(policy)),
		Failures: []jsonFailure{},
	}
	for _, t := range r.tenants() {
		f.Tenants = append(f.Tenants, jsonTenant{
			Tenant: t.name, Files: t.files, Bytes: t.bytes, WaitMS: jsonOf(t.waits[policy]), FinishedMS: milliseconds(t.finished[policy]),
			Failed: t.failed[policy],
		})
	}
	for _, c := range r.complaints(policy) {
		f.Failures = append(f.Failures, jsonFailure{Error: c.text, Count: c.count, File: c.path})
	}
	return f
}

func jsonOf(w Waits) jsonWaits {
	return jsonWaits{P50: milliseconds(w.P50), P95: milliseconds(w.P95), Max: milliseconds(w.Max)}
}

// milliseconds and round keep what a measurement on a machine with other work is worth.
func milliseconds(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }
func round(v float64) float64              { return math.Round(v*100) / 100 }

// Text returns the report for people, in lines of at most width columns where the words allow it.
func (r *Report) Text(width int) string {
	var b strings.Builder
	if r.workload.folder != "" {
		r.folderText(&b, width)
	} else {
		b.WriteString(r.table() + "\n" + wrap(r.reading(), width) + "\n")
	}
	b.WriteString("\n" + r.next(width))
	return b.String()
}

// table compares the policies.
func (r *Report) table() string {
	fifo, fair := r.figures(policyFIFO), r.figures(policyFairlead)
	return columns([][]string{
		{"", "FIFO", "Fairlead"},
		{"Quiet jobs' wait p50", seconds(fifo.quiet.P50), seconds(fair.quiet.P50)},
		{"                 p95", seconds(fifo.quiet.P95), seconds(fair.quiet.P95)},
		{"                 max", seconds(fifo.quiet.Max), seconds(fair.quiet.Max)},
		{"Bulk finished after", seconds(fifo.bulkFinished), seconds(fair.bulkFinished)},
		{"Jobs per second", fmt.Sprintf("%.1f", fifo.throughput), fmt.Sprintf("%.1f", fair.throughput)},
		{"Lost jobs", fmt.Sprint(fifo.lost), fmt.Sprint(fair.lost)},
	})
}

// sameWithin is the share within which two times, or two throughputs, are called the same.
const sameWithin = 0.05

// reading says in words what the table says.
func (r *Report) reading() string {
	fifo, fair := r.figures(policyFIFO), r.figures(policyFairlead)
	s := fmt.Sprintf("A quiet tenant's job waited at most %s beside the bulk tenant, against %s first come, first served (p95: %s against %s",
		seconds(fair.quiet.Max), seconds(fifo.quiet.Max), seconds(fair.quiet.P95), seconds(fifo.quiet.P95))
	if fair.quiet.P95 > 0 && fifo.quiet.P95 >= 2*fair.quiet.P95 {
		s += fmt.Sprintf(", %.0f times less", float64(fifo.quiet.P95)/float64(fair.quiet.P95))
	}
	s += ")"
	later := fair.bulkFinished - fifo.bulkFinished
	switch {
	case same(fair.bulkFinished.Seconds(), fifo.bulkFinished.Seconds()):
		s += "; the bulk finished at the same time."
	case later < 0:
		s += fmt.Sprintf("; the bulk finished %s earlier.", seconds(-later))
	default:
		s += fmt.Sprintf("; the bulk finished %s later, since the quiet tenants' jobs had their turns in between.", seconds(later))
	}
	n := r.Jobs()
	if lost := n.Accepted - n.Completed; lost > 0 {
		s += fmt.Sprintf(" Of %d accepted jobs, %d were lost.", n.Accepted, lost)
	} else {
		s += fmt.Sprintf(" All %d accepted jobs were completed, and their results checked.", n.Accepted)
	}
	return s
}

func same(a, b float64) bool { return math.Abs(a-b) <= sameWithin*max(a, b) }

// folderText compares the policies for each tenant of a folder.
func (r *Report) folderText(b *strings.Builder, width int) {
	rows := [][]string{{"Tenant", "files", "size", "policy", "wait p50", "p95", "max", "failed"}}
	for _, t := range r.tenants() {
		about := []string{output.Cut(output.Safe(t.name), tenantNameMax), fmt.Sprint(t.files), output.Bytes(t.bytes)}
		for _, p := range policies() {
			w := t.waits[p]
			rows = append(rows, append(about, p, seconds(w.P50), seconds(w.P95), seconds(w.Max), fmt.Sprint(t.failed[p])))
			about = []string{"", "", ""}
		}
	}
	b.WriteString(columns(rows) + "\n")
	b.WriteString(wrap(r.folderReading(), width) + "\n")
	for n, o := range r.outcomes[policyFairlead] {
		if o.succeeded && o.output != "" {
			fmt.Fprintf(b, "For example, %s gave: %s\n", output.Safe(r.workload.jobs[n].order.Path), output.Safe(o.output))
			break
		}
	}
	complaints := r.complaints(policyFairlead)
	for i, c := range complaints {
		if i == complaintsMax {
			fmt.Fprintf(b, "... and %d other errors: see them all with -o json\n", len(complaints)-i)
			break
		}
		line := fmt.Sprintf("%s failed: %s", output.Safe(c.path), output.SafeText(c.text))
		if c.count > 1 {
			line = fmt.Sprintf("%d failed, such as %s: %s", c.count, output.Safe(c.path), output.SafeText(c.text))
		}
		b.WriteString(wrap(line, width) + "\n")
	}
	if s := r.skipped; s != (Skipped{}) {
		b.WriteString(wrap(fmt.Sprintf("Left out: %d hidden, %d that are links or no files, %d in no tenant's folder.", s.Hidden, s.Special, s.Loose), width) + "\n")
	}
}

const (
	tenantNameMax = 24
	complaintsMax = 5
)

// folderReading says in words what the folder's table says.
func (r *Report) folderReading() string {
	fifo, fair := r.waitsOf(policyFIFO, rest), r.waitsOf(policyFairlead, rest)
	took := fmt.Sprintf("All files took %s through Fairlead, against %s.", seconds(r.finished(policyFairlead, all)), seconds(r.finished(policyFIFO, all)))
	if len(r.workload.tenants) == 1 {
		return "There is one tenant, who waits for nobody else. " + took
	}
	return fmt.Sprintf("Beside %s, which has the most files, the other tenants' files waited at most %s through Fairlead, against %s first come, first served. %s",
		output.Safe(r.workload.bulkName()), seconds(fair.Max), seconds(fifo.Max), took)
}

// next says what to try.
func (r *Report) next(width int) string {
	var b strings.Builder
	if r.Kept != "" {
		dir := filepath.Join(r.Kept, policyFairlead)
		fmt.Fprintf(&b, "The state of both runs is in %s. To look into the second, serve it again:\n", r.Kept)
		fmt.Fprintf(&b, "  fairlead dev --dir %s\n  fairlead job list --dev-dir %s --as %s\n\n", dir, dir, r.workload.tenants[bulkTenant].id)
	}
	b.WriteString("Next:\n")
	rows := [][2]string{
		{"fairlead dev", "a server for your own jobs, with what to paste"},
		{"fairlead demo --dir FOLDER", "the same with your files, a folder per tenant"},
		{"fairlead demo --bulk-jobs 2000", "a larger flood"},
	}
	if r.workload.folder != "" {
		rows[1] = [2]string{"fairlead demo", "the same with made-up jobs"}
		rows[2] = [2]string{"fairlead demo --dir FOLDER --exec 'wc -w'", "your own program on each file"}
	}
	widest := 0
	for _, row := range rows {
		widest = max(widest, len(row[0]))
	}
	for _, row := range rows {
		line := fmt.Sprintf("  %-*s  %s", widest, row[0], row[1])
		if len(line) > width {
			line = "  " + row[0]
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// seconds writes a duration with three digits that count.
func seconds(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 0.9995:
		return fmt.Sprintf("%.0f ms", s*1000)
	case s < 9.995:
		return fmt.Sprintf("%.2f s", s)
	default:
		return fmt.Sprintf("%.1f s", s)
	}
}

// columns aligns rows: the first column to the left, the others to the right.
func columns(rows [][]string) string {
	var b strings.Builder
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	for _, row := range rows {
		padded := make([]string, len(row))
		for i, cell := range row {
			blanks := strings.Repeat(" ", widths[i]-lipgloss.Width(cell))
			if i == 0 {
				padded[i] = cell + blanks
			} else {
				padded[i] = blanks + cell
			}
		}
		b.WriteString(strings.TrimRight(strings.Join(padded, "  "), " ") + "\n")
	}
	return b.String()
}

// wrap breaks a text into lines of at most width columns.
func wrap(s string, width int) string {
	if width < 1 {
		return s
	}
	return lipgloss.Wrap(s, width, " ")
}
