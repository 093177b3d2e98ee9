package leader

import (
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// pollList is open polls in the order of their coming.
type pollList struct {
	first, last *Call
	due         cell.Instant // no poll ends before; 0 when there is none
	// How many there are of each offer, and those of which there are any, a bit each. Of tenants' own workers all count as of one.
	count  [sched.OffersMax]int32
	offers uint64
}

func (p *pollList) push(c *Call) {
	c.offer = c.session.offer
	if p.count[c.offer]++; p.count[c.offer] == 1 {
		p.offers |= 1 << c.offer
	}
	c.prev, c.next = p.last, nil
	if p.last != nil {
		p.last.next = c
	} else {
		p.first = c
	}
	p.last = c
	p.hurry(c.Poll.Until)
}

func (p *pollList) remove(c *Call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else if p.first == c {
		p.first = c.next
	} else {
		return // it is in no list
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		p.last = c.prev
	}
	c.prev, c.next = nil, nil
	if p.count[c.offer]--; p.count[c.offer] == 0 {
		p.offers &^= 1 << c.offer
	}
}

// hurry notes that some poll ends at the time.
func (p *pollList) hurry(at cell.Instant) {
	if p.due == 0 || at < p.due {
		p.due = at
	}
}

func (l *Leader) pollsOf(s *session) *pollList {
	if s.private() {
		return &l.privatePolls
	}
	return &l.polls
}

// openPoll takes a worker's poll in: it waits until it is granted jobs, or its time is over.
func (l *Leader) openPoll(c *Call, p *Poll) {
	if p.abandoned {
		l.finish(c)
		return
	}
	if s := l.sessions[p.Session]; s != nil && p.Sequence > 0 && p.Sequence < s.pollSeq {
		c.Err = ErrPollReplaced // it was overtaken by a later one
		l.finish(c)
		return
	}
	s, err := l.session(p)
	if err != nil {
		c.Err = err
		l.finish(c)
		return
	}
	c.session, c.left = s, p.Want
	if old := s.poll; old != nil {
		old.Err = ErrPollReplaced
		l.closePoll(old)
	}
	if p.Sequence > 0 {
		if p.Sequence == s.pollSeq {
			p.Leases = l.redelivered(s, engine.ChannelLease, p.Sequence)
		}
		s.pollSeq = p.Sequence
		l.reconcile(s, p)
		if len(p.Leases) > 0 {
			l.finish(c)
			return
		}
	}
	s.poll = c
	l.pollsOf(s).push(c)
}

// closePoll ends a poll without jobs.
func (l *Leader) closePoll(c *Call) {
	l.pollsOf(c.session).remove(c)
	c.session.poll = nil
	l.finish(c)
}

// closePolls ends the polls whose time is over or whose callers are gone.
func (l *Leader) closePolls(polls *pollList) {
	now := l.draft.now
	if polls.due == 0 || polls.due > now {
		return
	}
	polls.due = 0
	var next *Call
	for c := polls.first; c != nil; c = next {
		next = c.next
		switch p := c.Poll; {
		case p.abandoned:
			l.closePoll(c)
		case p.Until <= now:
			c.session.seen = now
			l.closePoll(c)
		default:
			polls.hurry(p.Until)
		}
	}
}

// undelivered deals with what a poll was granted whose caller went away. A session that numbers its polls is given it again when it
// repeats this one soon; any other never can be.
func (l *Leader) undelivered(p *Poll, now cell.Instant) {
	for i := range p.Leases {
		le := l.leases.get(p.Leases[i].JobID)
		if le == nil || le.token != p.Leases[i].Token || le.revoked {
			continue
		}
		le.undelivered = true
		if le.frozen {
			continue
		}
		le.expires = now // taken back with the next entry
		if p.Sequence > 0 {
			le.expires = now.Add(min(le.duration, repeatGrace))
		}
		l.leases.fix(le)
	}
}

// repeatGrace is how long a worker has to repeat a poll that it gave up before what it was granted goes to another.
const repeatGrace = 5 * time.Second

// redelivered returns again what an answer carried that may have been lost.
func (l *Leader) redelivered(s *session, channel engine.Channel, sequence int64) []Leased {
	var leases []Leased
	for _, le := range s.held {
		if le.channel != channel || le.sequence != sequence || le.revoked && !le.parted {
			continue
		}
		if j := l.state.Job(le.job); !le.parted || j != nil && j.State == engine.Leased && j.Lease.Token == le.token {
			l.extend(le)
			leases = append(leases, leasedOf(le, j))
		}
	}
	return leases
}

// reconcile takes leases back that the worker does not have: it has seen the answers that carried them, and does not name them.
func (l *Leader) reconcile(s *session, p *Poll) {
	if len(s.held) == 0 {
		return
	}
	has := make(map[LeaseRef]struct{}, len(p.Held))
	for _, h := range p.Held {
		has[h] = struct{}{}
	}
	for i := 0; i < len(s.held); {
		le := s.held[i]
		answered := le.sequence < p.Sequence
		if le.channel == engine.ChannelReport {
			answered = le.sequence <= p.ReportSequence
		}
		_, named := has[LeaseRef{JobID: le.job, Token: le.token}]
		switch {
		case !answered || le.sequence == 0 || named || le.frozen:
		case le.revoked:
			l.end(le)
		default:
			l.giveUp(le, engine.OutcomeRelease, 0)
		}
		if i < len(s.held) && s.held[i] == le {
			i++
		}
	}
}
