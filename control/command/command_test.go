package command

import (
	"bufio"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

var rewrite = flag.Bool("rewrite", false, "add missing golden lines; an existing one is never changed, since logs hold it")

// corpus has one command of each form that was ever written. A form that is no longer written stays.
func corpus() map[string]Command {
	all := clusterCorpus()
	maps.Copy(all, migrationCorpus())
	maps.Copy(all, map[string]Command{
		"create-tenant": CreateTenant{
			Tenant: "acme", DisplayName: "Acme é", Weight: 2500, BacklogJobsMax: 1000, BacklogBytesMax: 1 << 40,
			Time: 1_700_000_000_000_000_001,
		},
		"create-tenant-least": CreateTenant{Tenant: "a", Time: 1},
		"update-tenant": UpdateTenant{
			Tenant: "acme", DisplayName: new("x"), Weight: new(cell.Weight(1)), BacklogJobsMax: new(int64(2)), BacklogBytesMax: new(int64(3)),
			Time: 4,
		},
		"update-tenant-to-zero": UpdateTenant{
			Tenant: "acme", DisplayName: new(""), Weight: new(cell.Weight(0)), BacklogJobsMax: new(int64(0)), BacklogBytesMax: new(int64(0)),
			Time: 4,
		},
		"update-tenant-one": UpdateTenant{Tenant: "acme", Weight: new(cell.Weight(7)), Time: 4},
		"create-tenant-promises": CreateTenant{
			Tenant: "acme", Weight: 1000, Organization: "group", Reservation: [2]cell.Rate{1, 3_600_000_000}, Limit: cell.RateMax,
			Credit: cell.Credit{Max: 180_000_000_000, Refill: 2, Extra: 3}, RunningMax: 4, Starts: cell.StartRate{Jobs: 5, Per: 2 * time.Minute}, Time: 6,
		},
		"update-tenant-promises": UpdateTenant{
			Tenant: "acme", Organization: new(cell.OrganizationID("group")), Reservation: [2]*cell.Rate{new(cell.Rate(1)), new(cell.Rate(2))},
			Limit: new(cell.Rate(3)), Credit: &cell.Credit{Max: 4, Refill: 5, Extra: 6}, RunningMax: new(int64(7)),
			Starts: &cell.StartRate{Jobs: 8, Per: time.Second}, Time: 9,
		},
		"update-tenant-promises-to-zero": UpdateTenant{
			Tenant: "acme", Organization: new(cell.OrganizationID("")), Reservation: [2]*cell.Rate{new(cell.Rate(0)), new(cell.Rate(0))},
			Limit: new(cell.Rate(0)), Credit: &cell.Credit{}, RunningMax: new(int64(0)), Starts: &cell.StartRate{}, Time: 9,
		},
		"update-tenant-one-promise": UpdateTenant{Tenant: "acme", Reservation: [2]*cell.Rate{nil, new(cell.Rate(2))}, Time: 9},
		"create-organization": CreateOrganization{
			Organization: "group", DisplayName: "The group", Weight: 2500, Reservation: [2]cell.Rate{1, 2}, Limit: 4, Time: 5,
		},
		"create-organization-least": CreateOrganization{Organization: "g", Time: 1},
		"update-organization": UpdateOrganization{
			Organization: "group", DisplayName: new("x"), Weight: new(cell.Weight(1)), Reservation: [2]*cell.Rate{new(cell.Rate(0)), new(cell.Rate(2))},
			Limit: new(cell.Rate(3)), Time: 4,
		},
		"update-organization-to-zero": UpdateOrganization{
			Organization: "group", DisplayName: new(""), Weight: new(cell.Weight(0)), Reservation: [2]*cell.Rate{new(cell.Rate(0)), new(cell.Rate(0))},
			Limit: new(cell.Rate(0)), Time: 4,
		},
		"create-tenant-capacity":       CreateTenant{Tenant: "a", Time: 1, Capacity: [2]cell.Rate{2, 3}},
		"update-tenant-capacity":       UpdateTenant{Tenant: "a", Limit: new(cell.Rate(1)), Time: 1, Capacity: [2]cell.Rate{2, 3}},
		"create-organization-capacity": CreateOrganization{Organization: "g", Time: 1, Capacity: [2]cell.Rate{2, 3}},
		"update-organization-capacity": UpdateOrganization{Organization: "g", Limit: new(cell.Rate(1)), Time: 1, Capacity: [2]cell.Rate{2, 3}},
		"create-key": CreateKey{
			Key: "key_1", Tenant: "acme", Permissions: []cell.Permission{1, 2, 3}, Description: "ci",
			Operations: []cell.Operation{"a.b", "c"}, Hash: [32]byte{0: 1, 31: 255}, Time: 5, Expires: 6,
		},
		"create-key-platform": CreateKey{Key: "key_2", Permissions: []cell.Permission{5}, Time: 5},
		"revoke-key":          RevokeKey{Key: "key_1", Time: 9},
	})
	return all
}

// The bytes in testdata are in somebody's log: they decode to the same command for ever, and the present form is written the same.
func TestGolden(t *testing.T) {
	path := filepath.Join("testdata", "golden.txt")
	golden := map[string]string{}
	if text, err := os.ReadFile(path); err == nil {
		for line := range strings.Lines(string(text)) {
			name, data, _ := strings.Cut(strings.TrimSpace(line), " ")
			golden[name] = data
		}
	}
	added := false
	for name, c := range corpus() {
		data, ok := golden[name]
		if !ok && *rewrite {
			data, added = hex.EncodeToString(Encode(c)), true
			golden[name] = data
		}
		bytes, err := hex.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(bytes)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s decodes to %+v, %v; want %+v", name, got, err, c)
		}
		if got := hex.EncodeToString(Encode(c)); got != data {
			t.Errorf("%s is written as\n%s, want\n%s", name, got, data)
		}
	}
	for name := range golden {
		if corpus()[name] == nil {
			t.Errorf("%s has bytes and no command", name)
		}
	}
	if !added {
		return
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for _, name := range slices.Sorted(maps.Keys(golden)) {
		fmt.Fprintln(w, name, golden[name])
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// anyCommand draws any command, also those that Check refuses.
func anyCommand(t *rapid.T) Command {
	str := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z][a-z0-9._:-]{0,10}`))
	num := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 10))
	at := cell.Instant(num.Draw(t, "time"))
	tenant := cell.TenantID(str.Draw(t, "tenant"))
	capacity := [2]cell.Rate{cell.Rate(num.Draw(t, "capacity")), cell.Rate(num.Draw(t, "capacity"))}
	rate := func(name string) cell.Rate { return cell.Rate(num.Draw(t, name)) }
	organization := cell.OrganizationID(str.Draw(t, "organization"))
	switch rapid.IntRange(0, 5).Draw(t, "type") {
	case 0:
		return CreateTenant{
			Tenant: tenant, DisplayName: str.Draw(t, "name"), Weight: cell.Weight(num.Draw(t, "weight")), BacklogJobsMax: num.Draw(t, "jobs"),
			BacklogBytesMax: num.Draw(t, "bytes"), Time: at, Organization: organization, Reservation: [2]cell.Rate{rate("interactive"), rate("batch")},
			Limit: rate("limit"), Credit: cell.Credit{Max: cell.Cost(num.Draw(t, "max")), Refill: rate("refill"), Extra: rate("extra")},
			RunningMax: num.Draw(t, "running"), Starts: cell.StartRate{Jobs: num.Draw(t, "starts"), Per: time.Duration(num.Draw(t, "per"))},
			Capacity: capacity,
		}
	case 1:
		return UpdateTenant{
			Tenant: tenant, Time: at, DisplayName: maybe(t, str), Weight: maybe(t, rapid.Map(num, func(n int64) cell.Weight { return cell.Weight(n) })),
			BacklogJobsMax: maybe(t, num), BacklogBytesMax: maybe(t, num), Organization: maybe(t, rapid.Just(organization)),
			Reservation: [2]*cell.Rate{maybe(t, rapid.Just(rate("interactive"))), maybe(t, rapid.Just(rate("batch")))},
			Limit:       maybe(t, rapid.Just(rate("limit"))), RunningMax: maybe(t, num),
			Credit:   maybe(t, rapid.Just(cell.Credit{Max: cell.Cost(num.Draw(t, "max")), Refill: rate("refill"), Extra: rate("extra")})),
			Capacity: capacity, Starts: maybe(t, rapid.Just(cell.StartRate{Jobs: num.Draw(t, "starts"), Per: time.Duration(num.Draw(t, "per"))})),
		}
	case 4:
		return CreateOrganization{
			Organization: organization, DisplayName: str.Draw(t, "name"), Weight: cell.Weight(num.Draw(t, "weight")),
			Reservation: [2]cell.Rate{rate("interactive"), rate("batch")}, Limit: rate("limit"), Time: at, Capacity: capacity,
		}
	case 5:
		return UpdateOrganization{
			Organization: organization, Time: at, DisplayName: maybe(t, str), Weight: maybe(t, rapid.Just(cell.Weight(num.Draw(t, "weight")))),
			Reservation: [2]*cell.Rate{maybe(t, rapid.Just(rate("interactive"))), maybe(t, rapid.Just(rate("batch")))},
			Limit:       maybe(t, rapid.Just(rate("limit"))), Capacity: capacity,
		}
	case 2:
		c := CreateKey{
			Key: KeyID(str.Draw(t, "key")), Tenant: tenant, Description: str.Draw(t, "description"),
			Time: at, Expires: cell.Instant(num.Draw(t, "expires")),
		}
		for range rapid.IntRange(0, 3).Draw(t, "permissions") {
			c.Permissions = append(c.Permissions, cell.Permission(rapid.Uint8().Draw(t, "permission")))
		}
		for range rapid.IntRange(0, 3).Draw(t, "operations") {
			c.Operations = append(c.Operations, cell.Operation(str.Draw(t, "operation")))
		}
		copy(c.Hash[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
		return c
	default:
		return RevokeKey{KeyID(str.Draw(t, "key")), at}
	}
}

// maybe draws a value or nil.
func maybe[T any](t *rapid.T, of *rapid.Generator[T]) *T { return rapid.Ptr(of, true).Draw(t, "maybe") }

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.OneOf(rapid.Custom(anyCommand), rapid.Custom(anyMigrationCommand)).Draw(t, "command")
		data := Encode(c)
		got, err := Decode(data)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v becomes %+v, %v", c, got, err)
		}
		for i := range data { // nothing of the bytes is kept
			data[i] = 0xff
		}
		if !reflect.DeepEqual(got, c) || got.Type() != c.Type() || got.At() != c.At() {
			t.Fatal("the command changed with the bytes")
		}
		_ = Check(c) // whatever it says, it does not panic
	})
}

// What this release does not know is told from what no release wrote, with the ignorable bit.
func TestDecodeRefuses(t *testing.T) {
	body := encodeBody(corpus()["create-key"])
	later := appendVarint(slices.Clone(body), 99, 1)
	wrongType := protowire.AppendFixed64(protowire.AppendTag(nil, 6, protowire.Fixed64Type), 1)
	encode := encodeEnvelope
	cases := map[string]struct {
		data []byte
		want error
	}{
		"later type":              {encode(envelope{typ: 999, version: 1, body: body}), &UnknownError{Type: 999, Version: 1}},
		"later type, ignorable":   {encode(envelope{typ: 999, version: 1, ignore: true}), &UnknownError{Type: 999, Version: 1, Ignore: true}},
		"later version":           {encode(envelope{typ: 3, version: 2, body: body}), &UnknownError{Type: 3, Version: 2}},
		"later field":             {encode(envelope{typ: 3, version: 1, body: later}), &UnknownError{Type: 3, Version: 1, Field: 99}},
		"later field, ignorable":  {encode(envelope{typ: 3, version: 1, ignore: true, body: later}), &UnknownError{Type: 3, Version: 1, Field: 99, Ignore: true}},
		"later field of envelope": {appendVarint(encode(envelope{typ: 3, version: 1, body: body}), 7, 1), &UnknownError{Type: 3, Version: 1, Field: 7}},
		"field of another type":   {encode(envelope{typ: 3, version: 1, body: wrongType}), &UnknownError{Type: 3, Version: 1, Field: 6}},
		"short hash":              {encode(envelope{typ: 3, version: 1, body: appendBytes(nil, 6, []byte{1})}), &UnknownError{Type: 3, Version: 1, Field: 6}},
	}
	for name, c := range cases {
		_, err := Decode(c.data)
		if !reflect.DeepEqual(err, c.want) || err.Error() == "" {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, data := range map[string][]byte{
		"empty":          nil,
		"cut off":        Encode(corpus()["create-key"])[:20],
		"cut off body":   encode(envelope{typ: 3, version: 1, body: body[:len(body)-1]}),
		"text":           []byte("not a command at all"),
		"no type":        encode(envelope{version: 1}),
		"no version":     encode(envelope{typ: 1}),
		"huge type":      appendVarint(appendVarint(nil, 2, 1), 1, 1<<40),
		"body is number": appendVarint(appendVarint(appendVarint(nil, 1, 1), 2, 1), 4, 1),
	} {
		_, err := Decode(data)
		if _, ok := errors.AsType[*MalformedError](err); !ok || err.Error() == "" {
			t.Errorf("%s: %v, want a MalformedError", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range corpus() {
		f.Add(Encode(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Decode(Encode(c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v becomes %+v, %v", c, again, err)
		}
	})
}

func TestCheck(t *testing.T) {
	tenant, key := corpus()["create-tenant"].(CreateTenant), corpus()["create-key"].(CreateKey) //nolint:errcheck // the corpus says so
	long := strings.Repeat("x", TextBytesMax+1)
	withTenant := func(change func(*CreateTenant)) Command {
		c := tenant
		change(&c)
		return c
	}
	withKey := func(change func(*CreateKey)) Command {
		c := key
		change(&c)
		return c
	}
	cases := map[string]struct {
		command Command
		field   string // "" for none
	}{
		"tenant":                  {tenant, ""},
		"tenant without id":       {withTenant(func(c *CreateTenant) { c.Tenant = "" }), "id"},
		"tenant with a bad id":    {withTenant(func(c *CreateTenant) { c.Tenant = "a b" }), "id"},
		"tenant, long name":       {withTenant(func(c *CreateTenant) { c.DisplayName = long }), "display_name"},
		"tenant, bad utf-8":       {withTenant(func(c *CreateTenant) { c.DisplayName = "\xff" }), "display_name"},
		"tenant, control":         {withTenant(func(c *CreateTenant) { c.DisplayName = "a\x1b[2J" }), "display_name"},
		"tenant, c1 control":      {withTenant(func(c *CreateTenant) { c.DisplayName = "a\u009b" }), "display_name"},
		"tenant, weight":          {withTenant(func(c *CreateTenant) { c.Weight = -1 }), "weight"},
		"tenant, huge weight":     {withTenant(func(c *CreateTenant) { c.Weight = cell.WeightMax + 1 }), "weight"},
		"tenant, weight 0":        {withTenant(func(c *CreateTenant) { c.Weight = 0 }), ""},
		"tenant, jobs":            {withTenant(func(c *CreateTenant) { c.BacklogJobsMax = -1 }), "backlog_jobs_max"},
		"tenant, bytes":           {withTenant(func(c *CreateTenant) { c.BacklogBytesMax = -1 }), "backlog_bytes_max"},
		"tenant, no time":         {withTenant(func(c *CreateTenant) { c.Time = 0 }), "time"},
		"update":                  {corpus()["update-tenant"], ""},
		"update to zero":          {corpus()["update-tenant-to-zero"], ""},
		"update of nothing":       {UpdateTenant{Tenant: "a", Time: 1}, "request"},
		"update without id":       {UpdateTenant{Time: 1}, "id"},
		"update, weight":          {UpdateTenant{Tenant: "a", Time: 1, Weight: new(cell.Weight(-1))}, "weight"},
		"update, jobs":            {UpdateTenant{Tenant: "a", Time: 1, BacklogJobsMax: new(int64(-1))}, "backlog_jobs_max"},
		"update, bytes":           {UpdateTenant{Tenant: "a", Time: 1, BacklogBytesMax: new(int64(-1))}, "backlog_bytes_max"},
		"update, name":            {UpdateTenant{Tenant: "a", Time: 1, DisplayName: &long}, "display_name"},
		"tenant, organization":    {withTenant(func(c *CreateTenant) { c.Organization = "a b" }), "organization"},
		"tenant, limit":           {withTenant(func(c *CreateTenant) { c.Reservation, c.Limit = [2]cell.Rate{3, 4}, 6 }), "limit"},
		"tenant, reservation":     {withTenant(func(c *CreateTenant) { c.Reservation[1] = -1 }), "reservation_batch"},
		"tenant, credit":          {withTenant(func(c *CreateTenant) { c.Credit.Extra = 1 }), "credit.max"},
		"tenant, starts":          {withTenant(func(c *CreateTenant) { c.Starts.Jobs = 1 }), "starts.per"},
		"tenant, all promises":    {corpus()["create-tenant-promises"], ""},
		"update, organization":    {UpdateTenant{Tenant: "a", Time: 1, Organization: new(cell.OrganizationID("*"))}, "organization"},
		"update, out of it":       {UpdateTenant{Tenant: "a", Time: 1, Organization: new(cell.OrganizationID(""))}, ""},
		"update, limit":           {UpdateTenant{Tenant: "a", Time: 1, Limit: new(cell.Rate(-1))}, "limit"},
		"update, a low limit":     {UpdateTenant{Tenant: "a", Time: 1, Limit: new(cell.Rate(1))}, ""}, // the state knows the reservations
		"update, credit":          {UpdateTenant{Tenant: "a", Time: 1, Credit: &cell.Credit{Max: 1}}, "credit.extra"},
		"update, no credit":       {UpdateTenant{Tenant: "a", Time: 1, Credit: &cell.Credit{}}, ""},
		"update of capacity":      {UpdateTenant{Tenant: "a", Time: 1, Capacity: [2]cell.Rate{1, 1}}, "request"},
		"update, promises to 0":   {corpus()["update-tenant-promises-to-zero"], ""},
		"organization":            {corpus()["create-organization"], ""},
		"organization without id": {CreateOrganization{Time: 1}, "id"},
		"organization, name":      {CreateOrganization{Organization: "o", DisplayName: long, Time: 1}, "display_name"},
		"organization, limit":     {CreateOrganization{Organization: "o", Reservation: [2]cell.Rate{2, 2}, Limit: 3, Time: 1}, "limit"},
		"organization, no time":   {CreateOrganization{Organization: "o"}, "time"},
		"update organization":     {corpus()["update-organization"], ""},
		"update organization, 0":  {corpus()["update-organization-to-zero"], ""},
		"organization, no change": {UpdateOrganization{Organization: "o", Time: 1}, "request"},
		"organization, weight":    {UpdateOrganization{Organization: "o", Weight: new(cell.Weight(-1)), Time: 1}, "weight"},
		"organization, new name":  {UpdateOrganization{Organization: "o", DisplayName: &long, Time: 1}, "display_name"},
		"key":                     {key, ""},
		"key of the platform":     {corpus()["create-key-platform"], ""},
		"key without id":          {withKey(func(c *CreateKey) { c.Key = "" }), "id"},
		"key, star tenant":        {withKey(func(c *CreateKey) { c.Tenant = "*" }), "tenant"},
		"key without scopes":      {withKey(func(c *CreateKey) { c.Permissions = nil }), "scopes"},
		"key, unknown scope":      {withKey(func(c *CreateKey) { c.Permissions = []cell.Permission{9} }), "scopes"},
		"key, scope 0":            {withKey(func(c *CreateKey) { c.Permissions = []cell.Permission{0} }), "scopes"},
		"key, scope twice":        {withKey(func(c *CreateKey) { c.Permissions = []cell.Permission{1, 1} }), "scopes"},
		"key, scopes unsorted":    {withKey(func(c *CreateKey) { c.Permissions = []cell.Permission{3, 1} }), "scopes"},
		"tenant's admin key":      {withKey(func(c *CreateKey) { c.Permissions = []cell.Permission{5} }), "scopes"},
		"tenant's operate key":    {withKey(func(c *CreateKey) { c.Permissions = []cell.Permission{4} }), "scopes"},
		"platform's submit key":   {CreateKey{Key: "k", Permissions: []cell.Permission{1}, Time: 1}, "scopes"},
		"platform's work key":     {CreateKey{Key: "k", Permissions: []cell.Permission{3}, Time: 1}, ""},
		"key, star operation":     {withKey(func(c *CreateKey) { c.Operations = []cell.Operation{"a", "*"} }), "operations[1]"},
		"key, operation twice":    {withKey(func(c *CreateKey) { c.Operations = []cell.Operation{"a", "a"} }), "operations[1]"},
		"key, many operations":    {withKey(func(c *CreateKey) { c.Operations = make([]cell.Operation, OperationsMax+1) }), "operations"},
		"operations without work": {withKey(func(c *CreateKey) { c.Permissions = []cell.Permission{1} }), "operations"},
		"key, description":        {withKey(func(c *CreateKey) { c.Description = long }), "description"},
		"key, expired at birth":   {withKey(func(c *CreateKey) { c.Expires = c.Time }), "lifetime"},
		"key, for ever":           {withKey(func(c *CreateKey) { c.Expires = 0 }), ""},
		"revoke":                  {corpus()["revoke-key"], ""},
		"revoke nothing":          {RevokeKey{Time: 1}, "id"},
		"nil":                     {nil, "command"},
	}
	for name, c := range cases {
		err := Check(c.command)
		fe, ok := errors.AsType[*cell.FieldError](err)
		if c.field == "" && err != nil || c.field != "" && (!ok || fe.Field != c.field || fe.Remedy == "") {
			t.Errorf("%s: %v, want a fault in %q", name, err, c.field)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for _, c := range corpus() {
		if strings.HasPrefix(c.Type().String(), "type(") {
			t.Errorf("%d has no name", c.Type())
		}
	}
	if got := Type(77).String(); got != "type(77)" {
		t.Error(got)
	}
}
