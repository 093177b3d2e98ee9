package migrate

import (
	"fmt"
	"strings"
)

// Graph returns the machine as two pictures in mermaid's form, the states of a migration and the phases of each of its classes, made from the table that Apply
// goes by.
func Graph() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> declared\n")
	for k := EventPass; k <= EventEnd; k++ {
		u, _ := ruleOf(k)
		if u.to == nil {
			continue
		}
		for _, s := range u.from {
			if k == EventAbort && s == CutOver {
				continue // it is refused with what to do instead
			}
			fmt.Fprintf(&b, "    %s --> %s: %s\n", s, u.to(s), k)
		}
	}
	for _, s := range []State{Released, Aborted, RolledBack} {
		fmt.Fprintf(&b, "    %s --> [*]\n", s)
	}
	b.WriteString("```\n\n```mermaid\nstateDiagram-v2\n    [*] --> at_source\n")
	for k := EventPass; k <= EventEnd; k++ {
		u, _ := ruleOf(k)
		for _, p := range u.phases {
			if u.toPhase != nil {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", p, u.toPhase(p), k)
			}
		}
	}
	for _, k := range []Kind{EventRestart, EventAbort, EventReverse} {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", Fencing, AtSource, k)
	}
	b.WriteString("```\n")
	return b.String()
}
