package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
)

const (
	// HTTPTimeoutDefault is how long one request may take.
	HTTPTimeoutDefault = 60 * time.Second
	// retryAfterMax bounds what a server may ask for: beyond it, somebody should look.
	retryAfterMax       = 24 * time.Hour
	headerBytesMax      = 64 << 10
	contentTypeBytesMax = 128
	httpDialTimeout     = 10 * time.Second
	headerUsage         = "Fairlead-Usage"
)

// HTTPConfig says where [HTTP] posts.
type HTTPConfig struct {
	// URL is what each job is posted to: https, without a user.
	URL string
	// Header is added to each request, such as the target's own credentials.
	Header http.Header
	// AllowPlain allows http URLs.
	AllowPlain bool
	// AllowPrivate allows loopback and private addresses. Link-local, metadata, multicast and reserved ones are never connected to.
	AllowPrivate bool
	// Timeout bounds one request, 60 s by default; the job's execution time-out bounds it too.
	Timeout time.Duration
}

// HTTP returns a handler that posts each job's payload to a URL.
//
// Any 2xx is success, and the body, at most [ResultBytesMax], is the result: JSON if it says so and is. 429 and 503 with Retry-After are
// retried then; 408, 425, 429 and 5xx by the job's policy; every other answer, redirects included, is fatal. What the server says is not in
// the failure's text.
//
// Requests carry Idempotency-Key, which is the job's id and so the same for every attempt, Fairlead-Job-Id, Fairlead-Attempt,
// Fairlead-Operation, Fairlead-Tenant, Fairlead-Class, Fairlead-Deadline and Traceparent, as far as they are known.
//
// An answer, whatever its status, may say in Fairlead-Usage what the job used, such as tokens=812, calls=3; see [Use]. What is not
// understood there is left out, and logged.
//
// The address is checked when the connection is made, after the name was looked up, so that a name cannot lead elsewhere than to the public
// internet; no proxy is used. HTTP returns a *[cell.FieldError] when cfg is refused.
func HTTP(cfg HTTPConfig) (HandlerFunc, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Host == "":
		return nil, &cell.FieldError{Field: "url", Problem: "is not a URL", Remedy: "give https://host/path"}
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, &cell.FieldError{Field: "url", Problem: fmt.Sprintf("has scheme %.20q", u.Scheme), Remedy: "give https://host/path"}
	case u.Scheme == "http" && !cfg.AllowPlain:
		return nil, &cell.FieldError{
			Field: "url", Problem: "is plain http, which anybody on the way can read and change",
			Remedy: "use https, or allow plain http",
		}
	case u.User != nil:
		return nil, &cell.FieldError{Field: "url", Problem: "has a user", Remedy: "put credentials into a header"}
	case cfg.Timeout < 0:
		return nil, &cell.FieldError{Field: "timeout", Problem: fmt.Sprintf("is %v, below 0", cfg.Timeout), Remedy: "leave it 0 for 60 s"}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = HTTPTimeoutDefault
	}
	guard := addressGuard{ranges: addressRanges(), allowPrivate: cfg.AllowPrivate}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := guard.check(a); err != nil { // sooner than with the first job
			return nil, &cell.FieldError{Field: "url", Problem: err.Error(), Remedy: "give a public address"}
		}
	}
	p := &poster{cfg: cfg, url: u, client: guardedClient(guard)}
	return p.run, nil
}

// guardedClient returns a client that connects to no address that guard refuses.
func guardedClient(guard addressGuard) *http.Client {
	dialer := &net.Dialer{
		Timeout: httpDialTimeout,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrAddressRefused, err)
			}
			return guard.check(ap.Addr())
		},
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    httpDialTimeout,
			MaxResponseHeaderBytes: headerBytesMax,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        90 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// poster posts one request per attempt.
type poster struct {
	cfg    HTTPConfig
	url    *url.URL
	client *http.Client
}

func (p *poster) run(ctx context.Context, task *Task) (client.Payload, error) {
	reqCtx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	req, err := p.request(reqCtx, task)
	if err != nil {
		return client.Payload{}, Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return client.Payload{}, p.callError(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body was read as far as it matters
	for _, used := range resp.Header.Values(headerUsage) {
		tellUsage(ctx, used, ",")
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return client.Payload{}, p.statusError(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, ResultBytesMax+1))
	if err != nil {
		return client.Payload{}, p.callError(ctx, err)
	}
	if len(body) > ResultBytesMax {
		return client.Payload{}, Fatal(fmt.Errorf("post to %s: answer has more than %d bytes: answer with where the result is",
			p.url.Host, ResultBytesMax))
	}
	return bodyPayload(resp.Header.Get("Content-Type"), body), nil
}

func (p *poster) request(ctx context.Context, task *Task) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.String(), bytes.NewReader(task.Payload.Body()))
	if err != nil {
		return nil, fmt.Errorf("post to %s: %w", p.url.Host, err)
	}
	for name, values := range p.cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if task.Payload.IsZero() {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	set("Content-Type", task.Payload.ContentType())
	set("Idempotency-Key", task.ID)
	set("Fairlead-Job-Id", task.ID)
	set("Fairlead-Attempt", strconv.Itoa(task.Attempt))
	set("Fairlead-Operation", task.Operation)
	set("Fairlead-Tenant", task.Tenant)
	if task.Class.Valid() {
		set("Fairlead-Class", task.Class.String())
	}
	if deadline, ok := ctx.Deadline(); ok {
		set("Fairlead-Deadline", deadline.UTC().Format(time.RFC3339Nano))
	}
	set("Traceparent", task.Traceparent)
	return req, nil
}

// callError is for a request without an answer. It leaves out the URL, whose path and query may be secrets. A refused address is fatal:
// it is a decision and not an accident.
func (p *poster) callError(ctx context.Context, err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("post to %s: no answer within %v", p.url.Host, p.cfg.Timeout)
	}
	err = fmt.Errorf("post to %s: %w", p.url.Host, err)
	if errors.Is(err, ErrAddressRefused) {
		return Fatal(err)
	}
	return err
}

func (p *poster) statusError(resp *http.Response) error {
	code := resp.StatusCode
	err := fmt.Errorf("post to %s: status %d %s", p.url.Host, code, http.StatusText(code))
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		if d, ok := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return RetryAfter(err, d)
		}
	}
	switch {
	case code >= 500, code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		return err
	default:
		return Fatal(err)
	}
}

// parseRetryAfter reads seconds or a date (RFC 9110, section 10.2.3), of at most a day.
func parseRetryAfter(s string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(s, 10, 31); err == nil {
		return min(retryAfterMax, time.Duration(seconds)*time.Second), true
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(retryAfterMax, max(0, at.Sub(now))), true
	}
	return 0, false
}

func bodyPayload(contentType string, body []byte) client.Payload {
	if len(body) == 0 {
		return client.Payload{}
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || len(contentType) > contentTypeBytesMax || !utf8.ValidString(contentType) {
		return client.Bytes("", body)
	}
	if media == client.ContentTypeJSON && json.Valid(body) && utf8.Valid(body) {
		return client.JSON(json.RawMessage(body))
	}
	return client.Bytes(contentType, body)
}
