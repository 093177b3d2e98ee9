package demo

import (
	"fmt"
	"image/color"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
)

// The colours of the view, which the terminal's own theme chooses.
const (
	colorBulk = lipgloss.Blue
	colorRest = lipgloss.Cyan
	colorGood = lipgloss.Green
	colorFair = lipgloss.Yellow
	colorBad  = lipgloss.Red
)

// The shape of the view.
const (
	labelWidth    = 8  // of a line's name, the indent included
	barWidthMin   = 6  // a shorter bar is left out
	barWidthMax   = 60 // a longer one says no more
	roomyWidthMin = 66 // from which on there is room for whole words
)

// size is the terminal's, in columns and lines.
type size struct{ width, height int }

// frame draws the view: at most as large as the terminal, and as many lines whatever the state, so that nothing jumps. A frame that is higher than
// the terminal would leave its upper part behind with every tick.
func frame(title string, states []state, message string, expected time.Duration, screen size) string {
	width := screen.width
	scale := expected
	for _, s := range states {
		scale = max(scale, s.waitWorst)
	}
	lines := append(strings.Split(wrap(title, width), "\n"), "")
	for i := range lines {
		lines[i] = lipgloss.NewStyle().Bold(true).Render(lines[i])
	}
	for _, s := range states {
		lines = append(lines, policyLines(s, scale, width)...)
		lines = append(lines, "")
	}
	lines = append(lines, faint(cut(message, width)))
	if len(lines) < screen.height {
		return strings.Join(lines, "\n")
	}
	lines = lines[:0]
	for _, s := range states {
		lines = append(lines, cut(brief(s), width))
	}
	lines = append(lines, faint(cut(message, width)))
	return strings.Join(lines[:min(len(lines), max(1, screen.height-1))], "\n")
}

// policyName is a policy's name for people, and what it does.
func policyName(policy string) (name, about string) {
	if policy == policyFIFO {
		return "FIFO", "first come, first served"
	}
	return "Fairlead", "fair between tenants"
}

// brief is one policy in a line.
func brief(s state) string {
	name, _ := policyName(s.policy)
	line := fmt.Sprintf("%s: %s, %s %d/%d", name, phaseText(s), s.bulk, s.bulkDone, s.bulkTotal)
	if s.restTotal > 0 {
		line += fmt.Sprintf(", %s %d/%d, worst wait %s", s.rest, s.restDone, s.restTotal, seconds(s.waitWorst))
	}
	return line
}

// policyLines draws one policy.
func policyLines(s state, scale time.Duration, width int) []string {
	name, about := policyName(s.policy)
	style := lipgloss.NewStyle().Bold(s.phase == phaseRunning).Faint(s.phase == phaseWaiting)
	if width >= roomyWidthMin {
		name += ": " + about
	}
	lines := []string{spread(name, phaseText(s), width, style)}
	lines = append(lines, barLine(s.bulk, part(s.bulkDone, s.bulkTotal), colorBulk, fmt.Sprintf("%d/%d", s.bulkDone, s.bulkTotal), width))
	if s.restTotal > 0 {
		lines = append(lines,
			barLine(s.rest, part(s.restDone, s.restTotal), colorRest, fmt.Sprintf("%d/%d", s.restDone, s.restTotal), width),
			waitLine(s, scale, waitText(s, width), width))
	}
	if s.phase == phaseDone {
		return append(lines, barLine("slots", s.used, colorRest, fmt.Sprintf("%.0f %% busy", 100*s.used), width))
	}
	return append(lines, barLine("slots", part(s.busy, s.slots), colorRest, fmt.Sprintf("%d/%d busy", s.busy, s.slots), width))
}

// waitText says how long the rest wait now, and at worst.
func waitText(s state, width int) string {
	switch {
	case s.phase == phaseWaiting || s.phase == phaseStarting:
		return ""
	case s.phase == phaseDone:
		return "worst " + seconds(s.waitWorst)
	case width >= roomyWidthMin:
		return fmt.Sprintf("%s now, worst %s", seconds(s.waitNow), seconds(s.waitWorst))
	default:
		return fmt.Sprintf("%s, worst %s", seconds(s.waitNow), seconds(s.waitWorst))
	}
}

func phaseText(s state) string {
	switch s.phase {
	case phaseWaiting:
		return "waits"
	case phaseStarting:
		return "starting"
	case phaseRunning:
		return seconds(s.elapsed.Truncate(tick))
	case phaseDone:
		return "done in " + seconds(s.elapsed)
	case phaseStopped:
		return "stopped after " + seconds(s.elapsed)
	default:
		panic(fmt.Sprintf("demo: no phase %d", s.phase))
	}
}

// textWidth is the room right of a bar; the same for all, so that the bars end in one column.
func textWidth(width int) int {
	if width >= roomyWidthMin {
		return len("4.99 s now, worst 4.99 s")
	}
	return len("499 ms, worst 499 ms")
}

func barWidth(width int) int { return min(width-labelWidth-textWidth(width)-2, barWidthMax) }

// barLine draws a name, a bar and a text.
func barLine(name string, share float64, c color.Color, text string, width int) string {
	n := barWidth(width)
	if n < barWidthMin {
		return cut(label(name)+text, width)
	}
	full := int(min(1, max(0, share))*float64(n) + 0.5)
	return cut(label(name), labelWidth) + lipgloss.NewStyle().Foreground(c).Render(strings.Repeat("█", full)) +
		faint(strings.Repeat("░", n-full)) + "  " + cut(text, textWidth(width))
}

// waitLine draws how long the rest wait now, and the worst so far, on the same scale for both policies.
func waitLine(s state, scale time.Duration, text string, width int) string {
	n := barWidth(width)
	if n < barWidthMin || scale <= 0 {
		return cut(label("wait")+text, width)
	}
	at := func(d time.Duration) int { return int(float64(n)*min(1, float64(d)/float64(scale)) + 0.5) }
	now, worst := at(s.waitNow), at(s.waitWorst)
	if worst == 0 && s.waitWorst > 0 {
		worst = 1 // little is not nothing
	}
	if now = min(now, worst); s.phase == phaseDone {
		now = worst
	}
	c := colorGood
	switch {
	case s.waitWorst > scale/4:
		c = colorBad
	case s.waitWorst > scale/10:
		c = colorFair
	}
	style := lipgloss.NewStyle().Foreground(c)
	return cut(label("wait"), labelWidth) + style.Render(strings.Repeat("█", now)+strings.Repeat("▒", worst-now)) +
		faint(strings.Repeat("░", n-worst)) + "  " + cut(text, textWidth(width))
}

// label is a line's name in its column.
func label(name string) string {
	name = cut(name, labelWidth-3)
	return "  " + name + strings.Repeat(" ", labelWidth-2-lipgloss.Width(name))
}

// spread writes left and right at the two ends of where the bars are.
func spread(left, right string, width int, style lipgloss.Style) string {
	end := width
	if n := barWidth(width); n >= barWidthMin {
		end = min(width, labelWidth+n+2+textWidth(width))
	}
	gap := end - lipgloss.Width(left) - lipgloss.Width(right)
	if gap < 1 {
		return style.Render(cut(left+" "+right, width))
	}
	return style.Render(left + strings.Repeat(" ", gap) + right)
}

func faint(s string) string { return lipgloss.NewStyle().Faint(true).Render(s) }

// part is n of total.
func part(n, total int) float64 {
	if total <= 0 {
		return 0
	}
	return float64(n) / float64(total)
}

// cut shortens a text to width columns.
func cut(s string, width int) string {
	if lipgloss.Width(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	out := ""
	for _, r := range s {
		if lipgloss.Width(out+string(r)) > width-1 {
			break
		}
		out += string(r)
	}
	return out + "…"
}
