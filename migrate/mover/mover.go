package mover

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Control is the record of every migration, as the leader of control's log has it. Its methods may be called concurrently.
type Control interface {
	// Record returns a migration, and false for one that is not known.
	Record(id cell.MigrationID) (migrate.Record, bool)
	// Live returns the migrations that have not ended.
	Live() []migrate.Record
	// Changed returns a channel that is closed once there is something newer than Record and Live return after the call.
	Changed() <-chan struct{}
	// Propose adds an event to a migration that is at the generation, and returns its record then. Any error may mean that the event was added all the
	// same: Record says.
	Propose(ctx context.Context, id cell.MigrationID, generation uint64, e migrate.Event) (migrate.Record, error)
	// Gates returns what control proves of a migration now: above all that the target has room.
	Gates(ctx context.Context, r migrate.Record) []migrate.Gate
	// Promise returns what the target is to be told of a migration's tenant and of its organization, which is nil where there is none.
	Promise(r migrate.Record) (*fairleadv1.TenantPromise, *fairleadv1.OrganizationPromise, error)
}

// Cells is the way to the cells.
type Cells interface {
	// Lanes returns the client of a cell's leader. It waits for nobody.
	Lanes(id cell.ID) fairleadv1connect.LaneServiceClient
}

// Config is how a mover behaves. Control and Cells are required.
type Config struct {
	Control Control
	Cells   Cells
	// Log receives what the mover does. Default [slog.Default].
	Log *slog.Logger
	// Migrate says how migrations are driven. Zero fields have their defaults.
	Migrate migrate.Config
	// ActiveMax is how many migrations may be on their way to the cut-over at a time, and ActiveByCell how many of them may have a cell at either end.
	// The others are declared and wait, those of the highest priority being next. Default [migrate.ActiveMax] and [migrate.ActiveByCell].
	ActiveMax, ActiveByCell int
	// CallMax bounds a call to a cell. Default 5 s. While a lane takes nothing, calls end in time for it to be opened again.
	CallMax time.Duration
	// Fail is called before and after each effect is carried out, with its name; when it returns an error the driver ends there as if its process had. It is
	// for tests. Default: nil.
	Fail func(ctx context.Context, r migrate.Record, point string) error
}

const callMaxDefault = 5 * time.Second

// Mover drives migrations while this process leads control. Its zero value is not usable: see [New].
type Mover struct {
	cfg Config
}

// New returns a mover. It returns an error when something that is required is missing.
func New(cfg Config) (*Mover, error) {
	if cfg.Control == nil || cfg.Cells == nil {
		return nil, errors.New("mover: control and cells are both required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.ActiveMax <= 0 {
		cfg.ActiveMax = migrate.ActiveMax
	}
	if cfg.ActiveByCell <= 0 {
		cfg.ActiveByCell = migrate.ActiveByCell
	}
	if cfg.CallMax <= 0 {
		cfg.CallMax = callMaxDefault
	}
	cfg.Migrate = cfg.Migrate.WithDefaults()
	return &Mover{cfg: cfg}, nil
}

// gatherDelay is between a change of control's record and the look for migrations that nobody drives.
const gatherDelay = 20 * time.Millisecond

// Run drives every live migration until ctx ends, which it does when this process stops leading. It returns ctx's cause, once every driver has
// ended. It may be run again, but not twice at a time.
func (m *Mover) Run(ctx context.Context) error {
	var (
		drivers sync.WaitGroup
		turns   = newTurns(m.cfg.ActiveMax, m.cfg.ActiveByCell)
		running = make(map[cell.MigrationID]*driver)
	)
	defer drivers.Wait()
	for {
		changed := m.cfg.Control.Changed()
		maps.DeleteFunc(running, func(_ cell.MigrationID, d *driver) bool { return d.ended() })
		for _, r := range m.cfg.Control.Live() {
			if running[r.ID] != nil {
				continue
			}
			d := newDriver(m.cfg, turns, r.ID)
			running[r.ID] = d
			drivers.Go(func() { d.run(ctx) })
		}
		select {
		case <-changed:
			if err := pause(ctx, gatherDelay); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
