package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// group is world with an organization of two tenants that reserve 300 of its 400 batch, and nothing of the other class.
func group(t *testing.T) *State {
	t.Helper()
	s := world(t)
	for i, c := range []command.Command{
		command.CreateOrganization{Organization: "group", DisplayName: "The group", Weight: 2000, Reservation: [2]cell.Rate{0, 400}, Limit: 900, Time: 1100},
		command.CreateOrganization{Organization: "alone", Weight: 1000, Time: 1100},
		command.CreateTenant{Tenant: "a", Organization: "group", Reservation: [2]cell.Rate{0, 100}, Time: 1200},
		command.CreateTenant{
			Tenant: "b", Organization: "group", Reservation: [2]cell.Rate{0, 200}, Limit: 500, RunningMax: 3,
			Credit: cell.Credit{Max: 9, Refill: 8, Extra: 7}, Starts: cell.StartRate{Jobs: 2, Per: 1e9}, Time: 1200,
		},
	} {
		if r := apply(t, s, 50+uint64(i), c); r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	return s
}

// Every way in which promises may not fit is refused, by the field and with the numbers, and changes nothing.
func TestNesting(t *testing.T) {
	rate := func(n int) *cell.Rate { return new(cell.Rate(n)) }
	batch := func(n int) [2]*cell.Rate { return [2]*cell.Rate{nil, rate(n)} }
	org := func(id string) *cell.OrganizationID { return new(cell.OrganizationID(id)) }
	for name, c := range map[string]struct {
		command command.Command
		field   string // "" when it takes effect
	}{
		"organization above its tenants": {command.UpdateOrganization{Organization: "group", Reservation: batch(300), Time: 1}, ""},
		"organization below its tenants": {command.UpdateOrganization{Organization: "group", Reservation: batch(299), Time: 1}, "reservation_batch"},
		"organization without one":       {command.UpdateOrganization{Organization: "group", Reservation: batch(0), Time: 1}, ""},
		"organization's limit at it":     {command.UpdateOrganization{Organization: "group", Reservation: batch(300), Limit: rate(300), Time: 1}, "limit"},
		"organization's limit above it":  {command.UpdateOrganization{Organization: "group", Reservation: batch(300), Limit: rate(301), Time: 1}, ""},
		"organization's limit below own": {command.UpdateOrganization{Organization: "group", Limit: rate(399), Time: 1}, "limit"},
		"organization, a limit first":    {command.UpdateOrganization{Organization: "alone", Limit: rate(1), Time: 1}, ""},
		"tenant up to it":                {command.UpdateTenant{Tenant: "a", Reservation: batch(200), Time: 1}, ""},
		"tenant above it":                {command.UpdateTenant{Tenant: "a", Reservation: batch(201), Time: 1}, "reservation_batch"},
		"tenant, the other class":        {command.UpdateTenant{Tenant: "a", Reservation: [2]*cell.Rate{rate(599), nil}, Time: 1}, ""},
		"tenant at the limit":            {command.UpdateTenant{Tenant: "a", Reservation: [2]*cell.Rate{rate(600), nil}, Time: 1}, "organization"},
		"tenant above its own limit":     {command.UpdateTenant{Tenant: "b", Reservation: [2]*cell.Rate{rate(301), nil}, Time: 1}, "limit"},
		"tenant with a limit too low":    {command.UpdateTenant{Tenant: "b", Limit: rate(199), Time: 1}, "limit"},
		"tenant into it":                 {command.UpdateTenant{Tenant: "acme", Organization: org("group"), Reservation: batch(100), Time: 1}, ""},
		"tenant into it, too large":      {command.UpdateTenant{Tenant: "acme", Organization: org("group"), Reservation: batch(101), Time: 1}, "reservation_batch"},
		"tenant out of it":               {command.UpdateTenant{Tenant: "a", Organization: org(""), Time: 1}, ""},
		"tenant to another":              {command.UpdateTenant{Tenant: "a", Organization: org("alone"), Reservation: batch(1000), Time: 1}, ""},
		"tenant to no such":              {command.UpdateTenant{Tenant: "a", Organization: org("none"), Time: 1}, "organization none"},
		"new tenant in no such":          {command.CreateTenant{Tenant: "c", Organization: "none", Time: 1}, "organization none"},
		"new tenant, too large":          {command.CreateTenant{Tenant: "c", Organization: "group", Reservation: [2]cell.Rate{0, 101}, Time: 1}, "reservation_batch"},
		"new tenant that fits":           {command.CreateTenant{Tenant: "c", Organization: "group", Reservation: [2]cell.Rate{0, 100}, Time: 1}, ""},
		"an organization again":          {command.CreateOrganization{Organization: "group", Time: 1}, "exists"},
		"no such organization":           {command.UpdateOrganization{Organization: "none", Limit: rate(1), Time: 1}, "organization none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := group(t)
			before := s.View()
			r := apply(t, s, 100, c.command)
			field := ""
			if fe, ok := errors.AsType[*cell.FieldError](r.Refused); ok {
				field = fe.Field
			}
			if nf, ok := errors.AsType[*NotFoundError](r.Refused); ok {
				field = string(nf.Kind) + " " + nf.ID
			}
			if _, ok := errors.AsType[*ExistsError](r.Refused); ok {
				field = "exists"
			}
			if field != c.field {
				t.Fatalf("refused in %q: %v", field, r.Refused)
			}
			if r.Refused == nil {
				return
			}
			if after := s.View(); !slices.EqualFunc(slices.Collect(after.Tenants("")), slices.Collect(before.Tenants("")), Tenant.Equal) ||
				!slices.Equal(slices.Collect(after.Organizations("")), slices.Collect(before.Organizations(""))) {
				t.Error("a refused command changed the state")
			}
		})
	}
}

// What is reserved in a class fits in the capacity that the proposer knows of; one that is reserved beyond it already may only shrink.
func TestCapacity(t *testing.T) {
	rate := func(n int) *cell.Rate { return new(cell.Rate(n)) }
	capacity := [2]cell.Rate{50, 500} // of which group's 400 are reserved
	for name, c := range map[string]struct {
		command command.Command
		field   string
	}{
		"fits":                      {command.CreateTenant{Tenant: "c", Reservation: [2]cell.Rate{50, 100}, Time: 1, Capacity: capacity}, ""},
		"too much":                  {command.CreateTenant{Tenant: "c", Reservation: [2]cell.Rate{0, 101}, Time: 1, Capacity: capacity}, "reservation_batch"},
		"too much of the other":     {command.CreateTenant{Tenant: "c", Reservation: [2]cell.Rate{51, 0}, Time: 1, Capacity: capacity}, "reservation_interactive"},
		"unchecked":                 {command.CreateTenant{Tenant: "c", Reservation: [2]cell.Rate{51, 101}, Time: 1}, ""},
		"within its organization":   {command.UpdateTenant{Tenant: "a", Reservation: [2]*cell.Rate{nil, rate(200)}, Time: 1, Capacity: capacity}, ""},
		"out of its organization":   {command.UpdateTenant{Tenant: "a", Organization: new(cell.OrganizationID("")), Time: 1, Capacity: capacity}, ""},
		"out of it, and more":       {command.UpdateTenant{Tenant: "a", Organization: new(cell.OrganizationID("")), Reservation: [2]*cell.Rate{nil, rate(101)}, Time: 1, Capacity: capacity}, "reservation_batch"},
		"an organization":           {command.CreateOrganization{Organization: "o", Reservation: [2]cell.Rate{0, 101}, Time: 1, Capacity: capacity}, "reservation_batch"},
		"an organization that fits": {command.CreateOrganization{Organization: "o", Reservation: [2]cell.Rate{0, 100}, Time: 1, Capacity: capacity}, ""},
		"more for an organization":  {command.UpdateOrganization{Organization: "group", Reservation: [2]*cell.Rate{nil, rate(501)}, Time: 1, Capacity: capacity}, "reservation_batch"},
		"less than too much":        {command.UpdateOrganization{Organization: "group", Reservation: [2]*cell.Rate{nil, rate(350)}, Time: 1, Capacity: [2]cell.Rate{1, 1}}, ""},
		"none is its tenants'":      {command.UpdateOrganization{Organization: "group", Reservation: [2]*cell.Rate{nil, rate(0)}, Time: 1, Capacity: [2]cell.Rate{1, 300}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := apply(t, group(t), 100, c.command)
			fe, _ := errors.AsType[*cell.FieldError](r.Refused)
			if c.field == "" && r.Refused != nil || c.field != "" && (fe == nil || fe.Field != c.field) {
				t.Errorf("refused: %v", r.Refused)
			}
		})
	}
}

// An organization that is made again by its proposer is answered as it is, and its epoch rises with each change of it alone.
func TestOrganizationEpochs(t *testing.T) {
	s := group(t)
	again := command.CreateOrganization{Organization: "group", DisplayName: "The group", Weight: 2000, Reservation: [2]cell.Rate{0, 400}, Limit: 900, Time: 1100}
	if r := apply(t, s, 100, again); r.Refused != nil || r.Organization.Policy.Epoch != 1 || r.Organization.Reserved != [2]cell.Rate{0, 300} {
		t.Errorf("%+v", r)
	}
	r := apply(t, s, 101, command.UpdateOrganization{Organization: "group", Weight: new(cell.Weight(1)), DisplayName: new("G"), Time: 3000})
	want := Organization{
		Policy:      cell.OrganizationPolicy{Organization: "group", Weight: 1, Reservation: [2]cell.Rate{0, 400}, Limit: 900, Epoch: 2},
		DisplayName: "G", Created: 1100, Updated: 3000, Reserved: [2]cell.Rate{0, 300},
	}
	if r.Organization != want {
		t.Errorf("got %+v, want %+v", r.Organization, want)
	}
	apply(t, s, 102, command.UpdateTenant{Tenant: "a", Reservation: [2]*cell.Rate{nil, new(cell.Rate(150))}, Time: 3000})
	if o, _ := s.View().Organization("group"); o.Policy.Epoch != 2 || o.Reserved != [2]cell.Rate{0, 350} {
		t.Errorf("%+v", o)
	}
	if r := apply(t, s, 103, again); r.Refused == nil {
		t.Error("another organization of the same id is taken")
	}
}

func TestOrganizationOrder(t *testing.T) {
	v := group(t).View()
	ids := func(after cell.OrganizationID) (ids []cell.OrganizationID) {
		for o := range v.Organizations(after) {
			ids = append(ids, o.ID())
		}
		return ids
	}
	if got := ids(""); !slices.Equal(got, []cell.OrganizationID{"alone", "group"}) {
		t.Error(got)
	}
	if got := ids("alone"); !slices.Equal(got, []cell.OrganizationID{"group"}) {
		t.Error(got)
	}
	members := func(of cell.OrganizationID, after cell.TenantID) (ids []cell.TenantID) {
		for row := range v.TenantsOf(of, after) {
			ids = append(ids, row.ID())
		}
		return ids
	}
	if got := members("group", ""); !slices.Equal(got, []cell.TenantID{"a", "b"}) {
		t.Error(got)
	}
	if got := members("group", "a"); !slices.Equal(got, []cell.TenantID{"b"}) {
		t.Error(got)
	}
	if got := members("alone", ""); got != nil {
		t.Error(got)
	}
	for range v.TenantsOf("group", "") {
		break // an iterator may be left
	}
}

// The snapshot in testdata, of a release with organizations, is on somebody's disk too.
func TestGoldenSnapshotWithOrganizations(t *testing.T) {
	path := filepath.Join("testdata", "snapshot-v1-organizations.hex")
	want := group(t)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && *rewrite {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(snapshotOf(t, want.View()))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Restore(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, got.View()), data) || got.View().Hash() != want.View().Hash() {
		t.Error("the restored state is another")
	}
	if wrong := got.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
	if r := apply(t, got, 1000, command.UpdateTenant{Tenant: "a", Reservation: [2]*cell.Rate{nil, new(cell.Rate(201))}, Time: 5000}); r.Refused == nil {
		t.Error("the restored state has lost what is reserved")
	}
}
