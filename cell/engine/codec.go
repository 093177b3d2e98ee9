package engine

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// entryVersion is the first byte of an entry. It changes only if the frame around the records does.
const entryVersion = 1

// The records of accounts, which are no Facts: they have no results.
const (
	kindAccount             factKind = 100
	kindTenantAccount       factKind = 101
	kindOrganizationAccount factKind = 102
)

// AppendEntry appends e's bytes, as they go into the log, to dst: the version, the time, the number of records, the records.
func AppendEntry(dst []byte, e *Entry) []byte {
	w := writer{b: append(dst, entryVersion)}
	w.instant(e.Time)
	w.uint(uint64(e.records()))
	for _, f := range e.Facts {
		at := w.begin(byte(f.kind()))
		w.fact(f)
		w.end(at)
	}
	for i := range e.Accounts {
		at := w.begin(byte(kindAccount))
		w.accountFact(&e.Accounts[i])
		w.end(at)
	}
	for i := range e.TenantAccounts {
		at := w.begin(byte(kindTenantAccount))
		w.text(string(e.TenantAccounts[i].Tenant))
		w.tenantAccount(&e.TenantAccounts[i].Account)
		w.end(at)
	}
	for i := range e.OrganizationAccounts {
		at := w.begin(byte(kindOrganizationAccount))
		w.text(string(e.OrganizationAccounts[i].Organization))
		w.organizationAccount(&e.OrganizationAccounts[i].Account)
		w.end(at)
	}
	return w.b
}

// DecodeEntry returns the entry whose bytes are b. It returns an error that wraps ErrFormat when b is not an entry of a version up to this
// one's. What it returns does not refer to b.
func DecodeEntry(b []byte) (*Entry, error) {
	if len(b) == 0 || b[0] != entryVersion {
		return nil, fmt.Errorf("an entry that does not start with version %d: %w", entryVersion, ErrFormat)
	}
	r := reader{b: b[1:]}
	r.present()
	e := &Entry{Time: r.instant()}
	r.present()
	n := r.uint()
	if n > uint64(len(r.b)/recordHeadBytes) {
		r.fail("the entry is cut off")
	}
	for range n {
		kind, b, ok := r.record()
		if !ok {
			break
		}
		body := reader{b: b}
		switch factKind(kind) { //nolint:exhaustive // every other kind is a fact, or fails as one
		case kindAccount:
			e.Accounts = append(e.Accounts, body.accountFact())
		case kindTenantAccount:
			e.TenantAccounts = append(e.TenantAccounts, TenantAccountFact{cell.TenantID(body.text()), body.tenantAccount()})
		case kindOrganizationAccount:
			e.OrganizationAccounts = append(e.OrganizationAccounts, OrganizationAccountFact{
				cell.OrganizationID(body.text()), body.organizationAccount(),
			})
		default:
			if e.Facts == nil {
				e.Facts = make([]Fact, 0, n)
			}
			e.Facts = append(e.Facts, body.fact(factKind(kind)))
		}
		if body.err != nil {
			return nil, fmt.Errorf("a record of kind %d: %w", kind, body.err)
		}
	}
	if r.err == nil && (len(r.b) > 0 || uint64(e.records()) != n) {
		r.fail("the entry has more or fewer records than it says")
	}
	if r.err != nil {
		return nil, r.err
	}
	return e, nil
}

func (w *writer) fact(f Fact) {
	switch f := f.(type) {
	case *PolicyFact:
		w.policy(&f.Policy)
		if promises(&f.Policy) {
			w.policyMore(&f.Policy)
		}
	case *OrganizationFact:
		w.organizationPolicy(&f.Policy)
	case *SubmitFact:
		w.fixed(f.ID[:])
		w.text(string(f.Tenant))
		w.uint(uint64(f.Class))
		w.fixed(f.BodyHash[:])
		w.spec(&f.Spec)
		if !f.Spec.plain() {
			w.specMore(&f.Spec)
		}
	case *OutcomeFact:
		w.fixed(f.ID[:])
		w.token(f.Token)
		w.uint(uint64(f.Kind))
		w.payload(&f.Result)
		w.text(f.Error)
		w.instant(f.WakeAt)
		w.int(int64(f.Charged))
		if f.Used != nil || f.Ran != 0 {
			w.duration(f.Ran)
			w.resources(f.Used)
		}
	case *CancelFact:
		w.fixed(f.ID[:])
		w.text(string(f.Tenant))
		w.int(int64(f.Charged))
	case *RetryFact:
		w.fixed(f.ID[:])
		w.text(string(f.Tenant))
	case *GrantFact:
		w.fixed(f.ID[:])
		w.lease(&f.Lease)
		if f.Lease.Tier != 0 {
			w.uint(uint64(f.Lease.Tier))
		}
	case *ChargeFact:
		w.fixed(f.ID[:])
		w.token(f.Token)
		w.int(int64(f.Charged))
	case *LimitsFact:
		w.limits(&f.Limits)
	default:
		panic(fmt.Sprintf("engine: fact of type %T", f))
	}
}

func (r *reader) fact(kind factKind) Fact {
	switch kind {
	case kindPolicy:
		f := &PolicyFact{Policy: r.policy()}
		r.policyMore(&f.Policy)
		return f
	case kindOrganization:
		return &OrganizationFact{Policy: r.organizationPolicy()}
	case kindSubmit:
		f := &SubmitFact{ID: r.id(), Tenant: cell.TenantID(r.text()), Class: r.class()}
		r.fixed(f.BodyHash[:])
		f.Spec = r.spec()
		r.specMore(&f.Spec)
		return f
	case kindOutcome:
		return &OutcomeFact{
			ID: r.id(), Token: r.token(), Kind: r.outcome(), Result: r.payload(), Error: r.text(), WakeAt: r.instant(),
			Charged: cell.Cost(r.int()), Ran: r.duration(), Used: r.resources(),
		}
	case kindCancel:
		return &CancelFact{ID: r.id(), Tenant: cell.TenantID(r.text()), Charged: cell.Cost(r.int())}
	case kindRetry:
		return &RetryFact{ID: r.id(), Tenant: cell.TenantID(r.text())}
	case kindGrant:
		f := &GrantFact{ID: r.id(), Lease: r.lease()}
		f.Lease.Tier = r.byte()
		return f
	case kindCharge:
		return &ChargeFact{ID: r.id(), Token: r.token(), Charged: cell.Cost(r.int())}
	case kindLimits:
		return &LimitsFact{Limits: r.limits()}
	case kindAccount, kindTenantAccount, kindOrganizationAccount: // they are no facts: see DecodeEntry
	}
	r.fail("a fact of a kind that this version does not know")
	return nil
}

func (r *reader) id() (id cell.JobID) {
	r.fixed(id[:])
	return id
}

func (r *reader) class() cell.Class {
	c := cell.Class(r.byte())
	if !c.Valid() {
		r.fail("a class that is none")
	}
	return c
}

func (r *reader) outcome() OutcomeKind {
	k := OutcomeKind(r.byte())
	if k == OutcomeNone || k > OutcomePreempt {
		r.fail("an outcome of no kind")
	}
	return k
}
