package localcluster

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
)

// Failover is one leader that was killed, and what that meant.
type Failover struct {
	// Log is the log that it led: control or a cell's name.
	Log string
	// Killed and Leader are the agents that led before and after.
	Killed, Leader string
	// NewLeader is how long after the kill the other was known to lead.
	NewLeader time.Duration
	Tenants   []Felt
}

// Felt is what a tenant's application noticed of a failover.
type Felt struct {
	Tenant Tenant
	// First is how long after the kill the first submission that began after it was accepted.
	First time.Duration
	// Longest is what the longest submission took that was open at the kill or began soon after it.
	Longest time.Duration
}

// Report is what came of a run.
type Report struct {
	formed    time.Duration
	failovers []Failover
	tenants   []tally
	keep      bool
	cluster   *Cluster
}

// Jobs counts jobs.
type Jobs struct {
	Accepted  int `json:"accepted"`
	Completed int `json:"completed"`
	// Lost were accepted and have not been completed in time.
	Lost int `json:"lost"`
	// Errors are submissions that their application was told have failed.
	Errors int `json:"errors"`
}

// Jobs counts the jobs of all tenants.
func (r *Report) Jobs() Jobs {
	var n Jobs
	for _, t := range r.tenants {
		n.Accepted, n.Completed, n.Errors = n.Accepted+t.accepted, n.Completed+t.completed, n.Errors+t.errors
	}
	n.Lost = n.Accepted - n.Completed
	return n
}

// ElsewhereErrors counts the errors that the tenant saw whose cell lost no leader, and returns the first.
func (r *Report) ElsewhereErrors() (int, error) {
	for _, t := range r.tenants {
		if t.tenant.Cell == cellB {
			return t.errors, t.firstError
		}
	}
	return 0, nil
}

// The JSON form of a report. Times are milliseconds.
type (
	jsonFelt struct {
		Tenant        string  `json:"tenant"`
		FirstAccepted float64 `json:"first_accepted_ms"`
		Longest       float64 `json:"longest_submission_ms"`
	}
	jsonFailover struct {
		Log       string     `json:"log"`
		Killed    string     `json:"killed"`
		Leader    string     `json:"leader"`
		NewLeader float64    `json:"new_leader_ms"`
		Tenants   []jsonFelt `json:"tenants"`
	}
	jsonTenant struct {
		Tenant    string  `json:"tenant"`
		Cell      string  `json:"cell"`
		Accepted  int     `json:"accepted"`
		Completed int     `json:"completed"`
		Errors    int     `json:"errors"`
		Longest   float64 `json:"longest_submission_ms"`
	}
	jsonReport struct {
		Jobs      Jobs           `json:"jobs"`
		Formed    float64        `json:"formed_ms"`
		Failovers []jsonFailover `json:"failovers"`
		Tenants   []jsonTenant   `json:"tenants"`
	}
)

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*10) / 10
}

// JSON returns the report as one JSON object.
func (r *Report) JSON() ([]byte, error) {
	j := jsonReport{Jobs: r.Jobs(), Formed: milliseconds(r.formed)}
	for _, f := range r.failovers {
		out := jsonFailover{Log: f.Log, Killed: f.Killed, Leader: f.Leader, NewLeader: milliseconds(f.NewLeader)}
		for _, t := range f.Tenants {
			out.Tenants = append(out.Tenants, jsonFelt{t.Tenant.Name, milliseconds(t.First), milliseconds(t.Longest)})
		}
		j.Failovers = append(j.Failovers, out)
	}
	for _, t := range r.tenants {
		j.Tenants = append(j.Tenants, jsonTenant{t.tenant.Name, t.tenant.Cell, t.accepted, t.completed, t.errors, milliseconds(t.longest)})
	}
	return json.MarshalIndent(j, "", "  ")
}

// Text returns the report for people, in lines of at most width columns where the words allow it.
func (r *Report) Text(width int) string {
	var b strings.Builder
	n := r.Jobs()
	fmt.Fprintf(&b, "Accepted  %d\nCompleted %d\nLost      %d\n\n", n.Accepted, n.Completed, n.Lost)
	for _, f := range r.failovers {
		sentences := []string{fmt.Sprintf("%s, the leader of %s, was killed: %s led %s later.", f.Killed, f.Log, f.Leader, seconds(f.NewLeader))}
		for _, t := range f.Tenants {
			sentences = append(sentences, fmt.Sprintf("The next submission of %s in %s was accepted %s after the kill, and its longest took %s.",
				t.Tenant.Name, t.Tenant.Cell, seconds(t.First), seconds(t.Longest)))
		}
		b.WriteString(wrap(strings.Join(sentences, " "), width) + "\n\n")
	}
	for _, t := range r.tenants {
		fmt.Fprintf(&b, "%s in %s saw %d errors.\n", t.tenant.Name, t.tenant.Cell, t.errors)
	}
	b.WriteString(r.next())
	return b.String()
}

// next says how to go on.
func (r *Report) next() string {
	if !r.keep {
		return "\nfairlead demo --cluster --keep leaves it running, to try things on.\n"
	}
	return "\n" + r.Usage()
}

// Usage says how to use the cluster while it is kept.
func (r *Report) Usage() string {
	c := r.cluster
	return fmt.Sprintf(`The cluster runs until Ctrl-C. In another terminal:

  export FAIRLEAD_ADDR=%s FAIRLEAD_CA_FILE=%s
  export FAIRLEAD_TOKEN_FILE=%s
  fairlead cluster get
  fairlead cell list
  fairlead job submit %s --payload '{"hello": "world"}' --wait --token-file %s

Logs are in %s.
`, c.Addr(), quoted(c.CAFile()), quoted(c.AdminKeyFile()), Operation, quoted(c.KeyFile(Tenants()[0].Name)), quoted(c.path("logs")))
}

// quoted is a path as a shell takes it.
func quoted(path string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("/._-", r) || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	if strings.TrimLeftFunc(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func wrap(s string, width int) string {
	if width < 1 {
		return s
	}
	return lipgloss.Wrap(s, width, " ")
}
