package command

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

const (
	// TextBytesMax bounds display names and descriptions: what fits on a line, twice.
	TextBytesMax = 256
	// OperationsMax bounds the operations that one key is bound to: as many as a worker may offer.
	OperationsMax = 64
)

// Check returns a *[cell.FieldError] when c is outside its bounds whatever the state, or nil. Field names are those of the API.
func Check(c Command) error {
	switch c := c.(type) {
	case CreateTenant:
		return first(
			cell.CheckID("id", string(c.Tenant)),
			checkText("display_name", c.DisplayName),
			checkParent(&c.Organization),
			c.Policy().Check(),
			c.Rules.Check("placement"),
			checkTime(c.Time),
		)
	case UpdateTenant:
		return checkUpdate(c)
	case CreateKey:
		return checkCreateKey(c)
	case RevokeKey:
		return first(cell.CheckID("id", string(c.Key)), checkTime(c.Time))
	case Audited:
		return c.check()
	case CreateOrganization:
		return first(
			cell.CheckID("id", string(c.Organization)), checkText("display_name", c.DisplayName), c.Policy().Check(), checkTime(c.Time),
		)
	case UpdateOrganization:
		return checkUpdateOrganization(c)
	case CreateCluster:
		return c.check()
	case SetFeatureLevel:
		return c.check()
	case CreateCell:
		return c.check()
	case UpdateCell:
		return c.check()
	case SetCellPhase:
		return c.check()
	case SetCellVoters:
		return c.check()
	case DeleteCell:
		return c.check()
	case Assign:
		return c.check()
	case CreateJoinToken:
		return c.check()
	case UseJoinToken:
		return c.check()
	case RegisterAgent:
		return c.check()
	case ForgetAgent:
		return c.check()
	case RecordDemand:
		return c.check()
	case Restored:
		return c.check()
	case StartMigration:
		return c.check()
	case AdvanceMigration:
		return c.check()
	case ForgetMigration:
		return c.check()
	default:
		return &cell.FieldError{Field: "command", Problem: fmt.Sprintf("is a %T", c), Remedy: "use one of package command"}
	}
}

func checkUpdate(c UpdateTenant) error {
	if c == (UpdateTenant{Tenant: c.Tenant, Time: c.Time, Capacity: c.Capacity}) {
		return first(cell.CheckID("id", string(c.Tenant)), errNoChange("organization, reservation_interactive, reservation_batch, limit, credit, "+
			"running_max, starts, backlog_jobs_max, backlog_bytes_max and placement"))
	}
	return first(
		cell.CheckID("id", string(c.Tenant)),
		given(c.DisplayName, func(s string) error { return checkText("display_name", s) }),
		checkParent(c.Organization),
		c.Onto(cell.TenantPolicy{}).Check(), // what is left out is checked where it is known
		given(c.Rules, func(r placement.Rules) error { return r.Check("placement") }),
		checkTime(c.Time),
	)
}

func checkUpdateOrganization(c UpdateOrganization) error {
	if c == (UpdateOrganization{Organization: c.Organization, Time: c.Time, Capacity: c.Capacity}) {
		return first(cell.CheckID("id", string(c.Organization)), errNoChange("reservation_interactive, reservation_batch and limit"))
	}
	return first(
		cell.CheckID("id", string(c.Organization)),
		given(c.DisplayName, func(s string) error { return checkText("display_name", s) }),
		c.Onto(cell.OrganizationPolicy{}).Check(),
		checkTime(c.Time),
	)
}

func errNoChange(fields string) error {
	return &cell.FieldError{
		Field: "request", Problem: "changes nothing", Remedy: "set at least one of display_name, weight, " + fields,
	}
}

// checkParent checks the id of an organization, of which nil and empty are none.
func checkParent(id *cell.OrganizationID) error {
	if id == nil || *id == "" {
		return nil
	}
	return cell.CheckID("organization", string(*id))
}

func checkCreateKey(c CreateKey) error {
	var tenant error
	if c.Tenant != "" {
		tenant = cell.CheckID("tenant", string(c.Tenant))
	}
	return first(
		cell.CheckID("id", string(c.Key)),
		tenant,
		checkPermissions(c.Tenant, c.Permissions),
		checkText("description", c.Description),
		checkOperations(c.Permissions, c.Operations),
		checkTime(c.Time),
		checkExpiry(c.Time, c.Expires),
	)
}

func checkPermissions(tenant cell.TenantID, ps []cell.Permission) error {
	const field = "scopes"
	if len(ps) == 0 {
		return &cell.FieldError{Field: field, Problem: "is empty", Remedy: "give at least one of submit, read, work, operate, admin"}
	}
	for i, p := range ps {
		switch {
		case !slices.Contains(cell.Permissions(), p):
			return &cell.FieldError{
				Field: field, Problem: fmt.Sprintf("holds %s, which is none", p), Remedy: "use some of submit, read, work, operate, admin",
			}
		case i > 0 && p == ps[i-1]:
			return &cell.FieldError{Field: field, Problem: fmt.Sprintf("holds %s twice", p), Remedy: "give each scope once"}
		case i > 0 && p < ps[i-1]:
			return &cell.FieldError{Field: field, Problem: "is not in order", Remedy: "sort the scopes by number"}
		case p.OfPlatformOnly() && tenant != "":
			return &cell.FieldError{
				Field: field, Problem: fmt.Sprintf("holds %s, which no tenant's key may have", p),
				Remedy: "leave the tenant empty to make a key of the platform, or leave the scope out",
			}
		case (p == cell.PermissionSubmit || p == cell.PermissionRead) && tenant == "":
			return &cell.FieldError{
				Field: field, Problem: fmt.Sprintf("holds %s, which acts for a tenant, and the key has none", p),
				Remedy: "name the tenant, or leave the scope out",
			}
		}
	}
	return nil
}

func checkOperations(ps []cell.Permission, ops []cell.Operation) error {
	const field = "operations"
	switch {
	case len(ops) == 0:
		return nil
	case !slices.Contains(ps, cell.PermissionWork):
		return &cell.FieldError{Field: field, Problem: "is set on a key without the scope work", Remedy: "add the scope, or leave operations out"}
	case len(ops) > OperationsMax:
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("has %d entries, of at most %d", len(ops), OperationsMax),
			Remedy: "split them over several keys, or leave operations out to allow all",
		}
	}
	for i, op := range ops {
		name := fmt.Sprintf("%s[%d]", field, i)
		if err := cell.CheckID(name, string(op)); err != nil {
			return err
		}
		if slices.Contains(ops[:i], op) {
			return &cell.FieldError{Field: name, Problem: fmt.Sprintf("repeats %s", op), Remedy: "give each operation once"}
		}
	}
	return nil
}

func checkExpiry(now, expires cell.Instant) error {
	if expires == 0 || expires > now {
		return nil
	}
	return &cell.FieldError{Field: "lifetime", Problem: "ends before the key begins", Remedy: "give a lifetime above 0, or none for ever"}
}

func checkText(field, s string) error {
	const remedy = "use up to 256 bytes of printable text on one line"
	if len(s) > TextBytesMax {
		return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has %d bytes, of at most %d", len(s), TextBytesMax), Remedy: remedy}
	}
	if !utf8.ValidString(s) {
		return &cell.FieldError{Field: field, Problem: "is not valid UTF-8", Remedy: remedy}
	}
	for i, r := range s {
		// C0, DEL and C1 would let a name rewrite the terminal of whoever lists it.
		if r < ' ' || 0x7f <= r && r <= 0x9f {
			return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has the control character %U at byte %d", r, i), Remedy: remedy}
		}
	}
	return nil
}

// checkTime cannot fail for a command that a server made.
func checkTime(t cell.Instant) error {
	if t > 0 {
		return nil
	}
	return &cell.FieldError{Field: "time", Problem: fmt.Sprintf("is %d, not after the epoch", t), Remedy: "set the clock of the server"}
}

// given checks what is set.
func given[T any](v *T, check func(T) error) error {
	if v == nil {
		return nil
	}
	return check(*v)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
