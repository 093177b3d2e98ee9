package controlserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeLog is a log that applies at once, unless fail says otherwise.
type fakeLog struct {
	machine *Machine

	mu    sync.Mutex
	index uint64
	fail  error
}

func (f *fakeLog) Propose(_ context.Context, data []byte) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	f.index++
	return f.machine.Apply(f.index, data), nil
}

func (f *fakeLog) set(fail error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// fakeCells remembers the policies that it was told last, and like a cell refuses what does not fit in what it knows.
type fakeCells struct {
	mu            sync.Mutex
	organizations map[cell.OrganizationID]cell.OrganizationPolicy
	policies      map[cell.TenantID]cell.TenantPolicy
	calls         int
	largest       int
	fail          error
	before        func() // called at the beginning of a call, without the lock
}

func newFakeCells() *fakeCells {
	return &fakeCells{
		organizations: map[cell.OrganizationID]cell.OrganizationPolicy{}, policies: map[cell.TenantID]cell.TenantPolicy{},
	}
}

func (f *fakeCells) Configure(_ context.Context, organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) error {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before != nil {
		before()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.largest = max(f.largest, len(organizations)+len(tenants))
	if f.fail != nil {
		return f.fail
	}
	var first error
	for _, o := range organizations {
		err := o.CheckReserved(f.reserved(o.Organization, ""))
		if first = cmp.Or(first, err); err == nil {
			f.organizations[o.Organization] = o
		}
	}
	for _, p := range tenants {
		err := p.CheckWithin(f.organizations[p.Organization], f.reserved(p.Organization, p.Tenant))
		if first = cmp.Or(first, err); err == nil {
			f.policies[p.Tenant] = p
		}
	}
	return first
}

// reserved sums what the organization's tenants reserve, but for one.
func (f *fakeCells) reserved(id cell.OrganizationID, except cell.TenantID) (sum [2]cell.Rate) {
	for _, p := range f.policies {
		if p.Organization == id && p.Tenant != except && id != "" {
			sum[0], sum[1] = sum[0]+p.Reservation[0], sum[1]+p.Reservation[1]
		}
	}
	return sum
}

func (f *fakeCells) ExplainTenant(_ context.Context, tenant cell.TenantID) (*fairleadv1.ExplainTenantResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: "NO_LEADER", Message: f.fail.Error()})
	}
	return &fairleadv1.ExplainTenantResponse{Cell: "cell-of-" + string(tenant), Running: 7}, nil
}

func (f *fakeCells) policy(id cell.TenantID) (cell.TenantPolicy, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.policies[id]
	return p, ok
}

func (f *fakeCells) set(fail error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// fakeClock stands until it is moved.
type fakeClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *fakeClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// rig is a server behind real HTTP, with everything around it fake.
type rig struct {
	*Server
	tenants fairleadv1connect.TenantServiceClient
	keys    fairleadv1connect.KeyServiceClient
	groups  fairleadv1connect.OrganizationServiceClient
	log     *fakeLog
	told    *fakeCells
	clock   *fakeClock
	lines   *bytes.Buffer // what is logged; read only when nothing runs
}

func start(t *testing.T) *rig {
	t.Helper()
	m := NewMachine()
	r := &rig{
		log: &fakeLog{machine: m}, told: newFakeCells(),
		clock: &fakeClock{at: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}, lines: &bytes.Buffer{},
	}
	s, err := New(Config{
		Now: r.clock.now, Log: slog.New(slog.NewTextHandler(r.lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, r.log, r.told, m)
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewTenantServiceHandler(s))
	mux.Handle(fairleadv1connect.NewKeyServiceHandler(s))
	mux.Handle(fairleadv1connect.NewOrganizationServiceHandler(s))
	hs := httptest.NewServer(mux)
	t.Cleanup(hs.Close)
	r.tenants = fairleadv1connect.NewTenantServiceClient(hs.Client(), hs.URL)
	r.keys = fairleadv1connect.NewKeyServiceClient(hs.Client(), hs.URL)
	r.groups = fairleadv1connect.NewOrganizationServiceClient(hs.Client(), hs.URL)
	return r
}

func (r *rig) create(t *testing.T, id string) *fairleadv1.Tenant {
	t.Helper()
	a, err := r.tenants.CreateTenant(t.Context(), &fairleadv1.CreateTenantRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return a.GetTenant()
}

func (r *rig) key(t *testing.T, req *fairleadv1.CreateKeyRequest) (*fairleadv1.Key, Secret) {
	t.Helper()
	a, err := r.keys.CreateKey(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSecret("secret", a.GetSecret())
	if err != nil {
		t.Fatal(err)
	}
	return a.GetKey(), s
}

func TestTenantLife(t *testing.T) {
	r := start(t)
	a, err := r.tenants.CreateTenant(t.Context(), &fairleadv1.CreateTenantRequest{
		Id: "acme", DisplayName: "Acme", Weight: new(2.5), BacklogJobsMax: 10, BacklogBytesMax: 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := a.GetTenant()
	if got.GetWeight() != 2.5 || got.GetBacklogJobsMax() != 10 || !got.GetCreateTime().AsTime().Equal(r.clock.now()) {
		t.Errorf("created %v", got)
	}
	if p, _ := r.told.policy("acme"); p != (cell.TenantPolicy{Tenant: "acme", Weight: 2500, BacklogJobsMax: 10, BacklogBytesMax: 20, Epoch: 2}) {
		t.Errorf("the cell knows %+v", p)
	}
	if w := r.create(t, "plain").GetWeight(); w != 1 {
		t.Errorf("weight %v when unset", w)
	}
	r.clock.move(time.Minute)
	u, err := r.tenants.UpdateTenant(t.Context(), &fairleadv1.UpdateTenantRequest{Id: "acme", Weight: new(0.0)})
	if err != nil || u.GetTenant().GetWeight() != 0 || u.GetTenant().GetDisplayName() != "Acme" {
		t.Errorf("updated %v, %v", u, err)
	}
	if p, _ := r.told.policy("acme"); p.Weight != 0 || p.BacklogJobsMax != 10 {
		t.Errorf("the cell knows %+v", p)
	}
	g, err := r.tenants.GetTenant(t.Context(), &fairleadv1.GetTenantRequest{Id: "acme"})
	if err != nil || !proto.Equal(g.GetTenant(), u.GetTenant()) || !g.GetTenant().GetUpdateTime().AsTime().After(got.GetUpdateTime().AsTime()) {
		t.Errorf("got %v, %v", g, err)
	}
}

func TestKeyLife(t *testing.T) {
	r := start(t)
	r.create(t, "acme")
	k, secret := r.key(t, &fairleadv1.CreateKeyRequest{
		Tenant: "acme", Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_WORK, fairleadv1.Scope_SCOPE_SUBMIT}, Description: "ci",
		Operations: []string{"a.b"}, Lifetime: durationpb.New(time.Hour),
	})
	if !strings.HasPrefix(secret.Reveal(), "flk_") || len(secret.Reveal()) != 47 {
		t.Errorf("a secret of %d bytes", len(secret.Reveal()))
	}
	c, ok := r.Lookup(secret.Hash())
	if !ok || c.Key != k.GetId() || c.Tenant != "acme" || !c.May(cell.PermissionSubmit) || !c.MayLease("a.b") || c.MayLease("c") ||
		c.May(cell.PermissionRead) {
		t.Errorf("looked up %+v, %v", c, ok)
	}
	if _, ok := r.Lookup([32]byte{}); ok {
		t.Error("an unknown key is known")
	}
	r.clock.move(time.Hour - time.Nanosecond)
	if _, ok := r.Lookup(secret.Hash()); !ok {
		t.Error("expired too soon")
	}
	r.clock.move(time.Nanosecond)
	if _, ok := r.Lookup(secret.Hash()); ok {
		t.Error("not expired in time")
	}

	k2, secret2 := r.key(t, &fairleadv1.CreateKeyRequest{Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_OPERATE}})
	if secret2 == secret || k2.GetExpireTime() != nil || k2.GetTenant() != "" {
		t.Errorf("%v", k2)
	}
	for range 2 { // again changes nothing
		rev, err := r.keys.RevokeKey(t.Context(), &fairleadv1.RevokeKeyRequest{Id: k2.GetId()})
		if err != nil || rev.GetKey().GetRevokeTime() == nil {
			t.Fatalf("%v, %v", rev, err)
		}
		if _, ok := r.Lookup(secret2.Hash()); ok {
			t.Error("a revoked key is known after the answer")
		}
		r.clock.move(time.Second)
	}
	l, err := r.keys.ListKeys(t.Context(), &fairleadv1.ListKeysRequest{})
	if err != nil || len(l.GetKeys()) != 2 || !proto.Equal(l.GetKeys()[0], k) || l.GetKeys()[1].GetRevokeTime() == nil {
		t.Errorf("listed %v, %v", l, err)
	}
}

// Each kind of bad input gets its own typed answer, with a remedy, and changes nothing.
func TestRefusals(t *testing.T) {
	r := start(t)
	r.create(t, "acme")
	r.clock.move(time.Nanosecond) // the same command at the same time would be a repeated proposal
	admin, _ := r.key(t, &fairleadv1.CreateKeyRequest{Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_ADMIN}})
	submit := []fairleadv1.Scope{fairleadv1.Scope_SCOPE_SUBMIT}
	work := []fairleadv1.Scope{fairleadv1.Scope_SCOPE_WORK}
	createTenant := func(req *fairleadv1.CreateTenantRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.tenants.CreateTenant(ctx, req); return err }
	}
	updateTenant := func(req *fairleadv1.UpdateTenantRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.tenants.UpdateTenant(ctx, req); return err }
	}
	getTenant := func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.tenants.GetTenant(ctx, &fairleadv1.GetTenantRequest{Id: id})
			return err
		}
	}
	listTenants := func(req *fairleadv1.ListTenantsRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.tenants.ListTenants(ctx, req); return err }
	}
	createKey := func(req *fairleadv1.CreateKeyRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.keys.CreateKey(ctx, req); return err }
	}
	revokeKey := func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.keys.RevokeKey(ctx, &fairleadv1.RevokeKeyRequest{Id: id})
			return err
		}
	}
	listKeys := func(req *fairleadv1.ListKeysRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.keys.ListKeys(ctx, req); return err }
	}
	const bad, notFound = connect.CodeInvalidArgument, connect.CodeNotFound
	cases := map[string]struct {
		call   func(context.Context) error
		code   connect.Code
		reason string
		field  string
	}{
		"tenant twice":         {createTenant(&fairleadv1.CreateTenantRequest{Id: "acme"}), connect.CodeAlreadyExists, "ALREADY_EXISTS", "id"},
		"tenant without id":    {createTenant(&fairleadv1.CreateTenantRequest{}), bad, "BAD_FIELD", "id"},
		"tenant star":          {createTenant(&fairleadv1.CreateTenantRequest{Id: "*"}), bad, "BAD_FIELD", "id"},
		"tenant of spaces":     {createTenant(&fairleadv1.CreateTenantRequest{Id: "a b"}), bad, "BAD_FIELD", "id"},
		"tenant, long id":      {createTenant(&fairleadv1.CreateTenantRequest{Id: strings.Repeat("x", 129)}), bad, "BAD_FIELD", "id"},
		"tenant, NaN":          {createTenant(&fairleadv1.CreateTenantRequest{Id: "a", Weight: new(math.NaN())}), bad, "BAD_FIELD", "weight"},
		"tenant, infinite":     {createTenant(&fairleadv1.CreateTenantRequest{Id: "a", Weight: new(math.Inf(1))}), bad, "BAD_FIELD", "weight"},
		"tenant, negative":     {createTenant(&fairleadv1.CreateTenantRequest{Id: "a", Weight: new(-1.0)}), bad, "BAD_FIELD", "weight"},
		"tenant, tiny weight":  {createTenant(&fairleadv1.CreateTenantRequest{Id: "a", Weight: new(0.0001)}), bad, "BAD_FIELD", "weight"},
		"tenant, jobs":         {createTenant(&fairleadv1.CreateTenantRequest{Id: "a", BacklogJobsMax: -1}), bad, "BAD_FIELD", "backlog_jobs_max"},
		"tenant, escape":       {createTenant(&fairleadv1.CreateTenantRequest{Id: "a", DisplayName: "\x1b[2J"}), bad, "BAD_FIELD", "display_name"},
		"update unknown":       {updateTenant(&fairleadv1.UpdateTenantRequest{Id: "nobody", Weight: new(1.0)}), notFound, "NOT_FOUND", "tenant"},
		"update NaN":           {updateTenant(&fairleadv1.UpdateTenantRequest{Id: "acme", Weight: new(math.NaN())}), bad, "BAD_FIELD", "weight"},
		"update nothing":       {updateTenant(&fairleadv1.UpdateTenantRequest{Id: "acme"}), bad, "BAD_FIELD", "request"},
		"get unknown":          {getTenant("nobody"), notFound, "NOT_FOUND", "tenant"},
		"get nothing":          {getTenant(""), bad, "BAD_FIELD", "id"},
		"huge page":            {listTenants(&fairleadv1.ListTenantsRequest{PageSize: 501}), bad, "BAD_FIELD", "page_size"},
		"negative page":        {listTenants(&fairleadv1.ListTenantsRequest{PageSize: -1}), bad, "BAD_FIELD", "page_size"},
		"made-up token":        {listTenants(&fairleadv1.ListTenantsRequest{PageToken: "acme"}), bad, "BAD_FIELD", "page_token"},
		"another list's token": {listTenants(&fairleadv1.ListTenantsRequest{PageToken: pageToken("keys", "k")}), bad, "BAD_FIELD", "page_token"},
		"key without scopes":   {createKey(&fairleadv1.CreateKeyRequest{Tenant: "acme"}), bad, "BAD_FIELD", "scopes"},
		"key, unspecified": {
			createKey(&fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{0}}), bad, "BAD_FIELD", "scopes[0]",
		},
		"key, made-up scope": {
			createKey(&fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{1, 99}}), bad, "BAD_FIELD", "scopes[1]",
		},
		"key, scope twice":        {createKey(&fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{1, 1}}), bad, "BAD_FIELD", "scopes"},
		"tenant's admin":          {createKey(&fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{5}}), bad, "BAD_FIELD", "scopes"},
		"platform's submit":       {createKey(&fairleadv1.CreateKeyRequest{Scopes: submit}), bad, "BAD_FIELD", "scopes"},
		"key of an unknown":       {createKey(&fairleadv1.CreateKeyRequest{Tenant: "nobody", Scopes: submit}), notFound, "NOT_FOUND", "tenant"},
		"key of star":             {createKey(&fairleadv1.CreateKeyRequest{Tenant: "*", Scopes: submit}), bad, "BAD_FIELD", "tenant"},
		"operations, no work":     {createKey(&fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: submit, Operations: []string{"a"}}), bad, "BAD_FIELD", "operations"},
		"star operation":          {createKey(&fairleadv1.CreateKeyRequest{Scopes: work, Operations: []string{"*"}}), bad, "BAD_FIELD", "operations[0]"},
		"no lifetime":             {createKey(&fairleadv1.CreateKeyRequest{Scopes: work, Lifetime: durationpb.New(0)}), bad, "BAD_FIELD", "lifetime"},
		"negative lifetime":       {createKey(&fairleadv1.CreateKeyRequest{Scopes: work, Lifetime: durationpb.New(-1)}), bad, "BAD_FIELD", "lifetime"},
		"endless lifetime":        {createKey(&fairleadv1.CreateKeyRequest{Scopes: work, Lifetime: &durationpb.Duration{Seconds: math.MaxInt64}}), bad, "BAD_FIELD", "lifetime"},
		"revoke unknown":          {revokeKey("key_nobody"), notFound, "NOT_FOUND", "key"},
		"revoke star":             {revokeKey("*"), bad, "BAD_FIELD", "id"},
		"revoke the last admin":   {revokeKey(admin.GetId()), connect.CodeFailedPrecondition, "LAST_ADMIN", "id"},
		"keys of an unknown":      {listKeys(&fairleadv1.ListKeysRequest{Tenant: "nobody"}), notFound, "NOT_FOUND", "tenant"},
		"keys, huge page":         {listKeys(&fairleadv1.ListKeysRequest{PageSize: 1000}), bad, "BAD_FIELD", "page_size"},
		"keys, all's token":       {listKeys(&fairleadv1.ListKeysRequest{Tenant: "acme", PageToken: pageToken("keys", "k")}), bad, "BAD_FIELD", "page_token"},
		"keys, another's token":   {listKeys(&fairleadv1.ListKeysRequest{PageToken: pageToken("keys of acme", "k")}), bad, "BAD_FIELD", "page_token"},
		"keys, token of no bytes": {listKeys(&fairleadv1.ListKeysRequest{PageToken: "!"}), bad, "BAD_FIELD", "page_token"},
	}
	before := r.machine.View()
	for name, c := range cases {
		err := c.call(t.Context())
		rej := rejection.From(err)
		if connect.CodeOf(err) != c.code || rej.GetReason() != c.reason || rej.GetField() != c.field || !strings.Contains(rej.GetMessage(), ": ") {
			t.Errorf("%s: %v, %v", name, err, rej)
		}
	}
	after := r.machine.View()
	if got, want := slices.Collect(after.Tenants("")), slices.Collect(before.Tenants("")); !reflect.DeepEqual(got, want) {
		t.Errorf("tenants %v after refusals, %v before", got, want)
	}
	if got, want := len(slices.Collect(after.Keys(""))), len(slices.Collect(before.Keys(""))); got != want {
		t.Errorf("%d keys after refusals, %d before", got, want)
	}
}

func TestKeysAreBounded(t *testing.T) {
	r := start(t)
	r.create(t, "acme")
	req := &fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_READ}}
	for range state.KeysPerTenantMax {
		r.key(t, req)
	}
	_, err := r.keys.CreateKey(t.Context(), req)
	rej := rejection.From(err)
	if connect.CodeOf(err) != connect.CodeResourceExhausted || rej.GetLimit() != "keys_per_tenant_max" || rej.GetBound() != 100 || rej.GetValue() != 101 {
		t.Errorf("%v, %v", err, rej)
	}
}

// Pages cover a list once and in order, while rows come and go.
func TestPages(t *testing.T) {
	r := start(t)
	var want []string
	for i := range 25 {
		want = append(want, r.create(t, fmt.Sprintf("t%02d", i)).GetId())
	}
	var got []string
	token := ""
	for n := 0; n == 0 || token != ""; n++ {
		a, err := r.tenants.ListTenants(t.Context(), &fairleadv1.ListTenantsRequest{PageSize: 10, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range a.GetTenants() {
			got = append(got, row.GetId())
		}
		token = a.GetNextPageToken()
		if n == 0 {
			r.create(t, "a-late-one") // before the page's end: not seen, and moves nothing
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	// A page that ends the list says so.
	a, err := r.tenants.ListTenants(t.Context(), &fairleadv1.ListTenantsRequest{PageSize: 26})
	if err != nil || len(a.GetTenants()) != 26 || a.GetNextPageToken() != "" {
		t.Errorf("%d tenants, token %q, %v", len(a.GetTenants()), a.GetNextPageToken(), err)
	}

	var keys []string
	for range 12 {
		k, _ := r.key(t, &fairleadv1.CreateKeyRequest{Tenant: "t00", Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_READ}})
		keys = append(keys, k.GetId())
		r.key(t, &fairleadv1.CreateKeyRequest{Tenant: "t01", Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_READ}})
	}
	got, token = nil, ""
	for n := 0; n == 0 || token != ""; n++ {
		a, err := r.keys.ListKeys(t.Context(), &fairleadv1.ListKeysRequest{Tenant: "t00", PageSize: 5, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range a.GetKeys() {
			got = append(got, row.GetId())
		}
		token = a.GetNextPageToken()
	}
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		t.Errorf("keys %v, want %v", got, keys)
	}
}

// What the log says of an outcome is what the caller is told, without its inner words.
func TestLogErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason string
		again  bool
	}{
		"not applied": {fmt.Errorf("%w: %w: inner words", consensus.ErrNotApplied, consensus.ErrNotLeader), "NOT_APPLIED", true},
		"unknown":     {fmt.Errorf("%w: inner words", consensus.ErrUnknown), "OUTCOME_UNKNOWN", false},
		"other":       {errors.New("inner words"), "OUTCOME_UNKNOWN", false},
	} {
		r := start(t)
		r.log.set(c.err)
		_, err := r.tenants.CreateTenant(t.Context(), &fairleadv1.CreateTenantRequest{Id: "acme"})
		rej := rejection.From(err)
		if connect.CodeOf(err) != connect.CodeUnavailable || rej.GetReason() != c.reason || (rej.GetRetryAfter() != nil) != c.again ||
			strings.Contains(err.Error(), "inner words") || !strings.Contains(r.lines.String(), "inner words") {
			t.Errorf("%s: %v, %v", name, err, rej)
		}
		if _, ok := r.told.policy("acme"); ok {
			t.Errorf("%s: the cell was told", name)
		}
	}
}

// No way of printing or logging shows a secret, and a bad one is not quoted.
func TestSecretIsMasked(t *testing.T) {
	s := NewSecret()
	if s == NewSecret() {
		t.Error("twice the same secret")
	}
	var b bytes.Buffer
	l := slog.New(slog.NewJSONHandler(&b, nil))
	l.Info("x", "secret", s, "in", struct{ S Secret }{s})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, verb, s)
		fmt.Fprintf(&b, verb, []Secret{s})
	}
	if leak := s.Reveal()[len(secretPrefix):]; strings.Contains(b.String(), leak) || strings.Contains(b.String(), fmt.Sprintf("%x", leak)) {
		t.Error(b.String())
	}
	for _, bad := range []string{
		"", "flk_", "canary", "flk_canary", s.Reveal() + "A", s.Reveal()[1:], "xyz_" + s.Reveal()[4:], s.Reveal()[:46] + "!", s.Reveal()[:46] + "_",
	} {
		_, err := ParseSecret("secret", bad)
		if fe, ok := errors.AsType[*cell.FieldError](err); !ok || fe.Field != "secret" || bad != "" && strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := ParseSecret("secret", s.Reveal()); err != nil || got.Hash() != s.Hash() {
		t.Error(err)
	}

	r := start(t)
	r.create(t, "acme")
	_, created := r.key(t, &fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_READ}})
	if strings.Contains(r.lines.String(), created.Reveal()) {
		t.Error("a secret is in the log")
	}
}

func sample() (Start, Secret, Secret) {
	admin, acme := NewSecret(), NewSecret()
	return Start{
		Tenants: []StartTenant{
			{Policy: cell.TenantPolicy{Tenant: "acme", Weight: cell.WeightDefault}, DisplayName: "Acme"}, {Policy: cell.TenantPolicy{Tenant: "globex", Weight: 2000}},
		},
		Keys: []StartKey{
			{ID: "key_admin", Permissions: []cell.Permission{cell.PermissionAdmin, cell.PermissionOperate}, Secret: admin},
			{ID: "key_acme", Tenant: "acme", Permissions: []cell.Permission{cell.PermissionSubmit, cell.PermissionRead}, Secret: acme},
		},
	}, admin, acme
}

// Bootstrap makes what is missing, once, and undoes nothing that was done since.
func TestBootstrap(t *testing.T) {
	r := start(t)
	s, admin, acme := sample()
	for range 3 {
		if err := r.Bootstrap(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if c, ok := r.Lookup(admin.Hash()); !ok || !c.May(cell.PermissionAdmin) || !c.May(cell.PermissionOperate) {
		t.Errorf("%+v, %v", c, ok)
	}
	if c, ok := r.Lookup(acme.Hash()); !ok || c.Tenant != "acme" {
		t.Errorf("%+v, %v", c, ok)
	}
	if p, _ := r.told.policy("globex"); p.Weight != 2000 {
		t.Errorf("%+v", p)
	}
	if _, err := r.tenants.UpdateTenant(t.Context(), &fairleadv1.UpdateTenantRequest{Id: "globex", Weight: new(7.0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.keys.RevokeKey(t.Context(), &fairleadv1.RevokeKeyRequest{Id: "key_acme"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Bootstrap(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if p, _ := r.told.policy("globex"); p.Weight != 7000 {
		t.Errorf("a changed tenant was changed back: %+v", p)
	}
	if _, ok := r.Lookup(acme.Hash()); ok {
		t.Error("a revoked key was brought back")
	}
	other := s
	other.Keys = slices.Clone(s.Keys)
	other.Keys[0].Secret = NewSecret()
	if _, ok := errors.AsType[*state.ExistsError](r.Bootstrap(t.Context(), other)); !ok {
		t.Error("another secret under the same id was taken")
	}
	other.Keys[0].Secret = Secret{"weak"}
	if _, ok := errors.AsType[*cell.FieldError](r.Bootstrap(t.Context(), other)); !ok {
		t.Error("a weak secret was taken")
	}
}

func TestNewRefuses(t *testing.T) {
	m := NewMachine()
	for name, err := range map[string]error{
		"log": second(New(Config{}, nil, &fakeCells{}, m)), "cells": second(New(Config{}, &fakeLog{}, nil, m)),
		"machine": second(New(Config{}, &fakeLog{}, &fakeCells{}, nil)),
	} {
		if err == nil {
			t.Errorf("taken without its %s", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func BenchmarkLookup(b *testing.B) {
	m := NewMachine()
	l := &fakeLog{machine: m}
	s, err := New(Config{Log: slog.New(slog.DiscardHandler)}, l, newFakeCells(), m)
	if err != nil {
		b.Fatal(err)
	}
	var hash [32]byte
	for i := range 10_000 {
		hash = NewSecret().Hash()
		id := fmt.Sprint("t", i)
		for _, c := range []command.Command{
			command.CreateTenant{Tenant: cell.TenantID(id), Time: 1},
			command.CreateKey{Key: command.KeyID(id), Tenant: cell.TenantID(id), Permissions: []cell.Permission{1}, Hash: hash, Time: 1},
		} {
			if _, err := s.propose(b.Context(), c); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Lookup(hash); !ok {
			b.Fatal("unknown")
		}
	}
}
