package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// columnGap is how many blanks stand between columns.
const columnGap = 2

// picked are the columns to show of all.
type picked struct {
	columns []Column
	index   []int
}

func pick(columns []Column, wide bool) []int {
	var index []int
	for i, c := range columns {
		if wide || !c.Wide {
			index = append(index, i)
		}
	}
	return index
}

func (p picked) names() []string {
	names := make([]string, len(p.columns))
	for i, c := range p.columns {
		names[i] = c.Name
	}
	return names
}

func (p picked) line(cells []string) string {
	shown := make([]string, len(p.index))
	for i, at := range p.index {
		shown[i] = cells[at]
	}
	return strings.Join(shown, "\t") + "\n"
}

func writeTable(out io.Writer, p picked, rows [][]string, header bool) error {
	var b strings.Builder
	if header {
		b.WriteString(p.line(p.names()))
	}
	for _, row := range rows {
		if len(row) != len(p.columns) {
			panic(fmt.Sprintf("output: a row of %d cells for %d columns", len(row), len(p.columns)))
		}
		b.WriteString(p.line(row))
	}
	return align(out, b.String())
}

// align writes lines whose cells end in tabs.
func align(out io.Writer, lines string) error {
	w := tabwriter.NewWriter(out, 0, 0, columnGap, ' ', 0)
	if _, err := io.WriteString(w, lines); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}
