package localcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The cells and the tenants of the cluster with a whale.
const (
	poolCell  = "pool"
	whaleCell = "whale-home"
	whaleName = "whale"
)

// whaleBlueprint is a pool, and a cell that is nobody's yet.
func whaleBlueprint() blueprint {
	return blueprint{
		title:   "A whale in a pool, on this machine: 3 control agents, the cell pool, the empty cell whale-home, and a gateway.",
		control: []string{"--whales-auto", "--demand-hour", demandHour.String()},
		agents: []agent{
			{Name: "control-1", Role: roleControl},
			{Name: "control-2", Role: roleControl},
			{Name: "control-3", Role: roleControl},
			{Name: "pool-1", Role: roleCell, Cell: poolCell},
			{Name: "whale-home-1", Role: roleCell, Cell: whaleCell},
			{Name: "gateway-1", Role: roleGateway},
		},
		cells:   []cellPlan{{name: poolCell}, {name: whaleCell, dedicated: true}},
		tenants: []Tenant{{Name: whaleName}, {Name: "acme"}, {Name: "globex"}, {Name: "initech"}},
	}
}

// The work of the demonstration: little enough for two processors that run all of it.
const (
	whaleService    = 200 * time.Millisecond // of each job
	poolSlots       = 8
	whaleSlots      = 12
	neighbourPace   = 250 * time.Millisecond // between two jobs of a neighbour
	whalePace       = 100 * time.Millisecond // between two of the whale, of one class and the other in turn
	readPace        = 250 * time.Millisecond // between two looks of the whale at a job of its own
	floodBatch      = 1000
	floodUrgent     = 500
	floodAgainBatch = 300 // once it is at home
	floodAgainQuick = 150
)

// The pace of the demonstration.
const (
	quietTime  = 8 * time.Second  // before the whale
	afterTime  = 10 * time.Second // once it has moved
	detectMax  = time.Minute      // until control has begun to move the whale: five times as long as it takes where nothing is in the way
	detectPoll = time.Second      // between two looks at what placement says
	moveMax    = time.Minute
	movePoll   = 100 * time.Millisecond
	whaleDrain = time.Minute // far more than what is left takes
	verifyPoll = 500 * time.Millisecond
)

// capacityPerSlot is what a cell is said to have been tested to carry for each slot of its worker. It is more than a slot can do: in hours as short as these
// a p95 is of windows shorter than a job, where jobs that begin together look like many more, and while its classes are in two cells a tenant is
// counted with the largest that it had in each.
const capacityPerSlot = 4

// demandHour is how long an hour of measured demand is: nobody watches for six real ones.
const demandHour = 3 * time.Second

// RunWhale runs the demonstration of a tenant that floods the cell that it shares and is moved to one of its own while it runs. It is as [Run] is.
func RunWhale(ctx context.Context, c Config, screen Screen, report func(*WhaleReport) error) error {
	return stage(ctx, c, screen, whaleBlueprint(), func(ctx context.Context, cluster *Cluster, b *board) (*WhaleReport, error) {
		w := &whaleShow{cluster: cluster, board: b, ledger: newLedger(cluster.plan.tenants)}
		r, err := w.run(ctx)
		if err == nil {
			r.keep, r.cluster = c.Keep, cluster
		}
		return r, err
	}, report)
}

// whaleShow is one run of the demonstration.
type whaleShow struct {
	cluster    *Cluster
	board      *board
	ledger     *ledger
	tenants    []*applicant // the whale first
	cells      fairleadv1connect.CellServiceClient
	placement  fairleadv1connect.PlacementServiceClient
	migrations fairleadv1connect.MigrationServiceClient
}

func (w *whaleShow) run(ctx context.Context) (*WhaleReport, error) {
	began := time.Now()
	if err := w.cluster.serve(ctx, w.board); err != nil {
		return nil, err
	}
	if err := w.furnish(ctx); err != nil {
		return nil, err
	}
	r := &WhaleReport{formed: time.Since(began)}
	w.board.sayf("the cluster serves, %s after its first process", seconds(r.formed))
	for _, a := range w.tenants {
		defer a.client.Close()
	}
	if err := w.underLoad(ctx, r); err != nil {
		return nil, err
	}
	r.longest = w.ledger.longest(whaleTenant)
	return r, w.verify(ctx, r)
}

// furnish gives both cells workers and the capacity that they were tested for, one of them to the whale, and each tenant an application.
func (w *whaleShow) furnish(ctx context.Context) error {
	conn := w.cluster.conn
	w.cells = fairleadv1connect.NewCellServiceClient(conn.HTTP, conn.URL, conn.Options...)
	w.placement = fairleadv1connect.NewPlacementServiceClient(conn.HTTP, conn.URL, conn.Options...)
	w.migrations = fairleadv1connect.NewMigrationServiceClient(conn.HTTP, conn.URL, conn.Options...)
	if err := w.atHome(ctx); err != nil {
		return err
	}
	for name, slots := range map[string]int{poolCell: poolSlots, whaleCell: whaleSlots} { // order-free: each by itself
		is := &fairleadv1.UpdateCellRequest{Name: name, Capacity: &fairleadv1.Load{Compute: capacityPerSlot * float64(slots), Jobs: 100_000, Bytes: 1 << 30}}
		if name == whaleCell { // control moves a whale to a cell that is its own; to buy one is not for it to decide
			is.SetLabels, is.Labels = true, map[string]string{placement.LabelTenant: whaleName}
		}
		if err := w.call(ctx, func(ctx context.Context) error {
			_, err := w.cells.UpdateCell(ctx, is)
			return err
		}); err != nil {
			return fmt.Errorf("what %s is for: %w", name, err)
		}
		if err := w.work(ctx, name, slots); err != nil {
			return err
		}
	}
	for i, t := range w.cluster.plan.tenants {
		a, err := newApplicant(w.cluster, w.ledger, i, t)
		if err != nil {
			return err
		}
		w.tenants = append(w.tenants, a)
		w.board.follows(a)
	}
	return nil
}

// atHome looks whether the whale is in the pool: in a folder that was used before it has moved.
func (w *whaleShow) atHome(ctx context.Context) error {
	var resp *fairleadv1.ShowPlacementResponse
	err := w.call(ctx, func(ctx context.Context) (err error) {
		resp, err = w.placement.ShowPlacement(ctx, &fairleadv1.ShowPlacementRequest{Tenant: whaleName})
		return err
	})
	if err != nil {
		return fmt.Errorf("where the whale is: %w", err)
	}
	for _, as := range resp.GetAssignments() {
		if as.GetCell() != poolCell {
			return fmt.Errorf("the whale is in %s already: give a new folder with --dir", as.GetCell())
		}
	}
	return nil
}

// call bounds a question to the operator's side, and asks it again while nobody answers.
func (w *whaleShow) call(ctx context.Context, ask func(context.Context) error) error {
	const tries = 5
	var err error
	for range tries {
		once, cancel := context.WithTimeout(ctx, callTimeout)
		err = ask(once)
		cancel()
		if err == nil || !client.Transient(client.AsError(err)) {
			return err
		}
		if cause := client.Pause(ctx, returnPoll); cause != nil {
			return cause
		}
	}
	return err
}

// work starts a worker for a cell. It is in this process, so that when a job began, and how often it ran, is known to the microsecond.
func (w *whaleShow) work(ctx context.Context, cellName string, slots int) error {
	reg := worker.NewRegistry()
	if err := reg.Add(Operation, w.ledger.handler()); err != nil {
		return err
	}
	settings, err := w.cluster.settings(w.cluster.KeyFile("worker"))
	if err != nil {
		return err
	}
	one, err := worker.New(worker.Config{
		Client: settings, Name: "worker-" + cellName, Cell: cellName, Slots: slots, DrainTimeout: -1, StopGrace: callTimeout, Logger: slog.New(slog.DiscardHandler),
	}, reg)
	if err != nil {
		return err
	}
	w.cluster.help(ctx, func(ctx context.Context) {
		if err := one.Run(ctx); err != nil && ctx.Err() == nil {
			w.cluster.abort(fmt.Errorf("the worker of %s: %w", cellName, err))
		}
	})
	return nil
}

// underLoad lets all tenants submit while the whale comes, is moved, and goes on where it is.
func (w *whaleShow) underLoad(ctx context.Context, r *WhaleReport) error {
	pace, slow := context.WithCancel(ctx)
	watch, leave := context.WithCancel(ctx)
	var submitting, watching sync.WaitGroup
	defer watching.Wait()
	defer leave()
	defer submitting.Wait()
	defer slow()
	watching.Go(func() { w.cluster.watchLeaders(watch, w.board) })
	for _, a := range w.tenants[1:] {
		submitting.Go(func() { a.steadily(ctx, pace, neighbourPace, cell.ClassInteractive) })
	}
	w.board.sayf("three neighbours in %s submit %d jobs a second each", poolCell, time.Second/neighbourPace)
	if err := client.Pause(ctx, quietTime); err != nil {
		return err
	}
	whale := w.tenants[whaleTenant]
	w.ledger.mark(markFlood)
	submitting.Go(func() { whale.flood(ctx, cell.ClassBatch, floodBatch) })
	submitting.Go(func() { whale.flood(ctx, cell.ClassInteractive, floodUrgent) })
	submitting.Go(func() { whale.steadily(ctx, pace, whalePace, cell.ClassInteractive, cell.ClassBatch) })
	submitting.Go(func() { whale.read(ctx, pace) })
	w.board.sayf("an hour of measured demand is %v here, and 1h in a cluster: so a whale is found while somebody watches", demandHour)
	w.board.sayf("the whale submits %d jobs at once, and goes on", floodBatch+floodUrgent)
	if err := w.move(ctx, r); err != nil {
		return err
	}
	w.ledger.mark(markMoved)
	submitting.Go(func() { whale.flood(ctx, cell.ClassBatch, floodAgainBatch) })
	submitting.Go(func() { whale.flood(ctx, cell.ClassInteractive, floodAgainQuick) })
	if err := client.Pause(ctx, afterTime); err != nil {
		return err
	}
	w.ledger.mark(markEnd)
	slow()
	w.board.sayf("no more jobs: waiting for what is open")
	submitting.Wait()
	return context.Cause(ctx)
}

// move waits until control has found the whale, and follows how it moves it. A migration that does not come to its end in time, or ends otherwise, is no
// error: the report says so.
func (w *whaleShow) move(ctx context.Context, r *WhaleReport) error {
	if err := w.detect(ctx, r); err != nil {
		return err
	}
	began := time.Now()
	err := w.follow(ctx, r)
	r.took = time.Since(began)
	return err
}

// errSlow is the cause when a migration takes too long.
var errSlow = fmt.Errorf("the migration has not come to its end within %v", moveMax)

// follow shows the migration until the whale is served by its own cell, the migration has ended otherwise, or the time is up.
func (w *whaleShow) follow(ctx context.Context, r *WhaleReport) error {
	ctx, cancel := context.WithTimeoutCause(ctx, moveMax, errSlow)
	defer cancel()
	told, blocked := "", ""
	for {
		m := r.migration
		w.board.draws(moveview.Lines(time.Now(), m))
		if change := moveview.Change(m); change != told {
			told = change
			w.board.sayf("migration: %s", moveview.Line(m))
		}
		if text, names := moveview.Blocked(m); names != blocked {
			if blocked = names; blocked != "" {
				w.board.sayf("not yet: %s", text)
			}
		}
		if moveview.Served(m) || moveview.Ended(m) {
			return nil
		}
		err := client.Pause(ctx, movePoll)
		if err == nil {
			err = w.call(ctx, func(ctx context.Context) error {
				resp, err := w.migrations.GetMigration(ctx, &fairleadv1.GetMigrationRequest{Id: m.GetId()})
				if err == nil {
					r.migration = resp.GetMigration()
				}
				return err
			})
		}
		if errors.Is(context.Cause(ctx), errSlow) {
			w.board.sayf("%s", errSlow.Error())
			return nil
		}
		if err != nil {
			return fmt.Errorf("following the migration: %w", err)
		}
	}
}

// verify waits until every accepted job has ended, and counts.
func (w *whaleShow) verify(ctx context.Context, r *WhaleReport) error {
	bound, cancel := context.WithTimeout(ctx, whaleDrain)
	defer cancel()
	for {
		missing := w.ledger.missing()
		if missing == 0 || bound.Err() != nil {
			listed, err := w.list(ctx)
			if err != nil {
				return err
			}
			r.count(w.ledger, listed)
			if r.figures.Lost == 0 || bound.Err() != nil {
				return nil
			}
		}
		if client.Pause(bound, verifyPoll) != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// listTries bounds the tries of a list: nothing moves any more when it is made.
const listTries = 5

// list returns every tenant's jobs, as often as a list has them.
func (w *whaleShow) list(ctx context.Context) ([]*fairleadv1.Job, error) {
	var all []*fairleadv1.Job
	for _, a := range w.tenants {
		var err error
		for range listTries {
			var jobs []*fairleadv1.Job
			if jobs, err = a.list(ctx); err == nil {
				all = append(all, jobs...)
				break
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the jobs of %s: %w", a.tenant.Name, err)
		}
	}
	return all, nil
}
