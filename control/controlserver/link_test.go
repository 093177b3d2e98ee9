package controlserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// plain is a server without HTTP, for a synctest bubble.
func plain(t *testing.T) (*Server, *fakeCells) {
	t.Helper()
	m := NewMachine()
	told := newFakeCells()
	s, err := New(Config{Log: slog.New(slog.DiscardHandler)}, &fakeLog{machine: m}, told, m)
	if err != nil {
		t.Fatal(err)
	}
	return s, told
}

func request(id string, weight float64) *fairleadv1.CreateTenantRequest {
	return &fairleadv1.CreateTenantRequest{Id: id, Weight: &weight}
}

// While a call is under way, changes gather, and go out together: as many callers as there are cost two calls.
func TestChangesShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := plain(t)
		release := make(chan struct{})
		told.before = func() { <-release }
		var wg sync.WaitGroup
		const callers = 2*policiesPerCall + 1
		for i := range callers {
			wg.Go(func() {
				if _, err := s.CreateTenant(t.Context(), request(fmt.Sprintf("t%04d", i), 1)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // all are committed; one is in its call, the others wait
		close(release)
		wg.Wait()
		if len(told.policies) != callers || told.calls > 4 || told.largest > policiesPerCall {
			t.Errorf("%d tenants in %d calls of at most %d", len(told.policies), told.calls, told.largest)
		}
	})
}

// However commits and calls interleave, a cell ends with what was committed last.
func TestCellEndsWithTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := plain(t)
		if _, err := s.CreateTenant(t.Context(), request("acme", 1)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				w := float64(i)
				if _, err := s.UpdateTenant(t.Context(), &fairleadv1.UpdateTenantRequest{Id: "acme", Weight: &w}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want, _ := s.machine.View().Tenant("acme")
		if got := told.policies["acme"]; got != want.Policy {
			t.Errorf("the cell has %+v, control %+v", got, want.Policy)
		}
	})
}

// A change that a cell could not be told of is saved, said to be, and told until it is known.
func TestCellBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := plain(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		told.set(errors.New("no leader"))
		_, err := s.CreateTenant(t.Context(), request("acme", 2))
		if r := rejection.From(err); connect.CodeOf(err) != connect.CodeUnavailable || r.GetReason() != "CELL_BEHIND" {
			t.Errorf("%v, %v", err, r)
		}
		if _, err := s.GetTenant(t.Context(), &fairleadv1.GetTenantRequest{Id: "acme"}); err != nil {
			t.Errorf("not saved: %v", err)
		}
		<-time.After(10 * configureRetryDelay)
		told.set(nil)
		<-time.After(2 * configureRetryDelay)
		if p, ok := told.policy("acme"); !ok || p.Weight != 2000 {
			t.Errorf("never told: %+v", p)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// Whoever waits and goes away takes nobody's change along.
func TestCallerGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := plain(t)
		release := make(chan struct{})
		told.before = func() { <-release }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { // its call is under way when its context ends
			if _, err := s.CreateTenant(ctx, request("first", 1)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() { // waits for its turn
			_, err := s.CreateTenant(ctx, request("second", 1))
			if rejection.From(err).GetReason() != "CELL_BEHIND" {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		wg.Wait()
		runCtx, stop := context.WithTimeout(t.Context(), 2*configureRetryDelay)
		defer stop()
		if err := s.Run(runCtx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for _, id := range []cell.TenantID{"first", "second"} {
			if _, ok := told.policy(id); !ok {
				t.Errorf("%s was never told", id)
			}
		}
	})
}

// After a restart the cells are told of everybody.
func TestConfigureCells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := plain(t)
		for i := range policiesPerCall + 1 {
			c := command.CreateTenant{Tenant: cell.TenantID(fmt.Sprintf("t%04d", i)), Weight: 1, Time: 1}
			if _, err := s.propose(t.Context(), c); err != nil { // committed, and the process ends
				t.Fatal(err)
			}
		}
		told.set(errors.New("no leader"))
		if err := s.ConfigureCells(t.Context()); err == nil {
			t.Error("no error")
		}
		told.set(nil)
		if err := s.ConfigureCells(t.Context()); err != nil {
			t.Error(err)
		}
		if len(told.policies) != policiesPerCall+1 || told.largest > policiesPerCall {
			t.Errorf("%d told, at most %d at once", len(told.policies), told.largest)
		}
		<-s.reign.Load().link("cell-1").turn // somebody configures
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.ConfigureCells(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
