package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Source is where routes come from.
type Source interface {
	// Watch yields what the control agent says from index on, until it ends or ctx does; an error is the last thing it yields.
	Watch(ctx context.Context, agent route.Replica, index uint64) iter.Seq2[*fairleadv1.WatchRoutesResponse, error]
}

// RegistrySource returns the source that asks control agents over their RegistryService, by the client that dial returns. The client must
// refuse whoever is not a control agent. The name of an agent is empty where only its address is known.
func RegistrySource(dial func(agent route.Replica) fairleadv1connect.RegistryServiceClient) Source {
	return registrySource{dial: dial}
}

type registrySource struct {
	dial func(route.Replica) fairleadv1connect.RegistryServiceClient
}

// Watch implements [Source].
func (s registrySource) Watch(ctx context.Context, agent route.Replica, index uint64) iter.Seq2[*fairleadv1.WatchRoutesResponse, error] {
	return func(yield func(*fairleadv1.WatchRoutesResponse, error) bool) {
		stream, err := s.dial(agent).WatchRoutes(ctx, &fairleadv1.WatchRoutesRequest{Index: index})
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = stream.Close() }() // what it says of the end is in Err
		for stream.Receive() {
			if !yield(stream.Msg(), nil) {
				return
			}
		}
		if err := stream.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// The defaults of [WatchConfig], and the bounds of watching.
const (
	KeysStaleMaxDefault = time.Hour

	// silenceMax is how long a stream that should bring a heartbeat each second may bring nothing.
	silenceMax = 5 * time.Second
	// patience is how long control agents that are behind this gateway are left alone. One that lags has caught up by then, or another is
	// asked; when all are behind for longer, control was restored, and what it says is the truth now.
	patience = 30 * time.Second
	// saveEvery bounds how often the file is written for changes, and heardEvery when only the time of the last heartbeat is another.
	saveEvery  = time.Second
	heardEvery = time.Minute
	// clockSlack is how far a file may be in the future: what a clock may be set back by.
	clockSlack = 5 * time.Second

	watchDelayMin = 100 * time.Millisecond
	watchDelayMax = 2 * time.Second // a revoked key must die within 5 s of control's return
)

// WatchConfig says where routes come from and where they are kept.
type WatchConfig struct {
	// Source is whom to ask. Required.
	Source Source
	// Control is where control agents are to begin with: host and port of their API. Once control has told who they are, and in the
	// next process too, those are asked as well.
	Control []string
	// Cluster is the id of the cluster. A file of another is refused.
	Cluster string
	// Path is the file in which the routes are kept; nowhere when empty. Its directory must exist.
	Path string
	// KeysStaleMax is for how long keys are good after control was last heard of. Default 1 h.
	KeysStaleMax time.Duration
	// Log receives what an operator should know. Default [slog.Default].
	Log *slog.Logger
}

// Watcher keeps the routes of a gateway current. It is a [Directory]. Its methods may be called concurrently.
type Watcher struct {
	cfg WatchConfig
	log *slog.Logger

	mu      sync.Mutex
	table   *route.Table
	changed chan struct{} // closed when table is replaced
	heard   time.Time     // when control last said anything; zero for never
	behind  time.Time     // since when only agents that are behind answer; zero when one is not
	saved   *route.Table  // what the file holds; nil for nothing
	savedAt time.Time     // what it says of heard
}

// NewWatcher returns a watcher that begins with what the file holds. A file that is damaged, or another cluster's, is moved aside and
// reported, and the watcher begins with nothing. It returns an error when the config lacks something or the file cannot be read.
func NewWatcher(cfg WatchConfig) (*Watcher, error) {
	if cfg.Source == nil {
		return nil, errors.New("gateway: Source is nil: give where routes come from")
	}
	if cfg.KeysStaleMax < 0 {
		return nil, fmt.Errorf("gateway: KeysStaleMax is %v: give 0 for the default of %v", cfg.KeysStaleMax, KeysStaleMaxDefault)
	}
	cfg.KeysStaleMax = cmp.Or(cfg.KeysStaleMax, KeysStaleMaxDefault)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	w := &Watcher{cfg: cfg, log: cfg.Log, table: route.NewTable(), changed: make(chan struct{})}
	if err := w.load(); err != nil {
		return nil, err
	}
	return w, nil
}

// Table returns the present routes.
func (w *Watcher) Table() *route.Table {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table
}

// Changed returns a channel that is closed once the routes are others than [Watcher.Table] returned before the call.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// Heard returns when control last said anything, this process's file included; the zero time for never.
func (w *Watcher) Heard() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

// Lookup implements [Directory]. It refuses every key once control has not been heard of for [WatchConfig.KeysStaleMax].
func (w *Watcher) Lookup(hash [sha256.Size]byte) (cell.Caller, bool) {
	now := time.Now()
	w.mu.Lock()
	table, age := w.table, now.Sub(w.heard)
	w.mu.Unlock()
	if age > w.cfg.KeysStaleMax {
		return cell.Caller{}, false
	}
	return table.Lookup(route.Hash(hash), cell.InstantOf(now))
}

// Current reports whether a key that Lookup does not find may be called unknown: false until control was heard of, and once that is longer ago
// than [WatchConfig.KeysStaleMax].
func (w *Watcher) Current() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.heard) <= w.cfg.KeysStaleMax
}

// Run keeps the routes current until ctx ends. It asks one control agent at a time, and the next when that fails.
func (w *Watcher) Run(ctx context.Context) {
	saver := make(chan struct{})
	saving, stop := context.WithCancel(ctx)
	go func() {
		defer close(saver)
		w.keep(saving)
	}()
	defer func() {
		stop()
		<-saver
	}()
	for failures, turn := 0, rand.IntN(1<<16); ctx.Err() == nil; turn++ {
		agents := w.agents()
		if len(agents) > 0 {
			agent := agents[turn%len(agents)]
			heard, err := w.follow(ctx, agent)
			if ctx.Err() != nil {
				return
			}
			if heard {
				failures = 0
			}
			w.log.LogAttrs(ctx, slog.LevelInfo, "routes come from another control agent now", slog.String("left", agent.Address), slog.Any("error", err))
		}
		failures++
		if !pause(ctx, watchDelay(failures)) {
			return
		}
	}
}

// watchDelay is how long to wait after so many failures in a row: full jitter over a bound that doubles.
func watchDelay(failures int) time.Duration {
	bound := watchDelayMin
	for ; failures > 1 && bound < watchDelayMax; failures-- {
		bound *= 2
	}
	return rand.N(min(bound, watchDelayMax)) + time.Millisecond
}

// pause waits for d, and returns false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// agents returns whom to ask: the agents that control has named, and where it was to begin with.
func (w *Watcher) agents() []route.Replica {
	out := slices.Clone(w.Table().Control())
	for _, address := range w.cfg.Control {
		if !slices.ContainsFunc(out, func(r route.Replica) bool { return r.Address == address }) {
			out = append(out, route.Replica{Address: address})
		}
	}
	return out
}

// The ends of a stream that the agent did not make.
var (
	errSilent = errors.New("gateway: a control agent sent no heartbeat for a while")
	errBehind = errors.New("gateway: a control agent knows less than this gateway does")
)

// follow takes in what one agent says until it ends. It returns whether it said anything that could be taken in.
func (w *Watcher) follow(ctx context.Context, agent route.Replica) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silenceMax, func() { cancel(errSilent) })
	defer silence.Stop()
	defer w.abandon()
	for msg, err := range w.cfg.Source.Watch(ctx, agent, w.Table().Index()) {
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
				err = cause
			}
			return heard, err
		}
		silence.Reset(silenceMax)
		if err := w.take(updateOf(msg)); err != nil {
			return heard, err
		}
		heard = true
	}
	return heard, errors.New("gateway: the control agent ended the stream")
}

// take makes the next generation out of u. It returns errBehind when u comes from an agent that knows less than is known here, whose word
// would bring revoked keys back.
func (w *Watcher) take(u route.Update) error {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case u.Index >= w.table.Index():
		w.behind = time.Time{}
	case w.table.Beginning(): // it was let begin
	case w.behind.IsZero():
		w.behind = now
		return errBehind
	case now.Sub(w.behind) < patience || !u.Reset:
		return errBehind
	default:
		w.log.Warn("control begins anew at an earlier index: it was restored", "known", w.table.Index(), "now", u.Index)
	}
	w.heard = now
	next := w.table.Apply(u)
	if next != w.table {
		w.table = next
		close(w.changed)
		w.changed = make(chan struct{})
	}
	return nil
}

// abandon forgets half a beginning.
func (w *Watcher) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table = w.table.Abandon()
}

func updateOf(m *fairleadv1.WatchRoutesResponse) route.Update {
	u := route.Update{
		Index: m.GetIndex(), Reset: m.GetReset_(), Complete: m.GetComplete(), KeysRemoved: m.GetKeysRemoved(),
		Control: replicasOf(m.GetControl()), FeatureLevel: int(m.GetFeatureLevel()),
	}
	for _, k := range m.GetKeys() {
		if len(k.GetHash()) != len(route.Hash{}) {
			continue // of a scheme that this release does not know: nobody's secret has it
		}
		key := route.Key{
			Hash:   route.Hash(k.GetHash()),
			Caller: cell.Caller{Key: k.GetId(), Tenant: cell.TenantID(k.GetTenant())},
		}
		if k.GetExpireTime() != nil {
			key.Expires = cell.InstantOf(k.GetExpireTime().AsTime())
		}
		for _, p := range k.GetPermissions() {
			if p > 0 && p <= math.MaxUint8 {
				key.Caller.Permissions = append(key.Caller.Permissions, cell.Permission(p))
			}
		}
		for _, op := range k.GetOperations() {
			key.Caller.Operations = append(key.Caller.Operations, cell.Operation(op))
		}
		u.Keys = append(u.Keys, key)
	}
	for _, l := range m.GetLanes() {
		u.Lanes = append(u.Lanes, route.Lane{
			Tenant: cell.TenantID(l.GetTenant()), Cell: cell.ID(l.GetCell()), Epoch: cell.Epoch(l.GetEpoch()),
			BatchCell: cell.ID(l.GetBatchCell()), BatchEpoch: cell.Epoch(l.GetBatchEpoch()),
		})
	}
	for _, t := range m.GetTenantsRemoved() {
		u.TenantsRemoved = append(u.TenantsRemoved, cell.TenantID(t))
	}
	for _, c := range m.GetCells() {
		u.Cells = append(u.Cells, route.Cell{
			Name: cell.ID(c.GetName()), Phase: route.Phase(c.GetPhase()), Replicas: replicasOf(c.GetReplicas()), // the numbers are the same
		})
	}
	for _, c := range m.GetCellsRemoved() {
		u.CellsRemoved = append(u.CellsRemoved, cell.ID(c))
	}
	return u
}

func replicasOf(agents []*fairleadv1.Agent) []route.Replica {
	var out []route.Replica
	for _, a := range agents {
		out = append(out, route.Replica{Name: a.GetName(), Address: a.GetApiAddress()})
	}
	return out
}
