package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/dataplane/gateway"
)

// The bounds of a connection to another agent. A dead one is noticed by the ping, not by a time-out of whatever waits on it.
const (
	lineDialTimeout   = 2 * time.Second
	linePingAfter     = 2 * time.Second
	linePingTimeout   = 2 * time.Second
	lineIdleTimeout   = 90 * time.Second
	lineExpectTimeout = 5 * time.Second
	lineReadBytesMax  = 64 << 20
	lineRequestMax    = 8 << 20 // what is kept to be sent again
	leaderRoundsMax   = 2       // how often the agents of a log are gone through before nobody is said to lead
	leaderRoundPause  = 200 * time.Millisecond
	leaderResponseMax = 64 << 10
)

// lines are ways to the other agents of the cluster: each refuses whoever is not whom it leads to.
type lines struct{ store *identity.Store }

// to returns a way to one agent, or to any of a role where no name is given. It shares its connections with nobody.
func (l lines) to(p gateway.Peer) http.RoundTripper {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	dialer := net.Dialer{Timeout: lineDialTimeout}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		TLSClientConfig:       l.store.ClientTLS(identity.Expect{Role: identity.Role(p.Role), Cell: cell.ID(p.Cell), Name: p.Name}),
		TLSHandshakeTimeout:   lineDialTimeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // what is passed on is passed on as it is
		Protocols:             &protocols,
		IdleConnTimeout:       lineIdleTimeout,
		ExpectContinueTimeout: lineExpectTimeout,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: linePingAfter, PingTimeout: linePingTimeout},
	}
}

// lineOptions are what clients of other agents are made with.
func lineOptions() []connect.ClientOption {
	return []connect.ClientOption{connect.WithReadMaxBytes(lineReadBytesMax)}
}

// place is an agent that may be asked: its name may be empty where only its address is known.
type place struct{ name, address string }

// seeker sends requests to whichever of some agents leads. What it sends may be sent again: it is for calls that may be repeated.
type seeker struct {
	role   string
	cell   string
	places func() []place
	lines  lines

	mu   sync.Mutex
	ways map[place]http.RoundTripper
	last string // the address that answered last
}

func newSeeker(l lines, role, cellName string, places func() []place) *seeker {
	return &seeker{role: role, cell: cellName, places: places, lines: l, ways: make(map[place]http.RoundTripper)}
}

// among returns a seeker that asks these agents and shares the connections of s.
func (s *seeker) among(places []place) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return s.seek(r, places) })
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// errNoAgents is returned when there is nobody to ask.
var errNoAgents = errors.New("no agent of the log is known")

// RoundTrip implements http.RoundTripper. It goes through the agents until one does not say that another leads.
func (s *seeker) RoundTrip(r *http.Request) (*http.Response, error) { return s.seek(r, s.places()) }

func (s *seeker) seek(r *http.Request, places []place) (*http.Response, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	err = errNoAgents
	for round := range leaderRoundsMax {
		if round > 0 {
			if cause := pause(r.Context(), leaderRoundPause); cause != nil {
				return nil, errors.Join(err, cause)
			}
		}
		hint := ""
		for range 2 { // whoever was hinted at is asked next
			var resp *http.Response
			resp, hint, err = s.round(r, body, places, hint)
			if resp != nil {
				return resp, nil
			}
			if hint == "" {
				break
			}
		}
	}
	return nil, err
}

// round asks each agent once. It returns the first answer, or the name of the agent that was said to lead.
func (s *seeker) round(r *http.Request, body []byte, places []place, hint string) (*http.Response, string, error) {
	err := errNoAgents
	for _, p := range s.order(places, hint) {
		if r.Context().Err() != nil {
			return nil, "", context.Cause(r.Context())
		}
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.Host = "https", p.address, p.address
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp, sent := s.way(p).RoundTrip(out)
		if sent != nil {
			err = fmt.Errorf("%s: %w", p.address, sent)
			continue
		}
		if resp.Header.Get(gateway.HeaderNotLeader) == "" {
			s.remember(p.address)
			return resp, "", nil
		}
		leader := resp.Header.Get(gateway.HeaderLeader)
		_, _ = io.CopyN(io.Discard, resp.Body, leaderResponseMax) // so that the connection can be used again
		err = errors.Join(fmt.Errorf("%s does not lead", p.address), resp.Body.Close())
		if leader != "" && leader != hint && leader != p.name {
			return nil, leader, err
		}
	}
	return nil, "", err
}

// order returns the agents with the one of that name first, then the one that answered last.
func (s *seeker) order(places []place, hint string) []place {
	places = slices.Clone(places)
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	rank := func(p place) int {
		switch {
		case hint != "" && p.name == hint:
			return 0
		case p.address == last:
			return 1
		default:
			return 2 //nolint:mnd // the rest
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return rank(a) - rank(b) })
	return places
}

func (s *seeker) way(p place) http.RoundTripper {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ways[p] == nil {
		s.ways[p] = s.lines.to(gateway.Peer{Role: s.role, Cell: s.cell, Name: p.name})
	}
	return s.ways[p]
}

func (s *seeker) remember(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = address
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, lineRequestMax+1))
	err = errors.Join(err, r.Body.Close())
	if len(body) > lineRequestMax {
		err = errors.Join(err, fmt.Errorf("a call to another agent has more than %d bytes", lineRequestMax))
	}
	return body, err
}

// wayCache keeps ways by name, for agents that are dialled again and again.
type wayCache struct {
	mu   sync.Mutex
	ways map[string]http.RoundTripper
}

func newWayCache() *wayCache { return &wayCache{ways: make(map[string]http.RoundTripper)} }

// get returns the way of that name, made when it is missing.
func (c *wayCache) get(name string, make func() http.RoundTripper) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ways[name] == nil {
		c.ways[name] = make()
	}
	return c.ways[name]
}

// pause waits, and returns the cause when ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
