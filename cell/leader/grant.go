package leader

import (
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// grant hands out what may run: first to idle slots, then beyond them, one job to each call that asks in turn. Open polls come first, in the
// order of their coming, then the reports of this entry.
func (l *Leader) grant() {
	d := &l.draft
	if l.sched.Len() > 0 {
		l.ask()
		l.hand(false)
		l.hand(true)
		l.more = d.grants >= l.cfg.GrantsPerEntryMax
	}
	for _, c := range d.answer { // polls that were granted something
		l.pollsOf(c.session).remove(c)
		c.session.poll = nil
	}
	for _, c := range d.reports {
		if c.session != nil {
			c.session.report = nil
		}
		if c.pending == 0 && c.granted == 0 {
			l.closeReport(c)
			l.finish(c)
			continue
		}
		d.answer = append(d.answer, c)
	}
}

// ask looks for which offers there is something to give, and somebody to give it to. What waits for workers that have no room, as the flood of a
// tenant does whose hand is full, is nothing to give: nobody is looked through for it.
func (l *Leader) ask() {
	d := &l.draft
	d.open = l.polls.offers
	for _, c := range d.asking {
		if !c.session.private() {
			d.open |= 1 << c.session.offer
		}
	}
	d.open &= l.sched.Takeable()
}

// hand gives each call that asks one job in turn, until nobody can be given any. Who asks is not looked at where there is nothing left that its
// worker offers: there may be thousands of open polls, and little to give.
func (l *Leader) hand(beyond bool) {
	d := &l.draft
	d.turn = d.turn[:0]
	serve := func(c *Call) {
		if l.grantOne(c, beyond) {
			d.turn = append(d.turn, c)
		}
	}
	for c := l.polls.first; c != nil && d.open != 0; c = c.next {
		if d.open>>c.offer&1 == 1 {
			serve(c)
		}
	}
	for c := l.privatePolls.first; c != nil; c = c.next {
		serve(c)
	}
	for _, c := range d.asking {
		serve(c)
	}
	for len(d.turn) > 0 {
		again := d.turn[:0]
		for _, c := range d.turn {
			if l.grantOne(c, beyond) {
				again = append(again, c)
			}
		}
		d.turn = again
	}
}

// grantOne gives a call a job, if it wants one, may hold one, and there is one.
func (l *Leader) grantOne(c *Call, beyond bool) bool {
	d := &l.draft
	s := c.session
	if c.left <= 0 || s.room(beyond) <= 0 || c.bytes >= l.cfg.AnswerBytesMax || d.grants >= l.cfg.GrantsPerEntryMax || c.gone() {
		return false
	}
	g, ok := l.pick(s)
	if !ok {
		return false
	}
	le := &lease{
		job: g.Item.ID, book: l.book(g.Item.Lane), session: s, private: s.private(), charged: g.Cost, granted: d.now, duration: s.duration,
		expires: d.now.Add(s.duration),
	}
	if c.Poll != nil {
		le.channel, le.sequence = engine.ChannelLease, c.Poll.Sequence
		if c.granted == 0 {
			d.answer = append(d.answer, c)
		}
	} else {
		le.channel, le.sequence = engine.ChannelReport, c.Report.Sequence
	}
	d.grants++
	c.left--
	c.granted++
	c.bytes += g.Item.Bytes
	l.hold(le)
	if !le.private {
		l.chargedLane(le.book)
		l.spare(le)
	}
	f := &engine.GrantFact{ID: le.job, Lease: engine.Lease{
		Token: engine.Token{Nonce: d.random()}, Session: s.id.Name, Worker: s.worker, Channel: le.channel, Sequence: le.sequence,
		Duration: le.duration, Charged: le.charged, Private: le.private,
		Tier: uint8(g.Tier),
	}}
	d.add(f, factBytes, ref{call: c, lease: le})
	return true
}

// spare keeps a lease from being taken back for a class that its worker takes no jobs of.
func (l *Leader) spare(le *lease) {
	if other := 1 - le.book.lane.Class.Index(); !le.session.classes[other] {
		l.sched.Spare(le.job)
	}
}

// gone reports whether nobody waits for the call any more.
func (c *Call) gone() bool { return c.Poll != nil && c.Poll.abandoned }

// pick takes the next job for a session. What there is nothing of is not looked for again in this entry: grants only make it less.
func (l *Leader) pick(s *session) (sched.Grant, bool) {
	d := &l.draft
	at := d.entry.Time
	if s.private() {
		return l.sched.NextPrivate(at, s.id.Tenant, s.operations, s.classes)
	}
	var classes uint8
	for i, offered := range s.classes {
		if offered {
			classes |= 1 << i
		}
	}
	if d.open>>s.offer&1 == 0 || classes&^d.dry[s.offer] == 0 {
		return sched.Grant{}, false
	}
	g, ok := l.sched.Next(sched.Ask{Now: at, Offer: s.offer, Classes: s.classes})
	if !ok {
		d.dry[s.offer] |= classes
		d.open &= l.sched.Takeable()
	}
	return g, ok
}

// granted completes a lease that is committed, and puts it into its call's answer.
func (l *Leader) granted(r ref, result *engine.Result) error {
	c, le := r.call, r.lease
	c.pending--
	if result.Err != nil {
		if le.void {
			return nil
		}
		return result.Err
	}
	j := l.state.Job(le.job)
	le.token = j.Lease.Token
	leases := c.leases()
	if *leases == nil {
		*leases = make([]Leased, 0, c.granted)
	}
	*leases = append(*leases, leasedOf(le, j))
	return nil
}

// leases returns where the call's answer has its leases.
func (c *Call) leases() *[]Leased {
	if c.Poll != nil {
		return &c.Poll.Leases
	}
	return &c.Report.Leases
}

func leasedOf(le *lease, j *engine.Job) Leased {
	return Leased{
		JobID: j.ID, Token: le.token, Lane: le.book.lane, Spec: j.Spec, Attempt: j.Attempt, Created: j.Created, Duration: le.duration,
	}
}
