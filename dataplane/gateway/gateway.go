package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
)

// Directory knows the live keys.
type Directory interface {
	// Lookup returns whose key has the secret with this SHA-256. It returns false for a key that is unknown, revoked or expired. It is called
	// for every request and must not block; what it returns is not changed afterwards.
	Lookup(hash [sha256.Size]byte) (cell.Caller, bool)
	// A directory may also have Current() bool: while it returns false, a key that is not found is not called unknown.
}

// Gateway authenticates requests and bounds them. Its methods may be called concurrently.
type Gateway struct {
	cfg    Config
	dir    Directory
	log    *slog.Logger
	errors *connect.ErrorWriter

	mu       sync.Mutex
	inFlight map[string]int // by key id; no entry for none
	open     map[string]int // of open procedures that have a bound, by their name; no entry for none
}

// New returns the gateway that knows callers by dir. It returns what [Config.Validate] does.
func New(cfg Config, dir Directory) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if dir == nil {
		return nil, errors.New("gateway: no directory of keys")
	}
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	return &Gateway{cfg: cfg, dir: dir, log: log, errors: connect.NewErrorWriter(), inFlight: make(map[string]int), open: make(map[string]int)}, nil
}

type callerKey struct{}

// CallerFrom returns who makes the request that ctx belongs to. It returns false in a handler of an open procedure, and anywhere that no
// [Gateway] has been passed.
func CallerFrom(ctx context.Context) (cell.Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(*cell.Caller)
	if !ok {
		return cell.Caller{}, false
	}
	return *c, true
}

// Handler returns next behind the gateway: next sees only requests for procedures of the table whose caller may make them, with the
// caller in their context and their body bounded.
func (g *Gateway) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.log.Enabled(r.Context(), slog.LevelDebug) {
			g.serve(w, r, next)
			return
		}
		start := time.Now()
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		c := g.serve(sw, r, next)
		g.log.DebugContext(r.Context(), "request", "procedure", logPath(r.URL.Path), "status", sw.status, "proto", r.Proto,
			"tenant", string(c.Tenant), "key", c.Key, "remote", r.RemoteAddr, "duration", time.Since(start))
	})
}

// serve returns the caller for the access log; it is empty for one that is not known.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, next http.Handler) cell.Caller {
	n, ok := permissions[r.URL.Path]
	if !ok {
		g.refuse(w, r, refuseProcedure(r.URL.Path))
		return cell.Caller{}
	}
	if n.internal {
		g.refuse(w, r, refuseInternal(r.URL.Path))
		return cell.Caller{}
	}
	var c cell.Caller
	if n.open {
		if !g.enterOpen(r.URL.Path, n.atMost) {
			g.refuse(w, r, refuseOpen(r.URL.Path, n.atMost))
			return c
		}
		defer g.leaveOpen(r.URL.Path, n.atMost)
	} else {
		var err error
		if c, err = g.authenticate(r); err == nil {
			err = n.check(r.URL.Path, c)
		}
		if err != nil {
			g.refuse(w, r, err)
			return c
		}
		if bound, ok := g.enter(c); !ok {
			g.refuse(w, r, refuseRequests(c, bound))
			return c
		}
		defer g.leave(c)
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, &c))
	}
	bound := cmp.Or(n.bytesMax, RequestBytesMax)
	if err := checkBody(r, bound); err != nil {
		g.refuse(w, r, err)
		return c
	}
	if !n.stream {
		r.Body = &boundedBody{ReadCloser: http.MaxBytesReader(w, r.Body, bound), bound: bound}
	}
	next.ServeHTTP(w, r)
	return c
}

func (g *Gateway) authenticate(r *http.Request) (cell.Caller, error) {
	s, err := secretOf(r.Header.Get("Authorization"))
	if err != nil {
		return cell.Caller{}, err
	}
	c, ok := g.dir.Lookup(s.Hash())
	if d, may := g.dir.(interface{ Current() bool }); !ok && may && !d.Current() {
		return cell.Caller{}, refuseNoKeys()
	}
	if !ok {
		// Which of the three it is would help whoever tries keys that they found.
		return cell.Caller{}, refuseKey("the API key is unknown, revoked or expired: check it, or have an admin create another")
	}
	return c, nil
}

// enter counts a request of c, unless its key has as many as it may; then it returns that bound and false.
func (g *Gateway) enter(c cell.Caller) (int, bool) {
	bound := g.cfg.RequestsPerKeyMax
	if c.Tenant == "" {
		bound = g.cfg.RequestsPerPlatformKeyMax
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight[c.Key] >= bound {
		return bound, false
	}
	g.inFlight[c.Key]++
	return bound, true
}

func (g *Gateway) leave(c cell.Caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight[c.Key]--; g.inFlight[c.Key] == 0 {
		delete(g.inFlight, c.Key)
	}
}

// enterOpen counts a request of an open procedure, unless as many as may are in flight. A bound of 0 is none.
func (g *Gateway) enterOpen(procedure string, bound int) bool {
	if bound == 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[procedure] >= bound {
		return false
	}
	g.open[procedure]++
	return true
}

func (g *Gateway) leaveOpen(procedure string, bound int) {
	if bound == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[procedure]--; g.open[procedure] == 0 {
		delete(g.open, procedure)
	}
}

// checkBody refuses what the headers alone show to be too large or in no protocol of the API.
func checkBody(r *http.Request, bound int64) error {
	if r.ContentLength > bound {
		return refuseRequestBytes(r.ContentLength, bound)
	}
	if r.Method != http.MethodPost {
		return nil // Connect answers: GET for what has no side effect, 405 otherwise
	}
	header := r.Header.Get("Content-Type")
	if knownType(header) {
		return nil
	}
	if t, _, err := mime.ParseMediaType(header); err == nil && knownType(t) {
		return nil
	}
	return refuseContentType(header)
}

func knownType(t string) bool {
	return t == "application/proto" || t == "application/json" ||
		strings.HasPrefix(t, "application/grpc") || strings.HasPrefix(t, "application/connect+")
}

// boundedBody answers a body that is too long with the typed refusal, which Connect passes on as it is.
type boundedBody struct {
	io.ReadCloser
	bound int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return n, refuseRequestBytes(b.bound+1, b.bound)
	}
	return n, err
}

// statusWriter remembers the status for the access log.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Flush implements [http.Flusher], which streams need.
func (w *statusWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap serves [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logPath is a path as a log may hold it: a stranger chooses it.
func logPath(p string) string {
	const pathBytesMax = 200
	if len(p) > pathBytesMax {
		p = p[:pathBytesMax]
	}
	return strings.ToValidUTF8(p, "?")
}
