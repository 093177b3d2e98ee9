package leader

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// book is what the leader keeps of a lane that it had to do with.
type book struct {
	lane    cell.Lane
	retries float64 // that the lane has earned
	mode    cell.Mode

	// Of the entry being sealed: the live jobs it adds to the lane with their bytes, whether it charges the lane, and whether it lists it.
	jobs, bytes     int64
	charged, listed bool
}

// retriesMax is how many retries a lane can save up, and what it starts with.
const retriesMax = 100

// book returns the lane's book. Lanes are opened by control's records only, which bounds the books.
func (l *Leader) book(lane cell.Lane) *book {
	b := l.books[lane]
	if b == nil {
		b = &book{lane: lane, retries: retriesMax}
		l.books[lane] = b
	}
	return b
}

// chargedLane notes that the lane's account is to be logged with the entry.
func (l *Leader) chargedLane(b *book) {
	l.draft.list(b)
	b.charged = true
}

// account adds to the entry where everybody stands that it charges, so that a new leader finds it: lanes that are in debt or have a reservation,
// tenants with a limit or credit, and their organizations. Where somebody stands who was promised nothing and owes nothing is not logged.
func (l *Leader) account() {
	d := &l.draft
	for range min(debtsPerEntry, len(l.debts.queue)) { // first: who is charged below owes what the state does not know yet
		switch x := l.debts.take(); {
		case x.organization != "":
			l.logOrganization(x.organization, halved)
		default:
			l.logLane(l.state.Lane(x.lane), halved)
		}
	}
	for _, b := range d.books {
		if !b.charged {
			continue
		}
		lane := l.state.Lane(b.lane)
		if lane == nil {
			continue
		}
		l.logLane(lane, moved)
		l.logTenant(lane.Tenant)
		if o := lane.Tenant.Policy.Organization; o != "" {
			if _, seen := d.parents[o]; !seen {
				d.parents[o] = struct{}{}
				l.logOrganization(o, moved)
			}
		}
	}
	l.accountPromised()
}

// accountPromised adds where those stand whose policies the entry changes: debts are in quanta, which follow weights, and travel with a tenant to
// its new organization; and what a limit or a reservation was charged goes with it.
func (l *Leader) accountPromised() {
	d := &l.draft
	if len(d.tenants)+len(d.organizations) == 0 {
		return
	}
	for _, f := range d.entry.Facts {
		switch f := f.(type) {
		case *engine.PolicyFact:
			if t := l.state.Tenant(f.Policy.Tenant); t != nil {
				l.logTenant(t)
				for _, c := range cell.Classes() {
					l.logLane(t.Lane(c), differs)
				}
			}
		case *engine.OrganizationFact:
			l.logOrganization(f.Policy.Organization, differs)
		}
	}
}

// differs reports whether an account is another than the one in the log.
func differs(logged, now cell.LaneAccount) bool { return logged != now }

// moved reports whether an account is another than the one in the log, as far as that matters: what a lane may spend in its round dies with it.
func moved(logged, now cell.LaneAccount) bool {
	return now.Rounds != logged.Rounds || now.Ahead != logged.Ahead
}

// halved reports whether what is owed is over, or half of what the log says.
func halved(logged, now cell.LaneAccount) bool {
	return logged.Rounds > 0 && now.Rounds <= logged.Rounds/2 || logged.Ahead > 0 && now.Ahead <= logged.Ahead/2
}

// logLane logs the lane's account, if it is such, against that in the log, that it should be.
func (l *Leader) logLane(lane *engine.Lane, should func(logged, now cell.LaneAccount) bool) {
	if lane.Mode != cell.ModeOpen {
		return // where it stands is what it stood at when it was fenced
	}
	a := l.sched.LaneAccount(lane.ID)
	if should(lane.Account, a) {
		l.draft.entry.Accounts = append(l.draft.entry.Accounts, engine.AccountFact{Lane: lane.ID, Account: a})
	} else {
		a = lane.Account
	}
	if owes(a) {
		l.debts.owe(debtor{lane: lane.ID})
	}
}

// logTenant logs the tenant's account if it is another than that in the log. Few have one.
func (l *Leader) logTenant(t *engine.Tenant) {
	id := t.Policy.Tenant
	if _, changing := l.draft.tenants[id]; !changing && t.Policy.Limit == 0 && t.Policy.Credit.Max == 0 && t.Account == (cell.TenantAccount{}) {
		return
	}
	if a := l.sched.TenantAccount(id); a != t.Account {
		l.draft.entry.TenantAccounts = append(l.draft.entry.TenantAccounts, engine.TenantAccountFact{Tenant: id, Account: a})
	}
}

// logOrganization logs the organization's account, if one of its lanes' is such that it should be, or its limit was charged.
func (l *Leader) logOrganization(id cell.OrganizationID, should func(logged, now cell.LaneAccount) bool) {
	o := l.state.Organization(id)
	a, ok := l.sched.OrganizationAccount(id)
	if o == nil || !ok {
		return
	}
	if a.LimitTag != o.Account.LimitTag || should(o.Account.Lanes[0], a.Lanes[0]) || should(o.Account.Lanes[1], a.Lanes[1]) {
		l.draft.entry.OrganizationAccounts = append(l.draft.entry.OrganizationAccounts, engine.OrganizationAccountFact{Organization: id, Account: a})
	} else {
		a = o.Account
	}
	if owes(a.Lanes[0]) || owes(a.Lanes[1]) {
		l.debts.owe(debtor{organization: id})
	}
}

// debtsPerEntry is how many debtors an entry looks at beside those it charges.
const debtsPerEntry = 4

// owes reports whether an account is one that time alone makes better: a debt shrinks with the rounds, and what was had of a reservation in advance
// with the time, and neither is logged.
func owes(a cell.LaneAccount) bool { return a.Rounds > 0 || a.Ahead > 0 }

// debtor is a lane or an organization whose logged account owes. It is looked at again and again, and logged anew when the debt is over or half of
// it is: so it does not come back with the next leader, however late.
type debtor struct {
	lane         cell.Lane
	organization cell.OrganizationID // where it is one
}

// debts is the debtors, in turn.
type debts struct {
	queue []debtor
	in    map[debtor]struct{}
}

func (d *debts) owe(x debtor) {
	if _, in := d.in[x]; !in {
		d.in[x] = struct{}{}
		d.queue = append(d.queue, x)
	}
}

// take takes out the one whose turn it is.
func (d *debts) take() debtor {
	x := d.queue[0]
	d.queue = d.queue[1:]
	delete(d.in, x)
	return x
}
