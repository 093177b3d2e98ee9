package worker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
)

func TestAddressGuard(t *testing.T) {
	const public, private, never = "public", "private", "never"
	for addr, kind := range map[string]string{
		"8.8.8.8": public, "93.184.216.34": public, "2606:2800:220:1:248:1893:25c8:1946": public, "172.32.0.1": public, "192.169.0.1": public,
		"100.128.0.1": public, "11.0.0.1": public, "64:ff9b::808:808": public, "2002:808:808::1": public,

		"127.0.0.1": private, "127.255.255.254": private, "::1": private, "::ffff:127.0.0.1": private, "10.0.0.1": private,
		"172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private, "::ffff:10.1.2.3": private, "100.64.0.1": private,
		"fc00::1": private, "fd12:3456::1": private, "64:ff9b::a00:1": private, "2002:7f00:1::1": private, "2002:c0a8:101::": private,

		"169.254.169.254": never, "::ffff:169.254.169.254": never, "169.254.0.1": never, "fd00:ec2::254": never, "100.100.100.200": never,
		"168.63.129.16": never, "0.0.0.0": never, "0.1.2.3": never, "::": never, "::ffff:0.0.0.0": never, "224.0.0.1": never, "239.1.1.1": never,
		"255.255.255.255": never, "240.0.0.1": never, "fe80::1": never, "fe80::1%eth0": never, "ff02::1": never, "::127.0.0.1": never,
		"64:ff9b::a9fe:a9fe": never, "2002:a9fe:a9fe::": never, "192.0.2.1": never, "2001:db8::1": never, "2001::1": never, "fec0::1": never,
	} {
		t.Run(addr, func(t *testing.T) {
			a := netip.MustParseAddr(addr)
			strict := addressGuard{ranges: addressRanges()}.check(a)
			open := addressGuard{ranges: addressRanges(), allowPrivate: true}.check(a)
			if (strict == nil) != (kind == public) || (open == nil) != (kind != never) {
				t.Errorf("strict %v, with private %v, want %s", strict, open, kind)
			}
			for _, err := range []error{strict, open} {
				if err != nil && !errors.Is(err, ErrAddressRefused) {
					t.Errorf("%v is no %v", err, ErrAddressRefused)
				}
			}
		})
	}
}

func TestHTTPRefusesBadConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  HTTPConfig
		want string
	}{
		"empty":            {HTTPConfig{}, "url is not a URL"},
		"plain":            {HTTPConfig{URL: "http://example.com/"}, "url is plain http"},
		"file":             {HTTPConfig{URL: "file:///etc/passwd"}, "url is not a URL"},
		"ftp":              {HTTPConfig{URL: "ftp://example.com/"}, `url has scheme "ftp"`},
		"user":             {HTTPConfig{URL: "https://u:secret@example.com/"}, "url has a user"},
		"metadata":         {HTTPConfig{URL: "https://169.254.169.254/", AllowPrivate: true}, "169.254.169.254 is cloud metadata"},
		"loopback":         {HTTPConfig{URL: "https://127.0.0.1/"}, "127.0.0.1 is loopback; allow private"},
		"mapped":           {HTTPConfig{URL: "https://[::ffff:10.0.0.1]/"}, "10.0.0.1 is private"},
		"negative timeout": {HTTPConfig{URL: "https://example.com/", Timeout: -1}, "timeout is -1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := HTTP(tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("HTTP = %v, want %q", err, tt.want)
			}
		})
	}
}

func post(t *testing.T, cfg HTTPConfig, task *Task) Outcome {
	t.Helper()
	h, err := HTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	reg := NewRegistry()
	if err := reg.Add("op", h); err != nil {
		t.Fatal(err)
	}
	return Execute(t.Context(), reg, task)
}

// A name that leads to a private address is refused when it is dialled, whatever it looked like.
func TestHTTPChecksTheAddressDialled(t *testing.T) {
	hits := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits++ }))
	defer s.Close()
	url := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	got := post(t, HTTPConfig{URL: url, AllowPlain: true}, postTask())
	if got.Verdict != VerdictFailure || !got.Fatal || !strings.Contains(got.Error, "is loopback") || hits != 0 {
		t.Errorf("outcome %+v after %d requests", got, hits)
	}
}

func postTask() *Task {
	return &Task{
		ID: "job_1", Tenant: "acme", Operation: "op", Class: 2, Payload: client.JSON([]int{1}), Attempt: 3, Traceparent: "00-aa-bb-01",
		ExecutionTimeout: time.Minute,
	}
}

func TestHTTPOutcomes(t *testing.T) {
	const day = 24 * time.Hour
	tests := map[string]struct {
		status      int
		header      map[string]string
		body        string
		want        string // "success", "retry", "fatal" or a duration
		wantBody    string
		wantContent string
	}{
		"200 JSON": {
			status: 200, header: map[string]string{"Content-Type": "application/json"}, body: ` {"n": 9007199254740993} `, want: "success",
			wantBody: `{"n": 9007199254740993}`, wantContent: "application/json",
		},
		"200 not quite JSON": {
			status: 200, header: map[string]string{"Content-Type": "application/json"}, body: "{", want: "success", wantBody: "{",
			wantContent: "application/json",
		},
		"200 text": {
			status: 200, header: map[string]string{"Content-Type": "text/csv"}, body: "a,b", want: "success", wantBody: "a,b", wantContent: "text/csv",
		},
		"204":                {status: 204, want: "success"},
		"too large":          {status: 200, body: strings.Repeat("x", ResultBytesMax+1), want: "fatal"},
		"redirect":           {status: 302, header: map[string]string{"Location": "http://169.254.169.254/"}, want: "fatal"},
		"400":                {status: 400, body: "leaked", want: "fatal"},
		"404":                {status: 404, want: "fatal"},
		"408":                {status: 408, want: "retry"},
		"425":                {status: 425, want: "retry"},
		"429":                {status: 429, want: "retry"},
		"429 and when":       {status: 429, header: map[string]string{"Retry-After": "7"}, want: "7s"},
		"429 and nonsense":   {status: 429, header: map[string]string{"Retry-After": "soon"}, want: "retry"},
		"429 and next year":  {status: 429, header: map[string]string{"Retry-After": "31536000"}, want: day.String()},
		"503 and a past day": {status: 503, header: map[string]string{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, want: "0s"},
		"500":                {status: 500, body: "leaked", want: "retry"},
		"500 and when":       {status: 500, header: map[string]string{"Retry-After": "7"}, want: "retry"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer s.Close()
			got := post(t, HTTPConfig{URL: s.URL, AllowPlain: true, AllowPrivate: true}, postTask())
			kind := "retry"
			switch {
			case got.Verdict == VerdictSuccess:
				kind = "success"
			case got.Fatal:
				kind = "fatal"
			case got.RetryAfter != nil:
				kind = got.RetryAfter.String()
			}
			if kind != tt.want || strings.Contains(got.Error, "leaked") {
				t.Errorf("outcome %+v, want %s", got, tt.want)
			}
			if string(got.Result.Body()) != tt.wantBody || got.Result.ContentType() != tt.wantContent {
				t.Errorf("result %s %q", got.Result.ContentType(), got.Result.Body())
			}
		})
	}
}

func TestHTTPRequest(t *testing.T) {
	var header http.Header
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer s.Close()
	cfg := HTTPConfig{URL: s.URL + "/path?q=secret", Header: http.Header{"authorization": {"Bearer x"}}, AllowPlain: true, AllowPrivate: true}
	if got := post(t, cfg, postTask()); got.Verdict != VerdictSuccess {
		t.Fatalf("outcome %+v", got)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer x", "Content-Type": "application/json", "Idempotency-Key": "job_1", "Fairlead-Attempt": "3",
		"Fairlead-Operation": "op", "Fairlead-Tenant": "acme", "Fairlead-Class": "batch", "Traceparent": "00-aa-bb-01",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if string(body) != "[1]" {
		t.Errorf("body %q", body)
	}
	s.Close()
	if got := post(t, cfg, postTask()); got.Verdict != VerdictFailure || got.Fatal || strings.Contains(got.Error, "secret") {
		t.Errorf("without a server: %+v", got)
	}
}

func TestHTTPTimeouts(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(release)
	cfg := HTTPConfig{URL: s.URL, AllowPlain: true, AllowPrivate: true, Timeout: 50 * time.Millisecond}
	if got := post(t, cfg, postTask()); got.Fatal || !strings.HasSuffix(got.Error, "no answer within 50ms") {
		t.Errorf("outcome %+v", got)
	}
	cfg.Timeout = time.Minute
	task := postTask()
	task.ExecutionTimeout = 50 * time.Millisecond
	if got := post(t, cfg, task); got.Fatal || !strings.HasPrefix(got.Error, "execution time-out of 50ms") {
		t.Errorf("outcome %+v", got)
	}
	h, err := HTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrCancelled)
	if _, err := h(ctx, postTask()); !errors.Is(err, ErrCancelled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A server says in a header what a job used, whatever it answers.
func TestHTTPUsage(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Fairlead-Usage", "tokens=812, calls=1")
		w.Header().Add("Fairlead-Usage", "calls=2,gpu=1")
		w.WriteHeader(status)
	}))
	defer server.Close()
	h, err := HTTP(HTTPConfig{URL: server.URL, AllowPlain: true, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, status = range []int{http.StatusOK, http.StatusInternalServerError} {
		out := attemptOf(t, h)
		if out.Used != (cell.Resources{cell.ResourceTokens: 812_000_000, cell.ResourceCalls: 3_000_000}) || !strings.Contains(out.UsageFault, `"gpu"`) {
			t.Errorf("%d: %+v", status, out)
		}
	}
}
