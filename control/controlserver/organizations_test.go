package controlserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

func TestOrganizationLife(t *testing.T) {
	r := start(t)
	a, err := r.groups.CreateOrganization(t.Context(), &fairleadv1.CreateOrganizationRequest{
		Id: "group", DisplayName: "The group", ReservationBatch: 3600.5, Limit: 9000,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &fairleadv1.Organization{
		Id: "group", DisplayName: "The group", Weight: 1, ReservationBatch: 3600.5, Limit: 9000,
		CreateTime: timeMessage(r.instant()), UpdateTime: timeMessage(r.instant()),
	}
	if !proto.Equal(a.GetOrganization(), want) {
		t.Errorf("created %v", a)
	}
	policy := cell.OrganizationPolicy{Organization: "group", Weight: 1000, Reservation: [2]cell.Rate{0, 3_600_500_000}, Limit: 9_000_000_000, Epoch: 1}
	if got := r.told.organizations["group"]; got != policy {
		t.Errorf("the cell knows %+v", got)
	}
	r.clock.move(time.Minute)
	u, err := r.groups.UpdateOrganization(t.Context(), &fairleadv1.UpdateOrganizationRequest{
		Id: "group", Weight: new(2.5), ReservationInteractive: new(1.0), ReservationBatch: new(0.0),
	})
	want.Weight, want.ReservationInteractive, want.ReservationBatch, want.UpdateTime = 2.5, 1, 0, timeMessage(r.instant())
	if err != nil || !proto.Equal(u.GetOrganization(), want) {
		t.Errorf("updated %v, %v", u, err)
	}
	if got := r.told.organizations["group"]; got.Epoch != 2 || got.Weight != 2500 {
		t.Errorf("the cell knows %+v", got)
	}
	g, err := r.groups.GetOrganization(t.Context(), &fairleadv1.GetOrganizationRequest{Id: "group"})
	if err != nil || !proto.Equal(g.GetOrganization(), want) {
		t.Errorf("got %v, %v", g, err)
	}
	for i := range 3 {
		if _, err := r.groups.CreateOrganization(t.Context(), &fairleadv1.CreateOrganizationRequest{Id: fmt.Sprint("o", i), Weight: new(0.0)}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	token := ""
	for {
		l, err := r.groups.ListOrganizations(t.Context(), &fairleadv1.ListOrganizationsRequest{PageSize: 3, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range l.GetOrganizations() {
			ids = append(ids, o.GetId())
		}
		if token = l.GetNextPageToken(); token == "" {
			break
		}
	}
	if got := strings.Join(ids, " "); got != "group o0 o1 o2" {
		t.Error(got)
	}
}

// Everything that a tenant is promised goes to its cell, comes back as it was given, and can be taken away.
func TestPromises(t *testing.T) {
	r := start(t)
	if _, err := r.groups.CreateOrganization(t.Context(), &fairleadv1.CreateOrganizationRequest{Id: "group"}); err != nil {
		t.Fatal(err)
	}
	asked := &fairleadv1.CreateTenantRequest{
		Id: "alder", Organization: "group", Weight: new(3.0), ReservationInteractive: 0.000001, ReservationBatch: 3600, Limit: 5400.25,
		Credit: &fairleadv1.Credit{Max: 180_000, Refill: 100, Extra: 600}, RunningMax: 8, Starts: &fairleadv1.StartRate{Jobs: 2, Per: durationpb.New(2 * time.Minute)},
	}
	a, err := r.tenants.CreateTenant(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	want := &fairleadv1.Tenant{
		Id: "alder", Organization: "group", Weight: 3, ReservationInteractive: 0.000001, ReservationBatch: 3600, Limit: 5400.25,
		Credit: asked.GetCredit(), RunningMax: 8, Starts: asked.GetStarts(), CreateTime: timeMessage(r.instant()), UpdateTime: timeMessage(r.instant()),
		Cell: "cell-1", Epoch: 2,
	}
	if !proto.Equal(a.GetTenant(), want) {
		t.Errorf("created %v", a.GetTenant())
	}
	policy := cell.TenantPolicy{
		Tenant: "alder", Organization: "group", Weight: 3000, Reservation: [2]cell.Rate{1, 3_600_000_000}, Limit: 5_400_250_000,
		Credit:     cell.Credit{Max: 180_000_000_000, Refill: 100_000_000, Extra: 600_000_000},
		RunningMax: 8, Starts: cell.StartRate{Jobs: 2, Per: 2 * time.Minute}, Epoch: 2,
	}
	if got, _ := r.told.policy("alder"); got != policy {
		t.Errorf("the cell knows %+v", got)
	}
	r.create(t, "loner")
	l, err := r.tenants.ListTenants(t.Context(), &fairleadv1.ListTenantsRequest{Organization: "group"})
	if err != nil || len(l.GetTenants()) != 1 || l.GetTenants()[0].GetId() != "alder" {
		t.Errorf("listed %v, %v", l, err)
	}
	u, err := r.tenants.UpdateTenant(t.Context(), &fairleadv1.UpdateTenantRequest{
		Id: "alder", Organization: new(""), ReservationInteractive: new(0.0), ReservationBatch: new(0.0), Limit: new(0.0),
		Credit: &fairleadv1.Credit{}, RunningMax: new(int64(0)), Starts: &fairleadv1.StartRate{},
	})
	bare := &fairleadv1.Tenant{Id: "alder", Weight: 3, CreateTime: want.GetCreateTime(), UpdateTime: want.GetUpdateTime(), Cell: "cell-1", Epoch: 2}
	if err != nil || !proto.Equal(u.GetTenant(), bare) {
		t.Errorf("updated %v, %v", u, err)
	}
}

// What may not be promised is refused by the API's field, with the numbers, and neither the log nor a cell has it.
func TestPromisesRefused(t *testing.T) {
	r := start(t)
	group := &fairleadv1.CreateOrganizationRequest{Id: "group", ReservationBatch: 100, Limit: 200}
	if _, err := r.groups.CreateOrganization(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	create := func(q *fairleadv1.CreateTenantRequest) error {
		_, err := r.tenants.CreateTenant(t.Context(), q)
		return err
	}
	update := func(q *fairleadv1.UpdateOrganizationRequest) error {
		_, err := r.groups.UpdateOrganization(t.Context(), q)
		return err
	}
	if err := create(&fairleadv1.CreateTenantRequest{Id: "member", Organization: "group", ReservationBatch: 60}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err   error
		code  connect.Code
		field string
		words string
	}{
		"no number":       {create(&fairleadv1.CreateTenantRequest{Id: "x", Limit: -1}), connect.CodeInvalidArgument, "limit", "0 to 1000000"},
		"too fine":        {create(&fairleadv1.CreateTenantRequest{Id: "x", ReservationInteractive: 1e-9}), connect.CodeInvalidArgument, "reservation_interactive", "0.000001"},
		"credit":          {create(&fairleadv1.CreateTenantRequest{Id: "x", Credit: &fairleadv1.Credit{Max: 1e10}}), connect.CodeInvalidArgument, "credit.max", "1000000000"},
		"starts":          {create(&fairleadv1.CreateTenantRequest{Id: "x", Starts: &fairleadv1.StartRate{Jobs: 1, Per: &durationpb.Duration{Nanos: -1, Seconds: 1}}}), connect.CodeInvalidArgument, "starts.per", "duration"},
		"above group":     {create(&fairleadv1.CreateTenantRequest{Id: "x", Organization: "group", ReservationBatch: 41}), connect.CodeInvalidArgument, "reservation_batch", "reserve 60 of its 100"},
		"limit of group":  {create(&fairleadv1.CreateTenantRequest{Id: "x", Organization: "group", ReservationInteractive: 140}), connect.CodeInvalidArgument, "organization", "200"},
		"no group":        {create(&fairleadv1.CreateTenantRequest{Id: "x", Organization: "none"}), connect.CodeNotFound, "organization", "none"},
		"group lowered":   {update(&fairleadv1.UpdateOrganizationRequest{Id: "group", ReservationBatch: new(59.0)}), connect.CodeInvalidArgument, "reservation_batch", "60"},
		"group's limit":   {update(&fairleadv1.UpdateOrganizationRequest{Id: "group", Limit: new(-2.0)}), connect.CodeInvalidArgument, "limit", "-2"},
		"group missing":   {update(&fairleadv1.UpdateOrganizationRequest{Id: "none", Limit: new(2.0)}), connect.CodeNotFound, "organization", "none"},
		"group twice":     {second(r.groups.CreateOrganization(t.Context(), &fairleadv1.CreateOrganizationRequest{Id: "group"})), connect.CodeAlreadyExists, "id", "exists"},
		"group's weight":  {second(r.groups.CreateOrganization(t.Context(), &fairleadv1.CreateOrganizationRequest{Id: "g", Weight: new(-1.0)})), connect.CodeInvalidArgument, "weight", "-1"},
		"get none":        {second(r.groups.GetOrganization(t.Context(), &fairleadv1.GetOrganizationRequest{Id: "none"})), connect.CodeNotFound, "organization", "none"},
		"page size":       {second(r.groups.ListOrganizations(t.Context(), &fairleadv1.ListOrganizationsRequest{PageSize: -1})), connect.CodeInvalidArgument, "page_size", "-1"},
		"page token":      {second(r.groups.ListOrganizations(t.Context(), &fairleadv1.ListOrganizationsRequest{PageToken: "!"})), connect.CodeInvalidArgument, "page_token", "token"},
		"members of none": {second(r.tenants.ListTenants(t.Context(), &fairleadv1.ListTenantsRequest{Organization: "none"})), connect.CodeNotFound, "organization", "none"},
	} {
		got := rejection.From(c.err)
		if connect.CodeOf(c.err) != c.code || got.GetField() != c.field || !strings.Contains(got.GetMessage(), c.words) {
			t.Errorf("%s: %v, %v", name, c.err, got)
		}
	}
	if _, ok := r.told.policy("x"); ok {
		t.Error("a cell was told")
	}
}

func TestExplainTenant(t *testing.T) {
	r := start(t)
	if _, err := r.groups.CreateOrganization(t.Context(), &fairleadv1.CreateOrganizationRequest{Id: "group"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tenants.CreateTenant(t.Context(), &fairleadv1.CreateTenantRequest{Id: "acme", Organization: "group"}); err != nil {
		t.Fatal(err)
	}
	x, err := r.tenants.ExplainTenant(t.Context(), &fairleadv1.ExplainTenantRequest{Id: "acme"})
	if err != nil || x.GetCell() != "cell-of-acme" || x.GetRunning() != 7 || x.GetTenant().GetId() != "acme" || x.GetOrganization().GetId() != "group" {
		t.Errorf("%v, %v", x, err)
	}
	if _, err := r.tenants.ExplainTenant(t.Context(), &fairleadv1.ExplainTenantRequest{Id: "none"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
	r.told.set(errors.New("no leader"))
	_, err = r.tenants.ExplainTenant(t.Context(), &fairleadv1.ExplainTenantRequest{Id: "acme"})
	if got := rejection.From(err); connect.CodeOf(err) != connect.CodeUnavailable || got.GetReason() != "NO_LEADER" {
		t.Errorf("%v, %v", err, got)
	}
}

// However changes gather while a cell is out of reach, there is a way to what they end in on which nothing is refused.
func TestGatheredChangesReachTheCell(t *testing.T) {
	org := func(id string, batch, limit cell.Rate) cell.OrganizationPolicy {
		return cell.OrganizationPolicy{Organization: cell.OrganizationID(id), Weight: 1000, Reservation: [2]cell.Rate{0, batch}, Limit: limit}
	}
	tenant := func(id, parent string, batch cell.Rate) cell.TenantPolicy {
		return cell.TenantPolicy{Tenant: cell.TenantID(id), Organization: cell.OrganizationID(parent), Weight: 1000, Reservation: [2]cell.Rate{0, batch}}
	}
	for name, c := range map[string]struct {
		organizations []cell.OrganizationPolicy
		tenants       []cell.TenantPolicy
	}{
		"raised":        {[]cell.OrganizationPolicy{org("o", 200, 0)}, nil},
		"raised inside": {[]cell.OrganizationPolicy{org("o", 200, 0), org("p", 40, 0)}, []cell.TenantPolicy{tenant("a", "o", 140)}},
		"lowered":       {[]cell.OrganizationPolicy{org("o", 50, 60)}, []cell.TenantPolicy{tenant("a", "o", 20), tenant("b", "o", 30)}},
		"traded":        {nil, []cell.TenantPolicy{tenant("a", "o", 60), tenant("b", "o", 40)}},
		"places traded": {nil, []cell.TenantPolicy{tenant("a", "p", 40), tenant("c", "o", 40)}},
		"two lowered":   {[]cell.OrganizationPolicy{org("o", 60, 0), org("p", 0, 0)}, []cell.TenantPolicy{tenant("a", "p", 40)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, told := plain(t)
				if err := s.Promise(t.Context(), []cell.OrganizationPolicy{org("o", 100, 101), org("p", 40, 0)}, []cell.TenantPolicy{
					tenant("a", "o", 40), tenant("b", "o", 60), tenant("c", "p", 40),
				}); err != nil {
					t.Fatal(err)
				}
				told.set(errors.New("no leader"))
				commit := func(c command.Command) { // as a change does whose cell is out of reach
					r, err := s.propose(t.Context(), c)
					if err != nil {
						t.Fatal(err)
					}
					s.reign.Load().link("cell-1").add(changed{organization: r.Organization.ID(), tenant: r.Tenant.ID()})
				}
				commitAll := func(organizations ...cell.OrganizationPolicy) {
					for _, o := range organizations {
						commit(command.UpdateOrganization{Organization: o.Organization, Reservation: [2]*cell.Rate{nil, &o.Reservation[1]}, Limit: &o.Limit, Time: 1})
					}
				}
				commitAll(org("o", 0, 0), org("p", 0, 0))
				for _, p := range c.tenants {
					commit(command.UpdateTenant{Tenant: p.Tenant, Organization: &p.Organization, Reservation: [2]*cell.Rate{nil, &p.Reservation[1]}, Time: 1})
				}
				if len(c.organizations) == 0 {
					commitAll(org("o", 100, 101), org("p", 40, 0))
				}
				commitAll(c.organizations...)
				told.set(nil)
				if err := s.reign.Load().link("cell-1").flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				for o := range s.machine.View().Organizations("") {
					if told.organizations[o.ID()] != o.Policy {
						t.Errorf("the cell has %+v, control %+v", told.organizations[o.ID()], o.Policy)
					}
				}
				for row := range s.machine.View().Tenants("") {
					if told.policies[row.ID()] != row.Policy {
						t.Errorf("the cell has %+v, control %+v", told.policies[row.ID()], row.Policy)
					}
				}
			})
		})
	}
}

// A promise that a cell cannot keep is said to be saved, with the cell's reason.
func TestCellRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := plain(t)
		told.set(&cell.FieldError{Field: "reservation_batch", Problem: "is too much for this cell", Remedy: "use another"})
		_, err := s.CreateTenant(t.Context(), request("acme", 1))
		got := rejection.From(err)
		if connect.CodeOf(err) != connect.CodeUnavailable || got.GetReason() != "CELL_BEHIND" || !strings.Contains(got.GetMessage(), "too much for this cell") {
			t.Errorf("%v, %v", err, got)
		}
		if _, ok := s.machine.View().Tenant("acme"); !ok {
			t.Error("not saved")
		}
	})
}

// A policy that is promised again changes nothing, one that changed is reached whatever the order, and what does not fit beside others is
// refused.
func TestPromise(t *testing.T) {
	r := start(t)
	groups := []cell.OrganizationPolicy{
		{Organization: "acme", Weight: 2000, Reservation: [2]cell.Rate{0, 100}, Limit: 500},
		{Organization: "free", Weight: 1000},
	}
	tenants := []cell.TenantPolicy{
		{Tenant: "alder", Organization: "acme", Weight: 3000, Reservation: [2]cell.Rate{0, 60}},
		{Tenant: "birch", Organization: "acme", Weight: 1000, Reservation: [2]cell.Rate{0, 40}, RunningMax: 4},
		{Tenant: "cedar", Weight: 1000, Reservation: [2]cell.Rate{0, 10}},
	}
	promise := func() uint64 {
		t.Helper()
		before := r.machine.View().Index()
		if err := r.Promise(t.Context(), groups, tenants); err != nil {
			t.Fatal(err)
		}
		for _, p := range tenants {
			p.Epoch = 2 // its home was the second change
			if row, _ := r.machine.View().Tenant(p.Tenant); row.Policy != p || r.told.policies[p.Tenant] != p {
				t.Errorf("%+v becomes %+v, and %+v in the cell", p, row.Policy, r.told.policies[p.Tenant])
			}
		}
		for _, p := range groups {
			row, _ := r.machine.View().Organization(p.Organization)
			if p.Epoch = row.Policy.Epoch; row.Policy != p || r.told.organizations[p.Organization] != p {
				t.Errorf("%+v becomes %+v, and %+v in the cell", p, row.Policy, r.told.organizations[p.Organization])
			}
		}
		return r.machine.View().Index() - before
	}
	promise()
	if n := promise(); n != 0 {
		t.Errorf("%d commands for nothing", n)
	}
	groups[0].Reservation[1], tenants[0].Reservation[1], tenants[1].Reservation[1] = 80, 30, 50
	promise()
	r.cfg.Capacity = [2]cell.Rate{0, 90}
	tenants[0].Reservation[1], tenants[2].Reservation[1], groups[0].Reservation[1] = 20, 20, 70 // the second fits once the last is lowered
	promise()
	tenants[0].Weight = 1
	if n := promise(); n != 1 {
		t.Errorf("%d commands for one change", n)
	}
	if _, err := r.tenants.UpdateTenant(t.Context(), &fairleadv1.UpdateTenantRequest{Id: "cedar", ReservationBatch: new(0.000021)}); err == nil {
		t.Error("above the capacity")
	}
	tenants[2].Reservation[1] = 21
	if err := r.Promise(t.Context(), groups, tenants); err == nil || !strings.Contains(err.Error(), "tenant cedar: reservation_batch") {
		t.Error(err)
	}
	r.told.set(errors.New("no leader"))
	tenants[2].Reservation[1], tenants[0].Weight = 20, 2
	if err := r.Promise(t.Context(), groups, tenants); !errors.Is(err, errCellBehind) {
		t.Error(err)
	}
}
