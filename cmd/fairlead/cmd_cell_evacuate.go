package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// evacuation looks at the migrations off a cell. The zero value sees none.
type evacuation struct {
	app     *app
	session *session
	cell    string
	seen    []*fairleadv1.Migration // by the last look
}

// look asks for the migrations that are under way. Without an answer those of the last look stay: the wait for the cell says what is wrong.
func (e *evacuation) look(ctx context.Context) {
	if e.session == nil {
		return
	}
	req := &fairleadv1.ListMigrationsRequest{Live: true, Cell: e.cell, PageSize: pageSizeMax}
	resp, err := call(ctx, e.session, "list the migrations of "+e.cell, e.session.migrations.ListMigrations, req)
	if err != nil {
		return
	}
	e.seen = nil
	for _, m := range resp.GetMigrations() {
		if m.GetSource() == e.cell {
			e.seen = append(e.seen, m)
		}
	}
}

// tell says which tenants are on their way, as the rest of a line.
func (e *evacuation) tell(ctx context.Context) string {
	e.look(ctx)
	var parts []string
	for _, m := range e.seen {
		text := output.Safe(m.GetTenant()) + " " + moveview.State(m.GetState())
		if m.GetHeld() != "" {
			text += ", held: " + output.Safe(m.GetHeld())
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return "; on their way: " + strings.Join(parts, "; ")
}

// draw returns what draws a bar for each migration; nil for the zero value.
func (e *evacuation) draw() func(context.Context) []string {
	if e.session == nil {
		return nil
	}
	return func(context.Context) []string {
		lines := make([]string, 0, len(e.seen))
		for _, m := range e.seen {
			steps := moveview.Steps(e.app.now(), m)
			line := fmt.Sprintf("  %-*s %s  %s", moveview.NameWidth, output.Cut(output.Safe(m.GetTenant()), moveview.NameWidth), moveview.Bar(moveview.Done(steps)), "to "+output.Safe(m.GetTarget())+", "+moveview.Line(m))
			lines = append(lines, line)
		}
		return lines
	}
}
