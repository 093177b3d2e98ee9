package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// answerHeldMax is how much of an answer is held until all of it is there, so that one that breaks off can be told as an error, or asked for
// again. Longer ones are passed on as they come.
const answerHeldMax = 256 << 10

// outcome is what came of one attempt.
type outcome uint8

const (
	outcomeAnswered  outcome = iota + 1 // the caller has its answer, whatever that says
	outcomeNotLeader                    // nothing was done
	outcomeNotSent                      // nothing was done: the agent cannot have the request as a whole
	outcomeLost                         // it may have been done
)

// forward tries c until it is answered, and returns the refusal when it is not.
func (u *upstream) forward(ctx context.Context, c *call, w http.ResponseWriter) error {
	until := c.began.Add(u.f.cfg.ParkMax)
	var tried []*replica
	for {
		r, changed := u.pick(tried, c.clientStream)
		if r == nil {
			if err := u.wait(ctx, until, changed); err != nil {
				return err
			}
			tried = tried[:0]
			continue
		}
		tried = append(tried, r)
		out, hint, err := u.attempt(ctx, c, r, w)
		switch out {
		case outcomeAnswered:
			u.answered(r)
			return nil
		case outcomeNotLeader:
			u.notLeading(r, hint)
		case outcomeNotSent:
			u.unreached(r)
		case outcomeLost:
			if !c.safe || c.clientStream {
				return u.lost(ctx, r, err)
			}
		}
		if ctx.Err() != nil || !time.Now().Before(until) {
			return u.gaveUp(ctx)
		}
		if c.clientStream && out != outcomeNotSent {
			return refuseNotApplied(u) // a part of the stream may be gone, and nobody has it as a whole
		}
	}
}

// wait parks a request until somebody else may lead, or for a moment. It returns the refusal when that takes too long.
func (u *upstream) wait(ctx context.Context, until time.Time, changed <-chan struct{}) error {
	left := time.Until(until)
	if left <= 0 {
		return u.gaveUp(ctx)
	}
	if err := u.park(); err != nil {
		return err
	}
	defer u.unpark()
	t := time.NewTimer(min(roundDelay, left))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return u.gaveUp(ctx)
	}
	return nil
}

// gaveUp is the refusal of a request that nobody has taken.
func (u *upstream) gaveUp(ctx context.Context) error {
	if ctx.Err() != nil {
		return refuseDeadline(u, false)
	}
	return refuseNotApplied(u)
}

// lost is the refusal of a request whose answer will not come.
func (u *upstream) lost(ctx context.Context, r *replica, err error) error {
	if ctx.Err() != nil { // the caller's own doing
		return refuseDeadline(u, true)
	}
	u.f.log.WarnContext(ctx, "the outcome of a request is unknown", "upstream", u.name(), "agent", r.Name, "error", err)
	return refuseUnknown(u, r.Name)
}

// attempt sends c to r once. It returns what came of it, whom r named as the leader where it does not lead, and why it failed.
func (u *upstream) attempt(ctx context.Context, c *call, r *replica, w http.ResponseWriter) (out outcome, hint string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fl := u.fly(r, cancel)
	defer u.land(r, fl)

	sent := &sending{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.connected.Store(true) }})
	resp, err := r.calls.RoundTrip(c.requestTo(ctx, r, sent))
	if err != nil {
		if !sent.seal(len(c.body) > 0 || c.clientStream) {
			return outcomeNotSent, "", causeOf(ctx, err)
		}
		return outcomeLost, "", causeOf(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is not wanted
	if resp.Header.Get(HeaderNotLeader) == "1" {
		return outcomeNotLeader, resp.Header.Get(HeaderLeader), nil
	}
	if c.holds || c.follows && resp.Header.Get(HeaderLane) != "" {
		if c.answer, err = takeAnswer(resp); err != nil {
			return outcomeLost, "", causeOf(ctx, err)
		}
		return outcomeAnswered, "", nil
	}
	if c.serverStream {
		pass(w, resp, nil)
		return outcomeAnswered, "", nil
	}
	held, err := io.ReadAll(io.LimitReader(resp.Body, answerHeldMax))
	if err != nil {
		return outcomeLost, "", causeOf(ctx, err)
	}
	pass(w, resp, held)
	return outcomeAnswered, "", nil
}

// causeOf is err, or why the forwarder itself ended the attempt.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// requestTo returns c as it goes to r.
func (c *call) requestTo(ctx context.Context, r *replica, sent *sending) *http.Request {
	in := c.request
	out := &http.Request{
		Method: in.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: c.header.Clone(), Host: r.Address,
		URL: &url.URL{Scheme: "https", Host: r.Address, Path: in.URL.Path, RawQuery: in.URL.RawQuery},
	}
	switch {
	case c.clientStream:
		// So that whoever does not lead says so before the stream is touched: then another can have it.
		out.Header.Set("Expect", "100-continue")
		out.Body, out.ContentLength = sent.body(in.Body), -1
	case len(c.body) > 0:
		out.ContentLength = int64(len(c.body))
		out.GetBody = func() (io.ReadCloser, error) { return sent.body(io.NopCloser(bytes.NewReader(c.body))), nil }
		out.Body = sent.body(io.NopCloser(bytes.NewReader(c.body)))
	default:
		out.Body = http.NoBody
	}
	return out.WithContext(ctx)
}

// sending knows how much of a request can have arrived.
type sending struct {
	connected atomic.Bool // there was a connection to send it over

	mu      sync.Mutex
	touched bool // something of the body was taken
	sealed  bool // no more is to be
}

// seal ends the sending, and returns whether the agent can have all of the request. One that has a body is not done without it, so that
// nothing was done when none of that was taken.
func (s *sending) seal(hasBody bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = true
	if hasBody {
		return s.touched
	}
	return s.connected.Load()
}

func (s *sending) body(r io.ReadCloser) io.ReadCloser { return &sentBody{ReadCloser: r, sending: s} }

// sentBody tells its sending when it is read.
type sentBody struct {
	io.ReadCloser
	sending *sending
}

var errSealed = errors.New("gateway: the request was given up")

// Read implements [io.Reader].
func (b *sentBody) Read(p []byte) (int, error) {
	b.sending.mu.Lock()
	if b.sending.sealed {
		b.sending.mu.Unlock()
		return 0, errSealed
	}
	b.sending.touched = true
	b.sending.mu.Unlock()
	return b.ReadCloser.Read(p)
}

// pass writes the answer, of which held was read already, and flushes it as it comes. A rest that breaks off aborts the caller's
// connection, since no status can be changed any more.
func pass(w http.ResponseWriter, resp *http.Response, held []byte) {
	h := w.Header()
	dropHops(resp.Header)
	maps.Copy(h, resp.Header)
	w.WriteHeader(resp.StatusCode)
	out := http.NewResponseController(w)
	if _, err := w.Write(held); err != nil {
		return // the caller has gone
	}
	buf := make([]byte, 32<<10)
	if held == nil {
		_ = out.Flush() // a stream begins before there is anything in it; where it cannot, it comes later
	}
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, wErr := w.Write(buf[:n]); wErr != nil {
				return // the caller has gone
			}
			_ = out.Flush() // where it cannot, it comes later
		}
		if isEOF(err) {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	dropHops(resp.Trailer)
	for name, values := range resp.Trailer {
		h[http.TrailerPrefix+name] = values
	}
}
