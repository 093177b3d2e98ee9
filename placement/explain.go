package placement

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Reason says what a decision is for.
type Reason string

// The reasons of decisions.
const (
	ReasonPlace     Reason = "place"     // the tenant has no cell yet
	ReasonRebalance Reason = "rebalance" // its cell is more loaded than others, or breaks its rules
	ReasonEvacuate  Reason = "evacuate"  // its cell is to be empty
	ReasonWhale     Reason = "whale"     // it is too large for the pool
	ReasonReturn    Reason = "return"    // it no longer needs a cell of its own
)

// Decision is where one tenant goes, and why.
type Decision struct {
	Tenant      cell.TenantID
	Source      cell.ID // empty for a tenant that has no cell yet
	Target      cell.ID // empty when no cell can take it
	Reason      Reason
	Text        string      // what else there is to say; empty for nothing
	Demand      Load        // the largest of its hours, resource by resource
	Candidates  []Candidate // the score table: best first, then those that cannot have it
	Others      []Count     // the cells that are not in the table, by what befell them
	GainPerByte float64     // for a rebalance: how much of its capacity the fuller cell is relieved of, for each byte that moves
	Bytes       int64       // what moves
	Generation  uint64      // of the target's record
	Groups      uint64      // the tenant's hand in the target: bit i for group i+1; 0 for no hand
}

// Candidate is one cell of a decision's score table.
type Candidate struct {
	Cell     cell.ID
	Rejected string // why it cannot have the tenant; empty for one that can
	Score    float64
	Parts    []Part // what the score is the sum of
}

// Part is one named part of a score, weighted.
type Part struct {
	Name  string
	Value float64
}

// Count is a number of cells that have one thing in common.
type Count struct {
	Name  string
	Cells int
}

// Plan is a set of decisions.
type Plan struct {
	Decisions []Decision
	Whales    []Whale
	Held      []string // why moves that would gain something are not in it
	// The largest load of a cell as a share of its capacity, over the average of all, before and after. 0 while nothing is placed.
	ImbalanceBefore float64
	ImbalanceAfter  float64
}

// String returns the decision as people read it: what is decided, and the score table, in which a score is the sum of its parts.
func (d Decision) String() string {
	var b strings.Builder
	b.WriteString(string(d.Tenant) + ": " + string(d.Reason))
	moves := d.Source != "" && d.Source != d.Target
	if moves {
		b.WriteString(" from " + string(d.Source))
	}
	switch d.Target {
	case "":
		b.WriteString(": no cell can take it\n")
	case d.Source:
		b.WriteString(": stays in " + string(d.Target) + "\n")
	default:
		b.WriteString(" to " + string(d.Target) + "\n")
	}
	if d.Text != "" {
		b.WriteString("  " + d.Text + "\n")
	}
	b.WriteString("  demand " + d.Demand.String())
	if moves {
		b.WriteString("; " + formatInt(d.Bytes) + " bytes move")
	}
	if d.Groups != 0 {
		b.WriteString("; worker groups " + formatGroups(d.Groups))
	}
	b.WriteString("\n")
	d.writeTable(&b)
	if len(d.Others) > 0 {
		total, parts := 0, make([]string, 0, len(d.Others))
		for _, o := range d.Others {
			total += o.Cells
			parts = append(parts, formatInt(int64(o.Cells))+" "+o.Name)
		}
		b.WriteString("  and " + formatInt(int64(total)) + " more: " + strings.Join(parts, ", ") + "\n")
	}
	return b.String()
}

// writeTable writes a line for each candidate, its columns aligned.
func (d Decision) writeTable(b *strings.Builder) {
	rows := [][]string{{"CELL", "SCORE"}}
	for _, c := range d.Candidates {
		if c.Rejected != "" {
			continue
		}
		row := []string{string(c.Cell), formatScore(c.Score)}
		for _, p := range c.Parts {
			if len(rows) == 1 {
				rows[0] = append(rows[0], strings.ToUpper(p.Name))
			}
			row = append(row, formatScore(p.Value))
		}
		rows = append(rows, row)
	}
	name := 0
	for _, c := range d.Candidates {
		name = max(name, len(c.Cell))
	}
	if len(rows) > 1 {
		widths := make([]int, len(rows[0]))
		for _, row := range rows {
			for i, text := range row {
				widths[i] = max(widths[i], len(text))
			}
		}
		widths[0] = max(widths[0], name)
		name = widths[0]
		for _, row := range rows {
			b.WriteString("  " + row[0] + strings.Repeat(" ", widths[0]-len(row[0])))
			for i, text := range row[1:] {
				b.WriteString("  " + strings.Repeat(" ", widths[i+1]-len(text)) + text)
			}
			b.WriteString("\n")
		}
	}
	for _, c := range d.Candidates {
		if c.Rejected != "" {
			b.WriteString("  " + string(c.Cell) + strings.Repeat(" ", name-len(c.Cell)) + "  " + c.Rejected + "\n")
		}
	}
}

// formatScore writes a score with four digits, so that a difference that decides can be seen.
func formatScore(f float64) string {
	if math.Abs(f) < 0.00005 { // also a zero that is less than nothing
		return "0"
	}
	return strconv.FormatFloat(f, 'f', 4, 64)
}

func formatGroups(set uint64) string {
	var groups []string
	for i := range 64 {
		if set&(1<<i) != 0 {
			groups = append(groups, formatInt(int64(i)+1))
		}
	}
	return strings.Join(groups, ", ")
}

// formatDuration writes 24h rather than 24h0m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
