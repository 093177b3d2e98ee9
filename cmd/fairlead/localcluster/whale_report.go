package localcluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// WhaleReport is what came of a run with a whale.
type WhaleReport struct {
	formed    time.Duration
	detected  string        // what the whale was found by, in placement's words
	predicted time.Duration // the pause of each class, by the plan; 0 when it was found before there was one

	detectedAfter time.Duration // from the beginning of the flood until control had begun to move it

	took      time.Duration
	migration *fairleadv1.Migration
	longest   time.Duration // submission of the whale
	waits     struct{ before, during, after time.Duration }
	figures   WhaleFigures
	first     error
	keep      bool
	cluster   *Cluster
}

// WhaleFigures counts the jobs of all tenants, and the errors of all their calls.
type WhaleFigures struct {
	Accepted  int
	Completed int
	// Lost were accepted, and are not listed as succeeded although the time was up.
	Lost int
	// Twice are listed more than once, were made into two jobs, or came to their end more often than the cell accounts for.
	Twice int
	// Errors are calls that failed, each made once.
	Errors int
	// Again are runs that a worker's lost lease accounts for.
	Again int
}

// Figures returns the counts.
func (r *WhaleReport) Figures() WhaleFigures { return r.figures }

// Moved reports whether the whale is served by its own cell.
func (r *WhaleReport) Moved() bool { return moveview.Served(r.migration) }

// Stand says where the migration stands, and what keeps it there.
func (r *WhaleReport) Stand() string {
	text := moveview.Line(r.migration)
	if blocked, _ := moveview.Blocked(r.migration); blocked != "" {
		text += "; not yet: " + blocked
	}
	return text
}

// FirstError is the first error that a tenant saw; nil for none.
func (r *WhaleReport) FirstError() error { return r.first }

// count takes the figures from what was seen and what the cells list.
func (r *WhaleReport) count(l *ledger, listed []*fairleadv1.Job) {
	times, jobs := make(map[string]int), make(map[string]*fairleadv1.Job)
	for _, j := range listed {
		times[j.GetId()]++
		jobs[j.GetId()] = j
	}
	now := time.Now()
	began := l.marks[markFlood].Add(-quietTime)
	r.waits.before = l.wait(began, l.marks[markFlood], now)
	r.waits.during = l.wait(l.marks[markFlood], l.marks[markMoved], now)
	r.waits.after = l.wait(l.marks[markMoved], l.marks[markEnd], now)
	l.mu.Lock()
	defer l.mu.Unlock()
	r.figures, r.first = WhaleFigures{}, l.first
	for i := range l.entries {
		r.figures.add(&l.entries[i], times, jobs)
	}
	for _, n := range l.failed {
		r.figures.Errors += n
	}
}

// add counts a job that is listed so many times.
func (f *WhaleFigures) add(e *entry, times map[string]int, jobs map[string]*fairleadv1.Job) {
	if e.err != nil {
		f.Errors++
	}
	ran := make(map[string]int)
	for _, id := range e.ended {
		ran[id]++
	}
	twice := len(ran) > 1 || times[e.id] > 1
	for id, n := range ran { // order-free: sums
		lost := int(jobs[id].GetLostAttempts())
		twice = twice || n > 1+lost
		f.Again += min(n-1, lost)
	}
	if twice {
		f.Twice++
	}
	if e.id == "" {
		return
	}
	f.Accepted++
	if jobs[e.id].GetState() == fairleadv1.JobState_JOB_STATE_SUCCEEDED {
		f.Completed++
	} else {
		f.Lost++
	}
}

// pauses are how long each class stood still, in the order in which they were switched.
func (r *WhaleReport) pauses() []time.Duration {
	var all []time.Duration
	for _, l := range r.migration.GetLanes() {
		all = append(all, l.GetPause().AsDuration())
	}
	return all
}

func (r *WhaleReport) pause(q float64) time.Duration { return nearestRank(r.pauses(), q) }

// The JSON form of a report. Times are milliseconds.
type (
	jsonPause struct {
		P50       float64            `json:"p50"`
		P99       float64            `json:"p99"`
		Predicted float64            `json:"predicted"`
		Classes   map[string]float64 `json:"classes"`
	}
	jsonMigration struct {
		ID          string    `json:"id"`
		Tenant      string    `json:"tenant"`
		Source      string    `json:"source"`
		Target      string    `json:"target"`
		State       string    `json:"state"`
		Held        string    `json:"held,omitempty"`
		Reason      string    `json:"reason"`
		Actor       string    `json:"actor"`
		Attempt     uint32    `json:"attempt"`
		Lost        int       `json:"lost"`
		Twice       int       `json:"twice"`
		Errors      int       `json:"client_errors"`
		Again       int       `json:"runs_again"`
		Pause       jsonPause `json:"pause_ms"`
		Took        float64   `json:"took_ms"`
		JobsCopied  int64     `json:"jobs_copied"`
		BytesCopied int64     `json:"bytes_copied"`
		LongestCall float64   `json:"longest_submission_ms"`
	}
	jsonWaits struct {
		Before float64 `json:"before"`
		During float64 `json:"during"`
		After  float64 `json:"after"`
	}
	jsonWhale struct {
		Jobs struct {
			Accepted  int `json:"accepted"`
			Completed int `json:"completed"`
		} `json:"jobs"`
		Formed    float64       `json:"formed_ms"`
		Detected  string        `json:"detected"`
		After     float64       `json:"detected_after_ms"`
		Migration jsonMigration `json:"migration"`
		Waits     jsonWaits     `json:"neighbours_wait_ms"`
	}
)

// The quantiles of a report's pauses.
const (
	quantileHalf = 0.50
	quantileTail = 0.99
)

// detectedText says by what a whale was found.
func detectedText(m *fairleadv1.Migration, by string) string {
	return fmt.Sprintf("placement: the tenant %s %s", m.GetTenant(), by)
}

// JSON returns the report as one JSON object.
func (r *WhaleReport) JSON() ([]byte, error) {
	m, f := r.migration, r.figures
	j := jsonWhale{
		Formed: milliseconds(r.formed), Detected: detectedText(m, r.detected), After: milliseconds(r.detectedAfter),
		Waits: jsonWaits{milliseconds(r.waits.before), milliseconds(r.waits.during), milliseconds(r.waits.after)},
		Migration: jsonMigration{
			ID: m.GetId(), Tenant: m.GetTenant(), Source: m.GetSource(), Target: m.GetTarget(), Held: m.GetHeld(), Attempt: m.GetAttempt(),
			Reason: m.GetReason(), Actor: m.GetActor(),
			State: strings.ReplaceAll(moveview.State(m.GetState()), "-", "_"), Lost: f.Lost, Twice: f.Twice, Errors: f.Errors, Again: f.Again,
			Pause: jsonPause{
				P50: milliseconds(r.pause(quantileHalf)), P99: milliseconds(r.pause(quantileTail)), Predicted: milliseconds(r.predicted), Classes: map[string]float64{},
			},
			Took: milliseconds(r.took), JobsCopied: m.GetProgress().GetJobsCopied(), BytesCopied: m.GetProgress().GetBytesCopied(),
			LongestCall: milliseconds(r.longest),
		},
	}
	j.Jobs.Accepted, j.Jobs.Completed = f.Accepted, f.Completed
	for _, l := range m.GetLanes() {
		j.Migration.Pause.Classes[moveview.Class(l.GetClass())] = milliseconds(l.GetPause().AsDuration())
	}
	return json.MarshalIndent(j, "", "  ")
}

// Text returns the report for people, in lines of at most width columns where the words allow it.
func (r *WhaleReport) Text(width int) string {
	var b strings.Builder
	f, m := r.figures, r.migration
	fmt.Fprintf(&b, "Accepted       %d\nCompleted      %d\nLost           %d\nTwice          %d\nClient errors  %d\n\n", f.Accepted, f.Completed, f.Lost, f.Twice, f.Errors)
	sentences := []string{
		fmt.Sprintf("%s began to move %s by itself %s after its flood began: it %s.", m.GetActor(), m.GetTenant(), seconds(r.detectedAfter), r.detected),
		fmt.Sprintf("An hour of demand is shortened to %v in this demonstration; it is 1h in a cluster.", demandHour),
		fmt.Sprintf("The migration of %s from %s to %s took %s: it is %s.", m.GetTenant(), m.GetSource(), m.GetTarget(), seconds(r.took), moveview.State(m.GetState())),
	}
	for _, l := range m.GetLanes() {
		sentences = append(sentences, fmt.Sprintf("Its %s jobs stood still for %s.", moveview.Class(l.GetClass()), seconds(l.GetPause().AsDuration())))
	}
	if r.predicted > 0 {
		sentences = append(sentences, fmt.Sprintf("The plan had said about %s.", seconds(r.predicted)))
	}
	sentences = append(sentences, fmt.Sprintf("The longest of its submissions took %s.", seconds(r.longest)))
	b.WriteString(wrap(strings.Join(sentences, " "), width) + "\n\n")
	fmt.Fprintf(&b, "The neighbours' jobs waited (95th percentile, from the call that submits to the start of the handler)\n"+
		"  before the whale came         %s\n  while it flooded and moved    %s\n  with the whale in its own     %s\n", seconds(r.waits.before), seconds(r.waits.during), seconds(r.waits.after))
	if !r.keep {
		b.WriteString("\nfairlead demo --whale --keep leaves it running, to try things on.\n")
		return b.String()
	}
	b.WriteString("\n" + r.Usage())
	return b.String()
}

// Usage says how to use the cluster while it is kept.
func (r *WhaleReport) Usage() string {
	c := r.cluster
	return fmt.Sprintf(`The cluster runs until Ctrl-C. In another terminal:

  export FAIRLEAD_ADDR=%s FAIRLEAD_CA_FILE=%s
  export FAIRLEAD_TOKEN_FILE=%s
  fairlead migrate status --tenant %s
  fairlead migrate reverse --tenant %[4]s --dry-run
  fairlead placement show

Logs are in %[5]s.
`, c.Addr(), quoted(c.CAFile()), quoted(c.AdminKeyFile()), whaleName, quoted(c.path("logs")))
}
