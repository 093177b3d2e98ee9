package command

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// DetailBytesMax bounds what the audit says of a command beside its subject; what is longer is cut.
const DetailBytesMax = 1 << 10

// Audited is a command that an operator asked for: when it takes effect, the state adds a record of it to the audit.
type Audited struct {
	// Actor is the key or the agent that asked.
	Actor string
	Command
}

func (c Audited) check() error {
	if c.Actor == "" {
		return &cell.FieldError{Field: "actor", Problem: "is empty", Remedy: "name the key or the agent that asks"}
	}
	if _, nested := c.Command.(Audited); nested || c.Command == nil {
		return &cell.FieldError{Field: "command", Problem: fmt.Sprintf("is a %T within one that is audited", c.Command), Remedy: "audit a command once"}
	}
	return first(checkText("actor", c.Actor), Check(c.Command))
}

// Subject returns what c is about: the id of a tenant, a key, a cell, an agent. It is part of the audit's chain, as [Detail] is, so that both are the
// same in every release: what they return is in golden files.
func Subject(c Command) string {
	switch c := c.(type) {
	case Audited:
		return Subject(c.Command)
	case CreateTenant:
		return string(c.Tenant)
	case UpdateTenant:
		return string(c.Tenant)
	case CreateKey:
		return string(c.Key)
	case RevokeKey:
		return string(c.Key)
	case CreateOrganization:
		return string(c.Organization)
	case UpdateOrganization:
		return string(c.Organization)
	case CreateCluster:
		return c.ID
	case CreateCell:
		return string(c.Cell)
	case UpdateCell:
		return string(c.Cell)
	case SetCellPhase:
		return string(c.Cell)
	case SetCellVoters:
		return string(c.Cell)
	case DeleteCell:
		return string(c.Cell)
	case Assign:
		return string(c.Tenant)
	case CreateJoinToken:
		return TokenName(c.Hash)
	case UseJoinToken:
		return TokenName(c.Hash)
	case RegisterAgent:
		return string(c.Agent.Name)
	case ForgetAgent:
		return string(c.Name)
	case RecordDemand:
		return string(c.Cell)
	case StartMigration:
		return string(c.ID)
	case AdvanceMigration:
		return string(c.ID)
	case ForgetMigration:
		return string(c.ID)
	default: // SetFeatureLevel and Restored are about the whole cluster
		return ""
	}
}

// TokenName tells tokens apart by a little of their hash, which leads to none of them.
func TokenName(hash [32]byte) string { return "token-" + hex.EncodeToString(hash[:4]) }

// Detail returns what c says of its subject, at most [DetailBytesMax] of it: what is set, in words of the API. No secret is in it: a command has none.
func Detail(c Command) string {
	var said []string
	for _, s := range detail(c) {
		if s != "" {
			said = append(said, s)
		}
	}
	text := strings.Join(said, " ")
	if len(text) <= DetailBytesMax {
		return text
	}
	const more = " ..."
	cut := DetailBytesMax - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

func detail(c Command) []string {
	switch c := c.(type) {
	case Audited:
		return detail(c.Command)
	case CreateTenant:
		return append(promiseDetail(c.Policy()), quoted("display_name", c.DisplayName), rulesDetail(c.Rules))
	case UpdateTenant:
		return updateDetail(c)
	case CreateKey:
		return keyDetail(c)
	case CreateOrganization:
		return []string{
			quoted("display_name", c.DisplayName), weight(&c.Weight), amount("reservation_interactive", c.Reservation[0]),
			amount("reservation_batch", c.Reservation[1]), amount("limit", c.Limit),
		}
	case UpdateOrganization:
		return []string{
			given1("display_name", c.DisplayName, quote), weight(c.Weight), given1("reservation_interactive", c.Reservation[0], units),
			given1("reservation_batch", c.Reservation[1], units), given1("limit", c.Limit, units),
		}
	case SetFeatureLevel:
		return []string{count("level", c.Level)}
	case CreateCell:
		return []string{
			word("kind", c.Kind.String()), count("replicas", c.Replicas), word("labels", labels(c.Labels)), word("capacity", load(c.Capacity)),
			count("worker_groups", c.Groups), count("hand", c.Hand),
		}
	case UpdateCell:
		return []string{
			given1("labels", c.Labels, labels), given1("capacity", c.Capacity, load), given1("worker_groups", c.Groups, strconv.Itoa),
			given1("hand", c.Hand, strconv.Itoa),
		}
	case SetCellPhase:
		return []string{word("phase", c.Phase.String()), yes("evacuate", c.Evacuate)}
	case SetCellVoters:
		var names []string
		for _, r := range c.Voters {
			names = append(names, string(r.Name))
		}
		return []string{word("voters", strings.Join(names, ","))}
	case Assign:
		return []string{word("cell", string(c.Cell)), count("replaces_epoch", c.Expect)}
	case CreateJoinToken:
		return []string{word("role", c.Role.String()), word("cell", string(c.Cell)), word("name", string(c.Name)), instant("expires", c.Expires)}
	case UseJoinToken:
		return []string{word("name", string(c.Name))}
	case RegisterAgent:
		a := c.Agent
		return []string{
			word("role", a.Role.String()), word("cell", string(a.Cell)), word("api_address", a.APIAddress), word("raft_address", a.RaftAddress),
			quoted("version", a.Version),
		}
	case RecordDemand:
		return []string{count("samples", len(c.Samples))}
	case StartMigration:
		return startDetail(c)
	case AdvanceMigration:
		return advanceDetail(c)
	default: // nothing beside the subject
		return nil
	}
}

func promiseDetail(p cell.TenantPolicy) []string {
	return []string{
		word("organization", string(p.Organization)), weight(&p.Weight), amount("reservation_interactive", p.Reservation[0]),
		amount("reservation_batch", p.Reservation[1]), amount("limit", p.Limit), amount("credit.max", p.Credit.Max),
		amount("credit.refill", p.Credit.Refill), amount("credit.extra", p.Credit.Extra), count("running_max", p.RunningMax),
		count("starts.jobs", p.Starts.Jobs), duration("starts.per", p.Starts.Per), count("backlog_jobs_max", p.BacklogJobsMax),
		count("backlog_bytes_max", p.BacklogBytesMax),
	}
}

func updateDetail(c UpdateTenant) []string {
	said := []string{
		given1("organization", c.Organization, func(o cell.OrganizationID) string { return string(o) }), weight(c.Weight),
		given1("reservation_interactive", c.Reservation[0], units), given1("reservation_batch", c.Reservation[1], units),
		given1("limit", c.Limit, units),
		given1("credit", c.Credit, func(c cell.Credit) string {
			return units(c.Max) + "," + units(c.Refill) + "," + units(c.Extra)
		}),
		given1("running_max", c.RunningMax, digits),
		given1("starts", c.Starts, func(s cell.StartRate) string { return digits(s.Jobs) + "/" + s.Per.String() }),
		given1("backlog_jobs_max", c.BacklogJobsMax, digits), given1("backlog_bytes_max", c.BacklogBytesMax, digits),
		given1("display_name", c.DisplayName, quote),
	}
	if c.Rules != nil {
		said = append(said, "placement=set", rulesDetail(*c.Rules))
	}
	return said
}

func keyDetail(c CreateKey) []string {
	var scopes, operations []string
	for _, p := range c.Permissions {
		scopes = append(scopes, p.String())
	}
	for _, op := range c.Operations {
		operations = append(operations, string(op))
	}
	return []string{
		word("tenant", string(c.Tenant)), word("scopes", strings.Join(scopes, ",")), quoted("description", c.Description),
		instant("expires", c.Expires), word("operations", strings.Join(operations, ",")),
	}
}

func rulesDetail(r placement.Rules) string {
	var said []string
	for _, s := range []string{
		word("require", labels(r.Require)), word("apart", r.Apart), amount("compute_min", r.ComputeMin), word("only_cell", string(r.Cell)),
	} {
		if s != "" {
			said = append(said, s)
		}
	}
	return strings.Join(said, " ")
}

func labels(ls []placement.Label) string {
	var said []string
	for _, l := range ls {
		value := l.Value
		if cell.CheckID("", value) != nil { // it could say what it is not
			value = quote(value)
		}
		said = append(said, l.Key+"="+value)
	}
	return strings.Join(said, ",")
}

func load(l placement.Load) string {
	if l == (placement.Load{}) {
		return ""
	}
	return units(l.Compute) + "," + digits(l.Jobs) + "," + digits(l.Bytes)
}

// word, quoted, count, amount, duration and instant leave a zero value out; given1 only what is nil.
func word(name, value string) string {
	if value == "" {
		return ""
	}
	return name + "=" + value
}

func yes(name string, set bool) string {
	if !set {
		return ""
	}
	return name + "=true"
}

func quoted(name, value string) string {
	if value == "" {
		return ""
	}
	return name + "=" + quote(value)
}

// quote is strconv's, but for what that leaves to the present release's tables of what is printable: the audit's hashes cover it. Control characters
// are in no command.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func count[N ~int | ~int64 | ~uint64](name string, n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s=%d", name, n)
}

func amount[N ~int64](name string, n N) string {
	if n == 0 {
		return ""
	}
	return name + "=" + units(n)
}

func duration(name string, d time.Duration) string {
	if d == 0 {
		return ""
	}
	return name + "=" + d.String()
}

func instant(name string, i cell.Instant) string {
	if i == 0 {
		return ""
	}
	return name + "=" + i.Time().Format(time.RFC3339)
}

// weight always says a weight that is there: 0 is one.
func weight(w *cell.Weight) string {
	return given1("weight", w, func(w cell.Weight) string { return strconv.FormatFloat(w.Float(), 'f', -1, 64) })
}

func given1[T any](name string, v *T, say func(T) string) string {
	if v == nil {
		return ""
	}
	return name + "=" + say(*v)
}

func units[N ~int64](n N) string { return cell.FormatUnits(int64(n)) }

func digits[N ~int64](n N) string { return strconv.FormatInt(int64(n), 10) }
