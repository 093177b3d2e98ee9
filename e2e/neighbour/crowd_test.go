package neighbour

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// crowd is many further tenants, each with a key.
type crowd struct {
	tb      testing.TB
	server  *harness.Server
	http    *http.Client // shared: a connection each would be another test
	secrets []client.Token
}

// callers is how many tenants are dealt with at once.
const callers = 64

func crowdName(i int) string { return fmt.Sprintf("crowd-%05d", i) }

// gather creates n tenants and their keys through the operator's API.
func gather(tb testing.TB, server *harness.Server, n int) *crowd {
	tb.Helper()
	hc, err := client.NewHTTPClient(server.Addr(), client.ProtocolAuto, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(hc.CloseIdleConnections)
	c := &crowd{tb: tb, server: server, http: hc, secrets: make([]client.Token, n)}
	admin := server.Conn("admin")
	tenants := fairleadv1connect.NewTenantServiceClient(admin.HTTP, admin.URL, admin.Options...)
	keys := fairleadv1connect.NewKeyServiceClient(admin.HTTP, admin.URL, admin.Options...)
	began := time.Now()
	c.each(func(i int) error {
		_, err := tenants.CreateTenant(tb.Context(), &fairleadv1.CreateTenantRequest{Id: crowdName(i)})
		return err
	})
	created := time.Now()
	c.each(func(i int) error {
		answer, err := keys.CreateKey(tb.Context(), &fairleadv1.CreateKeyRequest{
			Tenant: crowdName(i), Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_SUBMIT},
		})
		c.secrets[i] = client.Token(answer.GetSecret())
		return err
	})
	tb.Logf("%d tenants created in %v, a key for each in %v", n, created.Sub(began), time.Since(created))
	return c
}

// each calls do for each tenant, several at once.
func (c *crowd) each(do func(i int) error) {
	c.tb.Helper()
	next := make(chan int)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					c.tb.Errorf("%s: %v", crowdName(i), err)
				}
			}
		})
	}
	for i := range c.secrets {
		next <- i
	}
	close(next)
	wg.Wait()
	if c.tb.Failed() {
		c.tb.FailNow()
	}
}

// submit submits a job for each tenant.
func (c *crowd) submit(job func(i int) *fairleadv1.JobSpec) {
	c.tb.Helper()
	began := time.Now()
	c.each(func(i int) error {
		conn, err := client.Dial(client.Config{Addr: c.server.Addr(), Token: c.secrets[i], HTTPClient: c.http})
		if err != nil {
			return err
		}
		jobs := fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, conn.Options...)
		_, err = jobs.Submit(c.tb.Context(), &fairleadv1.SubmitRequest{Job: job(i)})
		return err
	})
	c.tb.Logf("a job of each of %d tenants accepted in %v", len(c.secrets), time.Since(began))
}

// wait gives each tenant a job that cannot run: every other one is delayed, the rest are of an operation that no worker offers.
func (c *crowd) wait() {
	c.tb.Helper()
	c.submit(func(i int) *fairleadv1.JobSpec {
		spec := c.spec()
		if i%2 == 0 {
			spec.Delay = anHour()
		} else {
			spec.Operation = unoffered
		}
		return spec
	})
}

// ready gives each tenant a job for the worker.
func (c *crowd) ready() {
	c.tb.Helper()
	c.submit(func(int) *fairleadv1.JobSpec { return c.spec() })
}

func (c *crowd) spec() *fairleadv1.JobSpec {
	return &fairleadv1.JobSpec{Operation: operation, Payload: &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: "0"}}}
}
