package tree_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestPromisesThatCannotBeKeptAreRefused (rule 3), with the numbers, and nothing is changed.
func TestPromisesThatCannotBeKeptAreRefused(t *testing.T) {
	both := func(a, b float64) [2]cell.Rate { return [2]cell.Rate{cell.Rate(units(a)), cell.Rate(units(b))} }
	cases := map[string]struct {
		set   func(w *world) error
		field string
		says  []string
	}{
		"an organization that is not known": {
			func(w *world) error { return w.set(cell.TenantPolicy{Tenant: "x", Organization: "nobody", Weight: 1}) },
			"organization",
			[]string{"nobody"},
		},
		"an id that is none":    {func(w *world) error { return w.set(cell.TenantPolicy{Tenant: "", Weight: 1}) }, "tenant.id", nil},
		"an organization's too": {func(w *world) error { return w.tree.SetOrganization(cell.OrganizationPolicy{Weight: 1}) }, "organization.id", nil},
		"a weight below 0":      {func(w *world) error { return w.set(cell.TenantPolicy{Tenant: "a", Weight: -1}) }, "weight", []string{"-1"}},
		"a reservation too high": {func(w *world) error {
			return w.set(cell.TenantPolicy{Tenant: "a", Reservation: [2]cell.Rate{0, cell.RateMax + 1}})
		}, "reservation_batch", nil},
		"a limit below the reservations of both classes": {
			func(w *world) error {
				return w.set(cell.TenantPolicy{Tenant: "a", Reservation: both(60, 50), Limit: cell.Rate(units(100))})
			},
			"limit",
			[]string{"100", "60", "50", "110"},
		},
		"credit that cannot be spent": {
			func(w *world) error { return w.set(cell.TenantPolicy{Tenant: "a", Credit: cell.Credit{Max: 5}}) }, "credit.extra", nil,
		},
		"a new tenant beyond what its organization reserves": {
			func(w *world) error {
				return w.set(cell.TenantPolicy{Tenant: "x", Organization: "m", Reservation: both(101, 0)})
			},
			"reservation_interactive",
			[]string{"101", "100", "200"},
		},
		"a tenant whose reservation is raised beyond it": {
			func(w *world) error {
				return w.set(cell.TenantPolicy{Tenant: "a", Organization: "m", Reservation: both(201, 0)})
			},
			"reservation_interactive",
			[]string{"201", "200"},
		},
		"a tenant that moves in with more than there is": {
			func(w *world) error {
				return w.set(cell.TenantPolicy{Tenant: "b", Organization: "m", Reservation: both(150, 0)})
			},
			"reservation_interactive",
			[]string{"150", "100", "200"},
		},
		"an organization that reserves less than its tenants": {
			func(w *world) error { return w.tree.SetOrganization(organization("m", 1, 99, 0)) }, "reservation_interactive", []string{"99", "100"},
		},
		"an organization's limit at its tenants' reservations": {
			func(w *world) error {
				p := organization("m", 1, 0, 100)
				return w.tree.SetOrganization(p)
			}, "limit", []string{"100"},
		},
		"a tenant's reservation that reaches its organization's limit": {
			func(w *world) error {
				return w.set(cell.TenantPolicy{Tenant: "x", Organization: "l", Reservation: both(30, 20)})
			},
			"organization",
			[]string{"50"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1000)
			w.organization(organization("m", 1, 200, 0))
			w.organization(organization("l", 1, 0, 50))
			w.tenant(claim{id: "a", reservation: 100, weight: 1, organization: "m"}, nil)
			w.tenant(claim{id: "b", reservation: 150, weight: 1}, nil)
			before := w.tree.Tenant("a").Policy()
			err := c.set(w)
			var field *cell.FieldError
			if !errors.As(err, &field) || field.Field != c.field || field.Remedy == "" {
				t.Fatalf("%v, want a fault of %s", err, c.field)
			}
			for _, number := range c.says {
				if !strings.Contains(err.Error(), number) {
					t.Errorf("%q does not say %s", err, number)
				}
			}
			m, _ := w.tree.Organization("m")
			if w.tree.Tenant("a").Policy() != before || w.tree.Tenant("x") != nil || m != organization("m", 1, 200, 0) {
				t.Error("something was changed")
			}
			if err := w.tree.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (w *world) set(p cell.TenantPolicy) error {
	_, err := w.tree.SetTenant(p, func(cell.Class) *line { return &line{} })
	return err
}

// TestFullTreeRefuses: the bounds on tenants and organizations hold for new ones only.
func TestFullTreeRefuses(t *testing.T) {
	cfg := tree.DefaultConfig()
	cfg.LanesMax, cfg.OrganizationsMax = 5, 1
	tr, err := tree.New[int](cfg)
	if err != nil {
		t.Fatal(err)
	}
	set := func(id cell.TenantID) error {
		_, err := tr.SetTenant(cell.TenantPolicy{Tenant: id, Weight: 1, Epoch: 1}, func(cell.Class) int { return 0 })
		return err
	}
	if err := errors.Join(set("a"), set("b"), set("a"), tr.SetOrganization(organization("m", 1, 0, 0)), tr.SetOrganization(organization("m", 2, 0, 0))); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{set("c"), tr.SetOrganization(organization("n", 1, 0, 0))} {
		var full *cell.LimitError
		if !errors.As(err, &full) || full.Value != full.Bound+1 || full.Remedy == "" {
			t.Errorf("refused with %v", err)
		}
	}
}

// TestConfigFaultsAreAllTold in one error.
func TestConfigFaultsAreAllTold(t *testing.T) {
	_, err := tree.New[int](tree.Config{Quantum: 1001, LanesMax: 1, Burst: [2]time.Duration{0, 2 * time.Hour}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"quantum", "lanes_max", "organizations_max", "interactive.burst", "batch.burst"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
}

// TestEditsReachWhatIsActive: each second of a running cell obeys the promises as they are then, for tenants that never stop waiting.
func TestEditsReachWhatIsActive(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 0, 0))
	w.tenant(claim{id: "a", cost: 1, weight: 1, organization: "m"}, nil)
	w.tenant(claim{id: "b", cost: 1, weight: 1, organization: "m"}, nil)
	w.tenant(claim{id: "c", cost: 1, weight: 2}, nil)
	edit := func(id string, change func(*cell.TenantPolicy)) {
		p := w.tree.Tenant(cell.TenantID(id)).Policy()
		change(&p)
		if _, err := w.tree.SetTenant(p, nil); err != nil {
			t.Fatal(err)
		}
		if w.tree.Tenant(cell.TenantID(id)).Policy() != p {
			t.Fatalf("%s: %+v", id, w.tree.Tenant(cell.TenantID(id)).Policy())
		}
	}
	reserve := func(rate float64) func(*cell.TenantPolicy) {
		return func(p *cell.TenantPolicy) { p.Reservation[testClass.Index()] = cell.Rate(units(rate)) }
	}
	weight := func(f float64) func(*cell.TenantPolicy) {
		return func(p *cell.TenantPolicy) { p.Weight = cell.Weight(f * 1000) }
	}
	steps := []struct {
		what    string
		do      func()
		a, b, c float64
	}{
		{"at first", func() {}, 500. / 3, 500. / 3, 2000. / 3},
		{"the weight of a tenant", func() { edit("b", weight(4)) }, 1000. / 15, 4000. / 15, 2000. / 3},
		{"the weight of the organization", func() { w.organization(organization("m", 8, 0, 0)) }, 160, 640, 200},
		{"a reservation", func() { edit("c", reserve(500)) }, 80, 320, 600},
		{"more of it", func() { edit("c", reserve(750)) }, 40, 160, 800},
		{"less of it", func() { edit("c", reserve(250)) }, 120, 480, 400},
		{"none", func() { edit("c", reserve(0)) }, 160, 640, 200},
		{"the organization's reservation", func() { w.organization(organization("m", 0.002, 500, 0)) }, 100, 400, 500},
		{"the organization's limit", func() { w.organization(organization("m", 8, 0, 100)) }, 20, 80, 900},
		{"a higher one", func() { w.organization(organization("m", 8, 0, 200)) }, 40, 160, 800},
		{"none", func() { w.organization(organization("m", 8, 0, 0)) }, 160, 640, 200},
		{"a tenant's limit", func() { edit("b", limit(100)) }, 600 + 100, 100, 200},
		{"a lower one", func() { edit("b", limit(10)) }, 790, 10, 200},
		{"none", func() { edit("b", limit(0)) }, 160, 640, 200},
		{"a move", func() { edit("c", func(p *cell.TenantPolicy) { p.Organization = "m" }) }, 1000. / 7, 4000. / 7, 2000. / 7},
		{"a move out", func() { edit("b", func(p *cell.TenantPolicy) { p.Organization = "" }) }, 8. / 12 * 1000 / 3, 4. / 12 * 1000, 16. / 12 * 1000 / 3},
		{"weight 0", func() { edit("b", weight(0)) }, 1000. / 3, 0, 2000. / 3},
		{"a weight again", func() { edit("b", weight(8)) }, 500. / 3, 500, 1000. / 3},
		{"credit", func() {
			edit("b", weight(0))
			edit("b", credit(10_000, 0, 250))
		}, 250, 250, 500},
		{"faster credit", func() { edit("b", credit(10_000, 0, 500)) }, 500. / 3, 500, 1000. / 3},
		{"no credit", func() { edit("b", credit(0, 0, 0)) }, 1000. / 3, 0, 2000. / 3},
	}
	for _, s := range steps {
		s.do()
		if err := w.tree.Check(); err != nil {
			t.Fatal(s.what, err)
		}
		w.run(2 * time.Second)
		got := w.rates(4 * time.Second)
		for id, want := range map[string]float64{"a": s.a, "b": s.b, "c": s.c} {
			if off := got[id] - want; off > 0.01*want+1 || off < -0.01*want-1 {
				t.Errorf("%s: %s gets %.1f a second, want %.1f", s.what, id, got[id], want)
			}
		}
	}
}

// TestRaisedLimitFreesWhoIsBlocked: what is left to pay takes as much shorter, at once.
func TestRaisedLimitFreesWhoIsBlocked(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", weight: 1}, limit(10))
	w.tree.Activate(w.lane(a), 0)
	w.one(1010)
	for _, c := range []struct{ rate, seconds float64 }{{10, 100}, {100, 10}, {1000, 1}, {10, 100}, {2000, 0.5}, {0, 0}} {
		p := w.tree.Tenant("a").Policy()
		limit(c.rate)(&p)
		if err := w.set(p); err != nil {
			t.Fatal(err)
		}
		want := cell.Instant(0)
		if c.seconds > 0 {
			want = w.now.Add(time.Duration(c.seconds * 1e9))
		}
		if got := w.tree.Wake(); got != want {
			t.Errorf("limit %v: wakes at %d, want %d", c.rate, got, want)
		}
		if err := w.tree.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if id, _ := w.one(1); id != "a" {
		t.Error("without a limit a is blocked")
	}
}
