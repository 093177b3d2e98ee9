package agent

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	// registerEvery is how often an agent says that it is there; control takes it for gone after some of these.
	registerEvery = 2 * time.Second
	// registerSoon is how soon it tries again when nobody took it, or when there is news.
	registerSoon = 500 * time.Millisecond
	// registerTimeout bounds one attempt.
	registerTimeout = 5 * time.Second
)

// controls are where control is: what the configuration says, and who control says it is.
type controls struct {
	mu         sync.Mutex
	configured []string
	learned    []place
}

func newControls(configured []string) *controls { return &controls{configured: configured} }

// configure replaces what the configuration says.
func (c *controls) configure(addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.configured = addresses
}

// addresses returns what the configuration says.
func (c *controls) addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.configured
}

// learn replaces what control said.
func (c *controls) learn(agents []*fairleadv1.Agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learned = c.learned[:0:0]
	for _, a := range agents {
		c.learned = append(c.learned, place{name: a.GetName(), address: a.GetApiAddress()})
	}
}

// places returns everywhere, those whose name is known first.
func (c *controls) places() []place {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[string]bool)
	var all []place
	for _, p := range c.learned {
		if !seen[p.address] {
			seen[p.address] = true
			all = append(all, p)
		}
	}
	for _, a := range c.configured {
		if !seen[a] {
			seen[a] = true
			all = append(all, place{address: a})
		}
	}
	return all
}

// registrar says to control, again and again, that the agent is there.
type registrar struct {
	client  fairleadv1connect.RegistryServiceClient
	request func() *fairleadv1.RegisterRequest
	answer  func(*fairleadv1.RegisterResponse)
	news    chan struct{} // capacity one: something about the agent has changed
	logger  *slog.Logger
}

func newRegistrar(way http.RoundTripper, request func() *fairleadv1.RegisterRequest, answer func(*fairleadv1.RegisterResponse),
	logger *slog.Logger,
) *registrar {
	return &registrar{
		client:  fairleadv1connect.NewRegistryServiceClient(&http.Client{Transport: way}, "https://control", lineOptions()...),
		request: request, answer: answer, news: make(chan struct{}, 1), logger: logger,
	}
}

// hurry makes the next registration come at once.
func (r *registrar) hurry() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// run registers until ctx ends. It logs when control is lost and when it is found again, not each attempt.
func (r *registrar) run(ctx context.Context) {
	known := false
	for first := true; ctx.Err() == nil; first = false {
		err := r.once(ctx)
		next := registerEvery
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			next = registerSoon
			if known || first {
				r.logger.Warn("control cannot be told that this agent is there; it is tried again", "error", err)
			}
			known = false
		case !known:
			known = true
			r.logger.Info("registered with control")
		}
		t := time.NewTimer(next)
		select {
		case <-t.C:
		case <-r.news:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

func (r *registrar) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	resp, err := r.client.Register(ctx, r.request())
	if err == nil {
		r.answer(resp)
	}
	return err
}
