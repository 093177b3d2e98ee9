package engine

import (
	"math"

	"github.com/fairlead/fairlead/cell"
)

// What stands in several kinds of record. Where later fields could not be appended, because others follow in some record, they are written apart,
// at the end of each record and only where there are any: a record that does without them has the bytes that it always had.

func (w *writer) policy(p *cell.TenantPolicy) {
	w.text(string(p.Tenant))
	w.int(int64(p.Weight))
	w.int(p.BacklogJobsMax)
	w.int(p.BacklogBytesMax)
	w.uint(uint64(p.Epoch))
}

func (r *reader) policy() cell.TenantPolicy {
	return cell.TenantPolicy{
		Tenant: cell.TenantID(r.text()), Weight: cell.Weight(r.int()), BacklogJobsMax: r.int(), BacklogBytesMax: r.int(),
		Epoch: cell.Epoch(r.uint()),
	}
}

// promises reports whether a policy has any of the fields that policyMore writes.
func promises(p *cell.TenantPolicy) bool {
	return *p != cell.TenantPolicy{
		Tenant: p.Tenant, Weight: p.Weight, BacklogJobsMax: p.BacklogJobsMax, BacklogBytesMax: p.BacklogBytesMax, Epoch: p.Epoch,
	}
}

func (w *writer) policyMore(p *cell.TenantPolicy) {
	w.text(string(p.Organization))
	w.int(int64(p.Reservation[0]))
	w.int(int64(p.Reservation[1]))
	w.int(int64(p.Limit))
	w.int(int64(p.Credit.Max))
	w.int(int64(p.Credit.Refill))
	w.int(int64(p.Credit.Extra))
	w.int(p.RunningMax)
	w.int(p.Starts.Jobs)
	w.duration(p.Starts.Per)
	if p.Groups != 0 { // the record's last
		w.uint(p.Groups)
	}
}

func (r *reader) policyMore(p *cell.TenantPolicy) {
	p.Organization = cell.OrganizationID(r.text())
	p.Reservation = [2]cell.Rate{cell.Rate(r.int()), cell.Rate(r.int())}
	p.Limit = cell.Rate(r.int())
	p.Credit = cell.Credit{Max: cell.Cost(r.int()), Refill: cell.Rate(r.int()), Extra: cell.Rate(r.int())}
	p.RunningMax = r.int()
	p.Starts = cell.StartRate{Jobs: r.int(), Per: r.duration()}
	p.Groups = r.uint()
}

func (w *writer) organizationPolicy(p *cell.OrganizationPolicy) {
	w.text(string(p.Organization))
	w.int(int64(p.Weight))
	w.int(int64(p.Reservation[0]))
	w.int(int64(p.Reservation[1]))
	w.int(int64(p.Limit))
	w.uint(uint64(p.Epoch))
}

func (r *reader) organizationPolicy() cell.OrganizationPolicy {
	return cell.OrganizationPolicy{
		Organization: cell.OrganizationID(r.text()), Weight: cell.Weight(r.int()),
		Reservation: [2]cell.Rate{cell.Rate(r.int()), cell.Rate(r.int())}, Limit: cell.Rate(r.int()), Epoch: cell.Epoch(r.uint()),
	}
}

func (w *writer) limits(l *Limits) {
	w.int(l.LiveJobsMax)
	w.int(l.LiveBytesMax)
	w.int(l.FinishedBytesMax)
	w.int(l.FinishedJobsMax)
	w.int(l.KeyRecordsMax)
	w.duration(l.KeyWindow)
	w.int(int64(l.CrashesMax))
	w.int(int64(l.ErrorBytesMax))
	w.int(int64(l.TimersPerEntryMax))
	w.int(l.FinishedCellBytesMax)
	if l.EstimatesMax != 0 {
		w.int(int64(l.EstimatesMax))
	}
}

func (r *reader) limits() Limits {
	return Limits{
		LiveJobsMax: r.int(), LiveBytesMax: r.int(), FinishedBytesMax: r.int(), FinishedJobsMax: r.int(), KeyRecordsMax: r.int(),
		KeyWindow: r.duration(), CrashesMax: r.int32(), ErrorBytesMax: int(r.int32()), TimersPerEntryMax: int(r.int32()),
		FinishedCellBytesMax: r.int(), EstimatesMax: int(r.int32()),
	}
}

func (w *writer) token(t Token) {
	w.uint(uint64(t.Epoch))
	w.int(int64(t.Attempt))
	w.fixed64(t.Nonce)
}

func (r *reader) token() Token {
	return Token{Epoch: cell.Epoch(r.uint()), Attempt: r.int32(), Nonce: r.fixed64()}
}

func (w *writer) lanesID(l cell.Lane) {
	w.text(string(l.Tenant))
	w.uint(uint64(l.Class))
}

func (r *reader) lanesID() cell.Lane {
	return cell.Lane{Tenant: cell.TenantID(r.text()), Class: r.class()}
}

func (w *writer) move(m cell.Move) {
	w.text(string(m.Migration))
	w.uint(uint64(m.Attempt))
}

func (r *reader) move() cell.Move {
	m := cell.Move{Migration: cell.MigrationID(r.text())}
	n := r.uint()
	if n > math.MaxUint32 {
		r.fail("a number is out of its range")
	}
	m.Attempt = uint32(n)
	return m
}

func (r *reader) mode() cell.Mode {
	m := cell.Mode(r.byte())
	if !m.Valid() {
		r.fail("a lane in no mode")
		return 0
	}
	return m
}

func (w *writer) cursor(c Cursor) {
	w.uint(c.Seeded)
	w.uint(c.Change)
}

func (r *reader) cursor() Cursor { return Cursor{Seeded: r.uint(), Change: r.uint()} }

// wholePolicy is a policy with all of its fields, where others follow.
func (w *writer) wholePolicy(p *cell.TenantPolicy) {
	var b writer
	b.policy(p)
	if promises(p) {
		b.policyMore(p)
	}
	w.bytes(b.b)
}

func (r *reader) wholePolicy() cell.TenantPolicy {
	b := reader{b: r.view()}
	p := b.policy()
	b.policyMore(&p)
	if b.err != nil {
		r.fail(b.err.Error())
	}
	return p
}

func (w *writer) payload(p *Payload) {
	w.uint(uint64(p.Kind))
	w.text(p.ContentType)
	w.bytes(p.Data)
}

func (r *reader) payload() Payload {
	p := Payload{Kind: PayloadKind(r.byte()), ContentType: r.text(), Data: r.bytes()}
	if p.Kind > PayloadData {
		r.fail("a payload of no kind")
	}
	return p
}

func (w *writer) spec(s *Spec) {
	w.text(string(s.Operation))
	w.payload(&s.Payload)
	w.text(s.Key)
	w.int(int64(s.Priority))
	w.instant(s.NotBefore)
	w.instant(s.Deadline)
	w.duration(s.ExecutionTimeout)
	w.int(int64(s.Cost))
	w.int(int64(s.Retry.AttemptsMax))
	w.duration(s.Retry.DelayMin)
	w.duration(s.Retry.DelayMax)
	w.uint(uint64(len(s.Labels)))
	for _, l := range s.Labels {
		w.text(l.Name)
		w.text(l.Value)
	}
	w.duration(s.Retention)
	w.text(s.Traceparent)
}

func (r *reader) spec() Spec {
	s := Spec{
		Operation: cell.Operation(r.text()), Payload: r.payload(), Key: r.text(), Priority: r.int32(), NotBefore: r.instant(),
		Deadline: r.instant(), ExecutionTimeout: r.duration(), Cost: cell.Cost(r.int()),
		Retry: Retry{AttemptsMax: r.int32(), DelayMin: r.duration(), DelayMax: r.duration()},
	}
	n := r.uint()
	if n > uint64(len(r.b)/2) { // a label takes two bytes at least
		r.fail("more labels than bytes")
		return s
	}
	if n > 0 {
		s.Labels = make([]Label, n)
	}
	for i := range s.Labels {
		s.Labels[i] = Label{Name: r.text(), Value: r.text()}
	}
	s.Retention = r.duration()
	s.Traceparent = r.text()
	return s
}

// plain reports whether a spec has none of the fields that specMore writes.
func (sp *Spec) plain() bool { return len(sp.Keys) == 0 && sp.Resources == nil && !sp.Preemptible }

func (w *writer) specMore(s *Spec) {
	w.bool(s.Preemptible)
	w.resources(s.Resources)
	w.uint(uint64(len(s.Keys)))
	for _, k := range s.Keys {
		w.text(k.Key)
		w.int(k.Max)
	}
}

func (r *reader) specMore(s *Spec) {
	s.Preemptible = r.bool()
	s.Resources = r.resources()
	n := r.uint()
	if n > uint64(len(r.b)/2) { // a key takes two bytes at least
		r.fail("more concurrency keys than bytes")
		return
	}
	if n > 0 {
		s.Keys = make([]cell.ConcurrencyKey, n)
	}
	for i := range s.Keys {
		s.Keys[i] = cell.ConcurrencyKey{Key: r.text(), Max: r.int()}
	}
}

// resources writes how many components follow, and those: none for nil, and none that is 0 at the end.
func (w *writer) resources(v *cell.Resources) {
	n := 0
	if v != nil {
		for n = len(v); n > 0 && v[n-1] == 0; {
			n--
		}
	}
	w.uint(uint64(n))
	for i := range n {
		w.int(v[i])
	}
}

func (r *reader) resources() *cell.Resources {
	n := r.uint()
	switch {
	case n == 0:
		return nil
	case n > uint64(len(cell.Resources{})):
		r.fail("a resource that this version does not know")
		return nil
	}
	v := new(cell.Resources)
	for i := range n {
		v[i] = r.int()
	}
	if *v == (cell.Resources{}) {
		return nil
	}
	return v
}

func (w *writer) lease(l *Lease) {
	w.token(l.Token)
	w.text(l.Session)
	w.text(l.Worker)
	w.uint(uint64(l.Channel))
	w.int(l.Sequence)
	w.duration(l.Duration)
	w.int(int64(l.Charged))
	w.bool(l.Private)
}

func (r *reader) lease() Lease {
	return Lease{
		Token: r.token(), Session: r.text(), Worker: r.text(), Channel: Channel(r.byte()), Sequence: r.int(), Duration: r.duration(),
		Charged: cell.Cost(r.int()), Private: r.bool(),
	}
}

func (w *writer) account(a *AccountFact) {
	w.text(string(a.Lane.Tenant))
	w.uint(uint64(a.Lane.Class))
	w.int(a.Account.Rounds)
	w.int(a.Account.Deficit)
}

func (r *reader) account() AccountFact {
	return AccountFact{
		Lane:    cell.Lane{Tenant: cell.TenantID(r.text()), Class: r.class()},
		Account: cell.LaneAccount{Rounds: r.int(), Deficit: r.int()},
	}
}

func (w *writer) accountFact(a *AccountFact) {
	w.account(a)
	if a.Account.Ahead != 0 {
		w.duration(a.Account.Ahead)
	}
}

func (r *reader) accountFact() AccountFact {
	a := r.account()
	a.Account.Ahead = r.duration()
	return a
}

func (w *writer) tenantAccount(a *cell.TenantAccount) {
	w.instant(a.LimitTag)
	w.instant(a.CreditTag)
	w.int(int64(a.Credit))
	w.instant(a.CreditAt)
}

func (r *reader) tenantAccount() cell.TenantAccount {
	return cell.TenantAccount{LimitTag: r.instant(), CreditTag: r.instant(), Credit: cell.Cost(r.int()), CreditAt: r.instant()}
}

func (w *writer) organizationAccount(a *cell.OrganizationAccount) {
	w.instant(a.LimitTag)
	for _, l := range a.Lanes {
		w.int(l.Rounds)
		w.int(l.Deficit)
		w.duration(l.Ahead)
	}
}

func (r *reader) organizationAccount() cell.OrganizationAccount {
	a := cell.OrganizationAccount{LimitTag: r.instant()}
	for i := range a.Lanes {
		a.Lanes[i] = cell.LaneAccount{Rounds: r.int(), Deficit: r.int(), Ahead: r.duration()}
	}
	return a
}
