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
		if !f.Spec.plain() || f.Epoch != 0 {
			w.specMore(&f.Spec)
		}
		w.epoch(f.Epoch)
	case *OutcomeFact:
		w.fixed(f.ID[:])
		w.token(f.Token)
		w.uint(uint64(f.Kind))
		w.payload(&f.Result)
		w.text(f.Error)
		w.instant(f.WakeAt)
		w.int(int64(f.Charged))
		if f.Used != nil || f.Ran != 0 || f.Epoch != 0 {
			w.duration(f.Ran)
			w.resources(f.Used)
		}
		w.epoch(f.Epoch)
	case *CancelFact:
		w.fixed(f.ID[:])
		w.text(string(f.Tenant))
		w.int(int64(f.Charged))
		w.epoch(f.Epoch)
	case *RetryFact:
		w.fixed(f.ID[:])
		w.text(string(f.Tenant))
		w.epoch(f.Epoch)
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
		w.laneFact(f)
	}
}

// epoch writes the epoch that a caller knows a lane at, where the caller says: it is the record's last field.
func (w *writer) epoch(e cell.Epoch) {
	if e != 0 {
		w.uint(uint64(e))
	}
}

// laneFact is fact for what is done to a lane as a whole.
func (w *writer) laneFact(f Fact) {
	switch f := f.(type) {
	case *StageFact:
		w.lanesID(f.Lane)
		w.wholePolicy(&f.Policy)
		w.move(f.Move)
		w.uint(uint64(f.Epoch))
	case *TrackFact:
		w.lanesID(f.Lane)
		w.move(f.Move)
		w.bool(f.Off)
	case *ModeFact:
		w.lanesID(f.Lane)
		w.uint(uint64(f.Mode))
		w.uint(uint64(f.Epoch))
		w.move(f.Move)
		w.int(int64(f.Share))
	case *ImportFact:
		w.lanesID(f.Lane)
		w.move(f.Move)
		w.cursor(f.Begin)
		w.cursor(f.End)
		w.bytes(f.Records)
	case *WipeFact:
		w.lanesID(f.Lane)
		w.move(f.Move)
		w.int(int64(f.Max))
	case *ProveFact:
		w.text(string(f.Tenant))
		w.move(f.Move)
		w.uint(f.Token)
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
		f.Epoch = cell.Epoch(r.uint())
		return f
	case kindOutcome:
		return &OutcomeFact{
			ID: r.id(), Token: r.token(), Kind: r.outcome(), Result: r.payload(), Error: r.text(), WakeAt: r.instant(),
			Charged: cell.Cost(r.int()), Ran: r.duration(), Used: r.resources(), Epoch: cell.Epoch(r.uint()),
		}
	case kindCancel:
		return &CancelFact{ID: r.id(), Tenant: cell.TenantID(r.text()), Charged: cell.Cost(r.int()), Epoch: cell.Epoch(r.uint())}
	case kindRetry:
		return &RetryFact{ID: r.id(), Tenant: cell.TenantID(r.text()), Epoch: cell.Epoch(r.uint())}
	case kindGrant:
		f := &GrantFact{ID: r.id(), Lease: r.lease()}
		f.Lease.Tier = r.byte()
		return f
	case kindCharge:
		return &ChargeFact{ID: r.id(), Token: r.token(), Charged: cell.Cost(r.int())}
	case kindLimits:
		return &LimitsFact{Limits: r.limits()}
	case kindStage, kindTrack, kindMode, kindImport, kindWipe, kindProve:
		return r.laneFact(kind)
	case kindAccount, kindTenantAccount, kindOrganizationAccount: // they are no facts: see DecodeEntry
	}
	r.fail("a fact of a kind that this version does not know")
	return nil
}

func (r *reader) laneFact(kind factKind) Fact {
	switch kind { //nolint:exhaustive // the others are read by fact
	case kindStage:
		return &StageFact{Lane: r.lanesID(), Policy: r.wholePolicy(), Move: r.move(), Epoch: cell.Epoch(r.uint())}
	case kindTrack:
		return &TrackFact{Lane: r.lanesID(), Move: r.move(), Off: r.bool()}
	case kindMode:
		return &ModeFact{Lane: r.lanesID(), Mode: r.mode(), Epoch: cell.Epoch(r.uint()), Move: r.move(), Share: r.int32()}
	case kindImport:
		return &ImportFact{Lane: r.lanesID(), Move: r.move(), Begin: r.cursor(), End: r.cursor(), Records: r.bytes()}
	case kindWipe:
		return &WipeFact{Lane: r.lanesID(), Move: r.move(), Max: int(r.int32())}
	default:
		return &ProveFact{Tenant: cell.TenantID(r.text()), Move: r.move(), Token: r.uint()}
	}
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
