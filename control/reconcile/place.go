package reconcile

import (
	"hash/fnv"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
)

// candidatesMax bounds the tenants without a home that a step chooses from.
const candidatesMax = 10_000

// places decides where tenants without a home go. It looks at every tenant's demand, and so only when there is one to place and a cell to place it in.
func places(v state.View, o Observed, now cell.Instant, cfg Config) []Action {
	cells, mark := cellsOf(v, o, now, cfg)
	if !slices.ContainsFunc(cells, func(c placement.Cell) bool { return c.Phase == placement.PhaseOpen }) {
		return nil
	}
	due := window(dueTenants(v, o, now, cfg, mark), placesMax, now)
	if len(due) == 0 {
		return nil
	}
	tenants := placedTenants(v)
	for _, t := range due {
		tenants = append(tenants, TenantOf(v, t))
	}
	var actions []Action
	for _, d := range placement.NewSnapshot(cfg.Placement, now, cells, tenants, Pending(v, o, now, cfg)).PlaceAll().Decisions {
		if d.Target == "" {
			actions = append(actions, Unplaceable{d.Tenant, Tried{now, mark}, d})
			continue
		}
		actions = append(actions, Propose{Assign(v, d, now)})
	}
	return actions
}

// dueTenants returns the tenants without a home that were not tried lately, or not with these cells, or not with these rules.
func dueTenants(v state.View, o Observed, now cell.Instant, cfg Config, mark uint64) []state.Tenant {
	var due []state.Tenant
	for t := range v.Unplaced("") {
		tried, ok := o.Tried[t.ID()]
		if ok && tried.Cells == mark && now.Sub(tried.At) < cfg.RetryAfter && t.Updated <= tried.At {
			continue
		}
		if due = append(due, t); len(due) == candidatesMax {
			break
		}
	}
	return due
}

// placedTenants returns the tenants that have a home. That a tenant has none yet makes no room for it.
func placedTenants(v state.View) []placement.Tenant {
	var tenants []placement.Tenant
	for t := range v.Tenants("") {
		if p := TenantOf(v, t); p.Home != "" {
			tenants = append(tenants, p)
		}
	}
	return tenants
}

// SnapshotOf returns the state as placement sees it: every cell, every tenant and every migration, whatever was heard of them.
func SnapshotOf(v state.View, cfg placement.Config, now cell.Instant) *placement.Snapshot {
	var cells []placement.Cell
	for c := range v.Cells("") {
		cells = append(cells, CellOf(c))
	}
	return placement.NewSnapshot(cfg, now, cells, tenantsOf(v), Pending(v, Observed{}, now, Config{Placement: cfg}))
}

// Snapshot is [SnapshotOf] with what the leader has heard: cells that nobody was heard of lately take no tenants, and moves under way count.
func Snapshot(v state.View, o Observed, now cell.Instant, cfg Config) *placement.Snapshot {
	cells, _ := cellsOf(v, o, now, cfg)
	return placement.NewSnapshot(cfg.Placement, now, cells, tenantsOf(v), Pending(v, o, now, cfg))
}

func tenantsOf(v state.View) []placement.Tenant {
	var tenants []placement.Tenant
	for t := range v.Tenants("") {
		tenants = append(tenants, TenantOf(v, t))
	}
	return tenants
}

// cellsOf returns the cells, of which those that nobody was heard of lately are cordoned, and a mark that changes with any that takes tenants.
func cellsOf(v state.View, o Observed, now cell.Instant, cfg Config) (cells []placement.Cell, mark uint64) {
	h := fnv.New64a()
	for c := range v.Cells("") {
		p := CellOf(c)
		if p.Phase == placement.PhaseOpen && o.silent(v, c.ID, now, cfg) {
			p.Phase = placement.PhaseCordoned
		}
		if cells = append(cells, p); p.Phase == placement.PhaseOpen {
			// A hash takes everything.
			_, _ = h.Write([]byte(string(c.ID) + " " + strconv.FormatUint(c.Generation, 10) + "\n"))
		}
	}
	return cells, h.Sum64()
}

// CellOf returns the cell as placement sees it.
func CellOf(c state.Cell) placement.Cell {
	return placement.Cell{
		ID: c.ID, Kind: c.Kind, Phase: c.Phase, Labels: c.Labels, Capacity: c.Capacity, Replicas: c.Replicas, Groups: c.Groups, Hand: c.Hand,
		Generation: c.Generation,
	}
}

// TenantOf returns the tenant as placement sees it. One that is moving is at home in the source until that has ended; [Pending] has where it goes.
func TenantOf(v state.View, t state.Tenant) placement.Tenant {
	p := placement.Tenant{
		ID: t.ID(), Organization: t.Policy.Organization, Rules: t.Rules, Profile: v.Profile(t.ID()),
		Reserved: t.Policy.Reservation[0] + t.Policy.Reservation[1],
	}
	of := v.Homes(t.ID())
	p.Home, p.Since = of[0].Cell, max(of[0].Since, of[1].Since)
	if m, ok := v.MigrationOf(t.ID()); ok && !m.Done() {
		p.Home = m.Source
	}
	p.Bytes = bytesOf(p.Profile)
	return p
}

// bytesOf returns what a tenant had when it was measured last.
func bytesOf(p placement.Profile) int64 {
	latest := placement.HourSample{}
	for _, h := range p.Hours {
		if h.Hour > latest.Hour {
			latest = h
		}
	}
	return max(latest.Average.Bytes, latest.P95.Bytes)
}

// Assign returns the command that carries a decision out, if nothing it was made on has changed since v.
func Assign(v state.View, d placement.Decision, now cell.Instant) command.Assign {
	of := v.Homes(d.Tenant)
	return command.Assign{
		Tenant: d.Tenant, Cell: d.Target, Expect: max(of[0].Epoch, of[1].Epoch), CellGeneration: d.Generation, Groups: d.Groups, Decision: DecisionText(d), Time: now,
	}
}

// DecisionText returns the decision as people read it, and no more of it than a command may hold.
func DecisionText(d placement.Decision) string {
	text := d.String()
	if len(text) <= command.DecisionBytesMax {
		return text
	}
	const more = "\n..."
	cut := command.DecisionBytesMax - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
