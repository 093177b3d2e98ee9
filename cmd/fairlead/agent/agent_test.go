package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cmd/fairlead/agent"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// TestRestartLosesNothing submits to one process, stops it, and runs the job from the next one on the same directory, with the same keys.
func TestRestartLosesNothing(t *testing.T) {
	cfg := agent.DefaultConfig(t.TempDir(), "127.0.0.1:0")
	cfg.SampleTenants = []string{"acme"}
	start := func() (*agent.Agent, map[string]client.Token) {
		a, err := agent.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		keys := map[string]client.Token{}
		for _, k := range a.Credentials().Keys {
			keys[k.Name] = client.Token(k.Secret)
		}
		return a, keys
	}
	a, keys := start()
	got, err := newClient(t, a, keys["acme"]).Submit(t.Context(), client.Job{Operation: "echo", Payload: client.JSON(map[string]int{"n": 1})})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}

	a, again := start()
	if again["acme"] != keys["acme"] || again["admin"] != keys["admin"] {
		t.Fatal("the keys changed over a restart")
	}
	reg := worker.NewRegistry()
	worker.HandleResult(reg, "echo", func(_ context.Context, job *worker.Job[map[string]int]) (map[string]int, error) {
		return job.Args, nil
	})
	w, err := worker.New(worker.Config{Client: client.Config{Addr: a.Addr(), Token: keys["worker"]}, Slots: 2}, reg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	wait, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	job, err := newClient(t, a, keys["acme"]).Wait(wait, got.ID)
	if err != nil {
		t.Fatal(err)
	}
	if job.GetResult().GetJson() != `{"n":1}` {
		t.Fatalf("result: %v", job)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPromisesAtStart gives a process a policy: what it names is promised at every start, and a sample tenant that it does not name gets
// its default.
func TestPromisesAtStart(t *testing.T) {
	cfg := agent.DefaultConfig(t.TempDir(), "127.0.0.1:0")
	file, err := policy.Parse("p", []byte(`
cost: {unit: tokens}
organizations: [{id: group, reservation: {batch: 5}}]
tenants: [{id: alder, organization: group, reservation: {batch: 4}}]
default: {weight: 2, running_max: 3}
`))
	if err != nil {
		t.Fatal(err)
	}
	start := func() (*fairleadv1.Tenant, *fairleadv1.Tenant, string) {
		t.Helper()
		cfg.Leader.Sched, cfg.Leader.Costing = file.Sched, file.Costing
		cfg.Organizations, cfg.Tenants, cfg.SamplePolicy, cfg.SampleTenants = file.Organizations, file.Tenants, file.Default, []string{"alder", "fir"}
		a, err := agent.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		conn, err := client.Dial(client.Config{Addr: a.Addr(), Token: client.Token(a.Credentials().Keys[0].Secret)})
		if err != nil {
			t.Fatal(err)
		}
		tenants := fairleadv1connect.NewTenantServiceClient(conn.HTTP, conn.URL, conn.Options...)
		alder, err := tenants.ExplainTenant(t.Context(), &fairleadv1.ExplainTenantRequest{Id: "alder"})
		if err != nil {
			t.Fatal(err)
		}
		fir, err := tenants.GetTenant(t.Context(), &fairleadv1.GetTenantRequest{Id: "fir"})
		if err != nil {
			t.Fatal(err)
		}
		if o := alder.GetOrganization(); o.GetId() != "group" || o.GetReservationBatch() != file.Organizations[0].Reservation[1].Float() {
			t.Errorf("its organization is %v", o)
		}
		return alder.GetTenant(), fir.GetTenant(), alder.GetCostUnit()
	}
	alder, fir, unit := start()
	if alder.GetReservationBatch() != 4 || alder.GetOrganization() != "group" || unit != "tokens" {
		t.Errorf("%v, in %s", alder, unit)
	}
	if fir.GetWeight() != 2 || fir.GetRunningMax() != 3 {
		t.Errorf("%v", fir)
	}
	file.Organizations[0].Reservation[1], file.Tenants[0].Reservation[1], file.Default.Weight = 2_000_000, 1_000_000, 9000
	alder, fir, _ = start()
	if alder.GetReservationBatch() != 1 {
		t.Errorf("%v", alder)
	}
	if fir.GetWeight() != 2 { // it was there
		t.Errorf("%v", fir)
	}
}

func newClient(t *testing.T, a *agent.Agent, token client.Token) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addr: a.Addr(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
