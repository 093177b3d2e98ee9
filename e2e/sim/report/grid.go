package report

import (
	"strings"
	"unicode/utf8"
)

// column is one column of a grid: numbers stand to the right, so that their places line up.
type column struct {
	head string
	left bool
	// over is a heading that neighbours with the same one share.
	over string
}

// grid is a table for people.
type grid struct {
	columns []column
	rows    [][]string
}

// gap is how many blanks stand between columns, and wideGap between those under different headings.
const (
	gap     = 2
	wideGap = 4
)

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// String returns the table, a line for each row, without blanks at the ends of lines.
func (g *grid) String() string {
	widths := g.widths()
	var b strings.Builder
	g.headings(&b, widths)
	heads := make([]string, len(g.columns))
	for i, c := range g.columns {
		heads[i] = c.head
	}
	for _, row := range append([][]string{heads}, g.rows...) {
		var line strings.Builder
		for i, cell := range row {
			blanks := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			line.WriteString(strings.Repeat(" ", g.before(i)))
			if g.columns[i].left {
				line.WriteString(cell + blanks)
			} else {
				line.WriteString(blanks + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return spaced(b.String())
}

// before is the blanks before a column.
func (g *grid) before(i int) int {
	switch {
	case i == 0:
		return 0
	case g.columns[i].over != g.columns[i-1].over:
		return wideGap
	default:
		return gap
	}
}

// widths returns how wide each column is: as its widest cell, and the last under a shared heading what that still lacks.
func (g *grid) widths() []int {
	widths := make([]int, len(g.columns))
	for i, c := range g.columns {
		widths[i] = utf8.RuneCountInString(c.head)
		for _, row := range g.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for i := 0; i < len(g.columns); {
		from, to, width := g.under(i, widths)
		if lack := utf8.RuneCountInString(g.columns[i].over) - width; lack > 0 {
			widths[from] += lack
		}
		i = to
	}
	return widths
}

// under returns which columns, from and up to before to, share the heading of column i, and how wide they are together.
func (g *grid) under(i int, widths []int) (from, to, width int) {
	to = i
	for ; to < len(g.columns) && g.columns[to].over == g.columns[i].over; to++ {
		width += widths[to]
		if to > i {
			width += gap
		}
	}
	return i, to, width
}

// headings writes the shared headings, if there are any, each at the left of its columns with a rule to their end.
func (g *grid) headings(b *strings.Builder, widths []int) {
	var line strings.Builder
	for i := 0; i < len(g.columns); {
		_, to, width := g.under(i, widths)
		over := g.columns[i].over
		line.WriteString(strings.Repeat(" ", g.before(i)) + over)
		rest := width - utf8.RuneCountInString(over)
		if over != "" && rest > 1 {
			line.WriteString(" " + strings.Repeat("-", rest-1))
		} else {
			line.WriteString(strings.Repeat(" ", rest))
		}
		i = to
	}
	if s := strings.TrimRight(line.String(), " "); s != "" {
		b.WriteString(s + "\n")
	}
}
