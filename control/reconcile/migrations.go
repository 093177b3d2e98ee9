package reconcile

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

// Bounds of the migrations that control begins by itself.
const (
	// EvacuationsMax bounds the migrations out of a cell that is evacuated which are not cut over yet. Its log lets one copy at a time; the others are
	// next. Where a tenant goes is decided when its turn is near, not when the first one goes.
	EvacuationsMax = 8
	// retryAfter is how long a tenant whose migration was given up waits until control moves it again. Why it was given up is in its record.
	retryAfter = 10 * time.Minute
	// Whales are looked for once a minute, or once in each hour of demand where that is shorter, and cells that are evacuated every ten seconds: both look
	// at every tenant. With nothing to remember when that was, it is done in the first seconds of each; steps are at most a second apart.
	whalesEvery, evacuationsEvery = time.Minute, 10 * time.Second
	lookFor                       = 3 * time.Second
)

// Whales says what the loop does about tenants that are too large for a pool.
type Whales struct {
	// Auto lets it move them, one at a time, to open dedicated cells that are theirs and empty. False: they are proposed in placement's plan only.
	Auto bool
	// Options say how. Those of [migrate.DefaultOptions].
	Options migrate.Options
}

// WithHour returns the configuration for hours of demand of another length. Where they are shorter than real ones nobody is there to wait: a tenant stays where
// it came to for as many of them as make a whale, and not for a day; and a whale is watched after its switch for as long as a tenant of a cell that is
// evacuated.
func (c Config) WithHour(hour placement.HourLength) Config {
	c.Placement.Hour = hour
	if hour.Length() < placement.HourMax.Length() {
		c.Placement.CoolDown = min(c.Placement.CoolDown, time.Duration(c.Placement.WhaleHours)*hour.Length())
		c.Whales.Options.CanaryJobs, c.Whales.Options.CanaryTime = c.Evacuation.CanaryJobs, c.Evacuation.CanaryTime
	}
	return c
}

// evacuationOptions are the defaults, but that each tenant is watched for less long: they go one after the other, and the cell is to be empty soon.
func evacuationOptions() migrate.Options {
	o := migrate.DefaultOptions()
	o.CanaryJobs, o.CanaryTime, o.RollbackWindow = 10, 2*time.Second, time.Hour
	return o
}

// Pending returns the moves that count: every migration that has not ended, those that began in the present period, and what the leader has seen. A
// tenant that is moving counts at both ends until that has ended: at the target it is to come, and the source is to be able to take it back.
func Pending(v state.View, o Observed, now cell.Instant, cfg Config) []placement.Move {
	moves := slices.Clone(o.Pending)
	for m := range v.LiveMigrations() {
		moves = append(moves, moveOf(v, m))
	}
	for m := range v.Migrations(0) {
		if now.Sub(m.Created) >= cfg.Placement.MovePeriod {
			break // the newest come first
		}
		if m.Done() {
			moves = append(moves, moveOf(v, m))
		}
	}
	return moves
}

func moveOf(v state.View, m state.Migration) placement.Move {
	return placement.Move{
		Tenant: m.Tenant, Source: m.Source, Target: m.Target, Bytes: bytesOf(v.Profile(m.Tenant)), Since: m.Created, Ended: m.Ended,
	}
}

// StartMigration returns the command that declares a migration which carries a decision out, if nothing it was made on has changed since v. Everything in it
// may be changed before it is proposed.
func StartMigration(v state.View, d placement.Decision, now cell.Instant) command.StartMigration {
	homes := v.Homes(d.Tenant)
	return command.StartMigration{
		ID: MigrationID(v, d.Tenant), Tenant: d.Tenant, Source: d.Source, Target: d.Target, Reason: string(d.Reason), Actor: command.ActorControl,
		Why: line(d.Text), Options: migrate.DefaultOptions(), Order: migrate.DefaultOrder(), Expect: [2]cell.Epoch{homes[0].Epoch, homes[1].Epoch},
		TargetGeneration: d.Generation, Groups: d.Groups, Time: now,
	}
}

// MigrationID returns an id for a migration of a tenant that is decided on v: no other view has the same.
func MigrationID(v state.View, tenant cell.TenantID) cell.MigrationID {
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant)) // a hash takes everything
	return cell.MigrationID(fmt.Sprintf("mig-%x-%08x", v.Index(), h.Sum32()))
}

// Hand returns the tenant's hand of a cell's worker groups, for a target that nobody decided on.
func Hand(tenant cell.TenantID, c state.Cell) uint64 {
	return placement.Deal(placement.HandSeed(tenant, c.ID), c.Groups, c.Hand)
}

// line returns a text as a line of a migration.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= migrate.EvidenceMax {
		return text
	}
	cut := migrate.EvidenceMax
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// look reports whether it is time for what is done every so often.
func look(now cell.Instant, every time.Duration) bool {
	return time.Duration(int64(now)%int64(every)) < lookFor
}

// rested reports whether the tenant may be moved by control again: it is not moving, and was not for a while, unless that went well.
func rested(v state.View, tenant cell.TenantID, now cell.Instant, rest time.Duration) bool {
	m, ok := v.MigrationOf(tenant)
	return !ok || m.Done() && (m.State == migrate.Released || now.Sub(m.Ended) >= rest)
}

// whales begins to move one tenant that is too large for its pool to a dedicated cell that is its own and empty.
func whales(v state.View, o Observed, now cell.Instant, cfg Config) []Action {
	if !cfg.Whales.Auto || !look(now, min(whalesEvery, cfg.Placement.Hour.Length())) {
		return nil
	}
	for m := range v.LiveMigrations() {
		if m.Reason == string(placement.ReasonWhale) {
			return nil
		}
	}
	empty := emptyDedicated(v, o, now, cfg)
	if len(empty) == 0 {
		return nil
	}
	snapshot := Snapshot(v, o, now, cfg)
	if !slices.ContainsFunc(snapshot.Whales(), func(w placement.Whale) bool { return w.Verdict == placement.VerdictPropose }) {
		return nil
	}
	for _, d := range snapshot.Rebalance().Decisions {
		if d.Reason == placement.ReasonWhale && slices.Contains(empty, d.Target) && rested(v, d.Tenant, now, cfg.Placement.CoolDown) {
			start := StartMigration(v, d, now)
			start.Options = cfg.Whales.Options
			return []Action{Propose{start}}
		}
	}
	return nil
}

// emptyDedicated returns the open dedicated cells that nobody is in or moves to, or from, and that were heard of lately.
func emptyDedicated(v state.View, o Observed, now cell.Instant, cfg Config) []cell.ID {
	var empty []cell.ID
	for c := range v.Cells("") {
		if c.Kind == placement.KindDedicated && c.Phase == placement.PhaseOpen && !o.silent(v, c.ID, now, cfg) && len(v.TenantsIn(c.ID)) == 0 {
			empty = append(empty, c.ID)
		}
	}
	return empty
}

// evacuates begins to move tenants of the cells that are marked.
func evacuates(v state.View, o Observed, now cell.Instant, cfg Config) []Action {
	if !look(now, evacuationsEvery) {
		return nil
	}
	var actions []Action
	for c := range v.Cells("") {
		if !c.Evacuating {
			continue
		}
		for _, start := range Evacuations(v, o, now, cfg, c.ID) {
			actions = append(actions, Propose{start})
		}
	}
	return actions
}

// Evacuations returns the migrations that are to begin now so that a cell becomes empty, the largest tenant's first: as many as have room beside those that
// are under way. Tenants that no other cell can take, and those whose migration was given up a moment ago, are left for later.
func Evacuations(v state.View, o Observed, now cell.Instant, cfg Config, id cell.ID) []command.StartMigration {
	home, _ := v.Cell(id)
	room := EvacuationsMax
	for m := range v.LiveMigrations() {
		if m.Source == id && m.State != migrate.CutOver && m.State != migrate.Draining {
			room--
		}
	}
	room = min(room, state.MigrationsLiveMax-v.LiveMigrationsCount())
	if room <= 0 || home.Tenants == 0 {
		return nil
	}
	plan, err := Snapshot(v, o, now, cfg).Evacuate(id)
	if err != nil { // there is no such cell
		return nil
	}
	var starts []command.StartMigration
	for _, d := range plan.Decisions {
		if len(starts) == room {
			break
		}
		if d.Target == "" || !rested(v, d.Tenant, now, retryAfter) {
			continue
		}
		start := StartMigration(v, d, now)
		start.Options = cfg.Evacuation
		starts = append(starts, start)
	}
	return starts
}
