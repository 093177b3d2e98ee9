package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// pollRoutes is how often a request that waits looks at the routes: a tenant may just have been given a cell.
const pollRoutes = 100 * time.Millisecond

// Forwarder sends what the door has let in to the agent that serves it: the leader of the tenant's cell, or of control. Its methods may be
// called concurrently.
//
// It repeats what was certainly not done: the agent was not reached, or said that it does not lead. It repeats what has no side effect. All
// else whose answer is lost ends as unknown. Each cell, and control, has its own connections, bounds and probes, so that one that hangs
// holds up nobody else's tenants.
type Forwarder struct {
	cfg    ForwardConfig
	log    *slog.Logger
	errors *connect.ErrorWriter
	calls  map[string]method
	merge  map[string]http.Handler // of procedures whose answers may have to be put together
	done   chan struct{}           // closed by Close
	probes sync.WaitGroup          // of upstreams; added to with spawning held

	waiting waiting       // whose lanes move
	turn    atomic.Uint64 // which of a tenant's two homes is asked first

	mu        sync.Mutex            // taken before an upstream's
	upstreams map[cell.ID]*upstream // "" for control
	lost      int                   // requests whose tenant has no cell yet

	spawning sync.Mutex // innermost: taken with an upstream's held
	closed   bool
}

// method is how a procedure is forwarded.
type method struct {
	service      string
	clientStream bool // the request is a stream: it is not held, so that it cannot be repeated
	serverStream bool // the answer is passed on as it comes
	safe         bool // without a side effect
}

// NewForwarder returns a forwarder. It returns what [ForwardConfig.Validate] does. Close ends it.
func NewForwarder(cfg ForwardConfig) (*Forwarder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Forwarder{cfg: cfg, log: cfg.Log, errors: connect.NewErrorWriter(), upstreams: map[cell.ID]*upstream{}, calls: methods(), done: make(chan struct{})}
	if f.log == nil {
		f.log = slog.Default()
	}
	f.waiting = waiting{cfg: &f.cfg, tenants: map[cell.TenantID]share{}}
	f.merge = mergers()
	return f, nil
}

// methods reads from the schema how each procedure of the table that is not internal is forwarded.
func methods() map[string]method {
	out := map[string]method{}
	protoregistry.GlobalFiles.RangeFilesByPackage("fairlead.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				procedure := "/" + string(s.FullName()) + "/" + string(m.Name())
				if n, ok := permissions[procedure]; !ok || n.internal {
					continue
				}
				options, ok := m.Options().(*descriptorpb.MethodOptions)
				out[procedure] = method{
					service: string(s.FullName()), clientStream: m.IsStreamingClient(), serverStream: m.IsStreamingServer(),
					safe: ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
				}
			}
		}
		return true
	})
	return out
}

// Mounts returns every service that is forwarded, for [Mux].
func (f *Forwarder) Mounts() []Mount {
	seen := map[string]bool{}
	var out []Mount
	for _, m := range f.calls {
		if !seen[m.service] {
			seen[m.service] = true
			out = append(out, Mount{Path: "/" + m.service + "/", Handler: f})
		}
	}
	slices.SortFunc(out, func(a, b Mount) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// spawn runs the probes of an upstream, unless Close was called. They outlive the request whose context it is, which only began them.
func (f *Forwarder) spawn(ctx context.Context, run func(context.Context)) {
	f.spawning.Lock()
	defer f.spawning.Unlock()
	if !f.closed {
		f.probes.Go(func() { run(context.WithoutCancel(ctx)) })
	}
}

// Close ends the probes and refuses what comes. Requests that are under way go on: whoever serves them ends those.
func (f *Forwarder) Close() {
	f.spawning.Lock()
	if !f.closed {
		f.closed = true
		close(f.done)
	}
	f.spawning.Unlock()
	f.probes.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.upstreams {
		u.close()
	}
}

// ServeHTTP implements [http.Handler]. It must stand behind [Gateway.Handler].
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f.serve(w, r); err != nil {
		if r.Context().Err() != nil {
			return // nobody listens
		}
		writeError(f.errors, f.log, w, r, err)
	}
}

// serve answers r, or returns the refusal.
func (f *Forwarder) serve(w http.ResponseWriter, r *http.Request) error {
	m, ok := f.calls[r.URL.Path]
	if !ok {
		return refuseProcedure(r.URL.Path)
	}
	caller, _ := CallerFrom(r.Context()) // nobody for what is open
	ctx, cancel := withTimeoutOf(r)
	defer cancel()
	now := time.Now()
	c := &call{method: m, caller: caller, request: r, began: now, came: now}
	u, err := f.find(ctx, c)
	if err != nil {
		return err
	}
	if c.header, err = outward(r, caller); err != nil {
		return err
	}
	if !m.clientStream {
		c.body, err = u.readBody(w, r, caller.Tenant)
		c.account = u
		defer c.drop()
		if err != nil {
			return err
		}
	}
	c.follows = follows(c)
	if !c.follows {
		return u.once(ctx, c, w)
	}
	return f.follow(ctx, c, u, w)
}

// once sends c to u as one of its requests. The caller has its answer afterwards, unless c has it.
func (u *upstream) once(ctx context.Context, c *call, w http.ResponseWriter) error {
	if err := u.enter(ctx, c.caller.Tenant); err != nil {
		return err
	}
	defer u.leave(c.caller.Tenant)
	return u.forward(ctx, c, w)
}

// call is one request on its way.
type call struct {
	method
	caller  cell.Caller
	request *http.Request
	header  http.Header // as it goes on
	body    []byte      // when it is no stream
	began   time.Time   // when it was first tried where it is now
	came    time.Time   // when it came

	account *upstream   // that body counts at; nil for none
	follows bool        // an answer that speaks of lanes is not the caller's
	holds   bool        // no answer is the caller's
	answer  *keptAnswer // that is not the caller's
}

// drop makes the body count nowhere.
func (c *call) drop() {
	if c.account != nil {
		c.account.release(c.caller.Tenant, int64(cap(c.body)))
		c.account = nil
	}
}

// move makes the body count at u, or returns the refusal; then it counts where it did.
func (c *call) move(u *upstream) error {
	if c.account == u {
		return nil
	}
	if err := u.reserve(c.caller.Tenant, int64(cap(c.body))); err != nil {
		return err
	}
	c.drop()
	c.account = u
	return nil
}

// control is where what is no cell's goes.
const control cell.ID = ""

// find returns the upstream of c. A tenant that has no cell is waited for: it may have been made a moment ago.
func (f *Forwarder) find(ctx context.Context, c *call) (*upstream, error) {
	parked := false
	defer func() {
		if parked {
			f.mu.Lock()
			f.lost--
			f.mu.Unlock()
		}
	}()
	for {
		table := f.cfg.Routes()
		id, err := locate(table, c)
		if err == nil {
			return f.upstream(table, id)
		}
		if !errors.Is(err, errUnplaced) {
			return nil, err
		}
		if time.Since(c.began) >= f.cfg.ParkMax {
			return nil, refuseUnplaced(c.caller.Tenant)
		}
		if !parked {
			f.mu.Lock()
			parked = f.lost < f.cfg.ParkedPerCellMax
			if parked {
				f.lost++
			}
			f.mu.Unlock()
			if !parked {
				return nil, refuseUnplaced(c.caller.Tenant)
			}
		}
		if !pause(ctx, pollRoutes) {
			return nil, refuseUnplaced(c.caller.Tenant)
		}
	}
}

// errUnplaced is returned when a tenant has no cell.
var errUnplaced = errors.New("gateway: the tenant has no cell")

// locate returns which cell c goes to, or control.
func locate(t *route.Table, c *call) (cell.ID, error) {
	switch c.service {
	case fairleadv1connect.JobServiceName:
		return home(t, c.caller.Tenant)
	case fairleadv1connect.WorkerServiceName, fairleadv1connect.StatusServiceName:
	default:
		return control, nil
	}
	named := cell.ID(c.request.Header.Get(HeaderCell))
	switch {
	case c.caller.Tenant != "":
		id, err := home(t, c.caller.Tenant)
		if err == nil && named != "" && named != id {
			l, _ := t.Lane(c.caller.Tenant)
			if batch, _ := l.Home(cell.ClassBatch); named != batch {
				return "", refuseForeignCell(c.caller, named)
			}
		}
		return id, err
	case named != "":
		if _, ok := t.Cell(named); !ok {
			return "", refuseUnknownCell(t, named)
		}
		return named, nil
	case len(t.Cells()) == 1:
		return t.Cells()[0].Name, nil
	default:
		return "", refuseNoCell(t)
	}
}

// home returns where a tenant's requests go first: the home of its interactive lane. Where its batch lane is elsewhere, that cell says so.
func home(t *route.Table, tenant cell.TenantID) (cell.ID, error) {
	l, ok := t.Lane(tenant)
	if !ok {
		return "", errUnplaced
	}
	if _, ok := t.Cell(l.Cell); !ok {
		return "", errUnplaced // control has told of the lane and not of its cell yet
	}
	return l.Cell, nil
}

// upstream returns what is known of a cell, or of control.
func (f *Forwarder) upstream(table *route.Table, id cell.ID) (*upstream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		return nil, refuseClosing()
	default:
	}
	if u, ok := f.upstreams[id]; ok {
		return u, nil
	}
	// Cells come and go over a year, and this map must not grow with them.
	for old, u := range f.upstreams {
		if _, there := table.Cell(old); !there && old != control && u.idle() {
			u.close()
			delete(f.upstreams, old)
		}
	}
	u := newUpstream(f, id)
	f.upstreams[id] = u
	return u, nil
}

// errDeadline ends what the caller does not wait for any longer.
var errDeadline = errors.New("gateway: the caller's deadline has passed")

// withTimeoutOf returns r's context with the deadline that its headers tell, in either protocol.
func withTimeoutOf(r *http.Request) (context.Context, context.CancelFunc) {
	d, ok := timeoutOf(r.Header)
	if !ok {
		return context.WithCancel(r.Context())
	}
	return context.WithTimeoutCause(r.Context(), d, errDeadline)
}

// bodyReadMax bounds how long a caller takes to send what is held for it.
const bodyReadMax = 30 * time.Second

// bodyChunk is what of a body is asked for at a time, at first.
const bodyChunk = 4 << 10

// readBody reads the whole body of r, as it comes, within the bounds of the cell and of the tenant. What it has reserved is the capacity of
// what it returns, also with an error.
func (u *upstream) readBody(w http.ResponseWriter, r *http.Request, tenant cell.TenantID) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Now().Add(bodyReadMax)) == nil {
		defer func() { _ = control.SetReadDeadline(time.Time{}) }() // it could be set
	}
	return u.fill(r, tenant)
}

// fill grows by doubling, and reserves before it grows.
func (u *upstream) fill(r *http.Request, tenant cell.TenantID) ([]byte, error) {
	var data []byte
	for {
		if len(data) == cap(data) {
			grown := make([]byte, len(data), max(bodyChunk, 2*cap(data)))
			if err := u.reserve(tenant, int64(cap(grown)-cap(data))); err != nil {
				return data, err
			}
			copy(grown, data)
			data = grown
		}
		n, err := r.Body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case isEOF(err):
			return data, nil
		case err != nil:
			return data, refuseBody(err)
		}
	}
}
