package localcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/dataplane/client"
)

// Config says how the demonstration is run.
type Config struct {
	// Dir is the cluster's folder, which is kept and can be used again; a temporary one that is removed when empty.
	Dir string
	// Keep leaves the cluster running, once all has been shown, until the context ends.
	Keep bool
}

// The pace of the demonstration: long enough to see what goes on, short enough to watch.
const (
	calm         = 4 * time.Second  // between one thing and the next
	aftermath    = 15 * time.Second // submissions that begin within it count as touched by a failure
	leaderPoll   = 50 * time.Millisecond
	failoverMax  = 3 * time.Minute // until a new leader, on a busy machine
	returnMax    = 3 * time.Minute // until a killed agent has all again
	watchPoll    = 500 * time.Millisecond
	returnPoll   = 200 * time.Millisecond
	freshContact = time.Second
)

// Run runs the demonstration of a cluster that loses its leaders, which is shown on screen while it goes on, and gives report what came of it. With
// c.Keep it then waits until ctx ends, which is no error. It returns ctx's cause when that ends before, and in every case only once its processes are
// gone and, unless c.Dir is set, its folder is.
func Run(ctx context.Context, c Config, screen Screen, report func(*Report) error) error {
	return stage(ctx, c, screen, failovers(), func(ctx context.Context, cluster *Cluster, b *board) (*Report, error) {
		r, err := (&show{cluster: cluster, board: b}).run(ctx)
		if err == nil {
			r.keep, r.cluster = c.Keep, cluster
		}
		return r, err
	}, report)
}

// stage runs a demonstration on a cluster of its own, as [Run] says.
func stage[R any](
	ctx context.Context, c Config, screen Screen, plan blueprint, play func(context.Context, *Cluster, *board) (R, error), report func(R) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := newBoard(plan.title)
	stop := sync.OnceValue(screen.start(b, cancel))
	cluster, err := open(c.Dir, plan, cancel)
	if err != nil {
		return errors.Join(err, stop())
	}
	b.shows(cluster)
	r, err := play(ctx, cluster, b)
	if cause := context.Cause(ctx); cause != nil { // whatever went wrong then went wrong because of it
		err = cause
	}
	shown := stop()
	if err == nil {
		err = shown
	}
	if err == nil {
		err = report(r)
	}
	if err == nil && c.Keep {
		<-ctx.Done()
		if err = context.Cause(ctx); errors.Is(err, failure.ErrInterrupted) { // which is how it is to end
			err = nil
		}
	}
	return errors.Join(err, cluster.close())
}

// show is one run of the demonstration.
type show struct {
	cluster   *Cluster
	board     *board
	loaders   []*loader
	failovers []Failover
}

func (s *show) run(ctx context.Context) (*Report, error) {
	began := time.Now()
	if err := s.cluster.serve(ctx, s.board); err != nil {
		return nil, err
	}
	formed := time.Since(began)
	s.board.sayf("the cluster serves, %s after its first process", seconds(formed))
	for _, t := range Tenants() {
		l, err := newLoader(s.cluster, t)
		if err != nil {
			return nil, err
		}
		defer l.client.Close()
		s.loaders = append(s.loaders, l)
		s.board.follows(l)
	}
	if err := s.underLoad(ctx); err != nil {
		return nil, err
	}
	r := &Report{formed: formed, failovers: s.failovers}
	for _, l := range s.loaders {
		r.tenants = append(r.tenants, l.tally(time.Now()))
	}
	return r, nil
}

// serve makes the cluster, starts all of it and waits until it serves.
func (c *Cluster) serve(ctx context.Context, b *board) error {
	b.sayf("making certificates and keys in %s", c.dir)
	if err := c.prepare(ctx); err != nil {
		return err
	}
	b.sayf("starting %d agents", len(c.layout.Agents))
	if err := c.startAgents(); err != nil {
		return err
	}
	b.sayf("making them a cluster, with cells, tenants and their keys")
	if err := c.form(ctx); err != nil {
		return err
	}
	return c.startWorkers()
}

// underLoad kills leaders and starts them again while both tenants submit, and waits until every job has ended.
func (s *show) underLoad(ctx context.Context) error {
	pace, slow := context.WithCancel(ctx)
	watch, leave := context.WithCancel(ctx)
	var submitting, watching sync.WaitGroup
	defer watching.Wait()
	defer leave()
	defer submitting.Wait()
	defer slow()
	for _, l := range s.loaders {
		submitting.Go(func() { l.submit(ctx, pace) })
		watching.Go(func() { l.follow(watch) })
	}
	watching.Go(func() { s.cluster.watchLeaders(watch, s.board) })
	s.board.sayf("acme in %s and globex in %s submit %d jobs a second each", cellA, cellB, time.Second/submitInterval)
	if err := client.Pause(ctx, calm); err != nil {
		return err
	}
	for _, log := range []string{"", cellA} {
		if err := s.failover(ctx, log); err != nil {
			return err
		}
	}
	slow()
	s.board.sayf("no more jobs: waiting for what is open")
	submitting.Wait()
	for _, l := range s.loaders {
		l.drain(ctx)
	}
	return context.Cause(ctx)
}

// watchLeaders keeps on the board who leads.
func (c *Cluster) watchLeaders(ctx context.Context, b *board) {
	for {
		for _, log := range c.plan.logs() {
			_, name, err := c.peers(ctx, log)
			if err == nil || errors.Is(err, errNoLeader) {
				b.led(log, name)
			}
		}
		if client.Pause(ctx, watchPoll) != nil {
			return
		}
	}
}

func logName(log string) string {
	if log == "" {
		return roleControl
	}
	return log
}

// failover kills the leader of a log, measures what that means, and starts it again.
func (s *show) failover(ctx context.Context, log string) error {
	leader, err := s.leader(ctx, log, "")
	if err != nil {
		return err
	}
	moment := time.Now()
	s.cluster.kill(leader)
	s.board.killed(leader, true)
	s.board.led(log, "")
	s.board.sayf("killed %s, the leader of %s", leader, logName(log))
	next, err := s.leader(ctx, log, leader)
	if err != nil {
		return err
	}
	f := Failover{Log: logName(log), Killed: leader, Leader: next, NewLeader: time.Since(moment)}
	s.board.led(log, next)
	s.board.sayf("%s leads %s, %s after the kill", next, f.Log, seconds(f.NewLeader))
	if err := s.measured(ctx, moment); err != nil {
		return err
	}
	if err := client.Pause(ctx, calm); err != nil {
		return err
	}
	if err := s.cluster.start(leader); err != nil {
		return err
	}
	s.board.killed(leader, false)
	s.board.sayf("started %s again", leader)
	if err := s.caughtUp(ctx, log, leader); err != nil {
		return err
	}
	s.board.sayf("%s has all that it missed", leader)
	if err := client.Pause(ctx, calm/2); err != nil {
		return err
	}
	for _, l := range s.loaders {
		first, longest, _ := l.after(moment, aftermath)
		f.Tenants = append(f.Tenants, Felt{Tenant: l.tenant, First: first, Longest: longest})
	}
	s.failovers = append(s.failovers, f)
	return nil
}

// leader waits until an agent other than one leads a log.
func (s *show) leader(ctx context.Context, log, other string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, failoverMax, fmt.Errorf("nobody leads %s after %v", logName(log), failoverMax))
	defer cancel()
	for {
		if _, name, err := s.cluster.peers(ctx, log); err == nil && name != other {
			return name, nil
		}
		if err := client.Pause(ctx, leaderPoll); err != nil {
			return "", err
		}
	}
}

// measured waits until each tenant had a submission accepted that began after a moment.
func (s *show) measured(ctx context.Context, moment time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, failoverMax, fmt.Errorf("no submission was accepted within %v of a leader's end", failoverMax))
	defer cancel()
	for _, l := range s.loaders {
		for {
			if _, _, ok := l.after(moment, aftermath); ok {
				break
			}
			if err := client.Pause(ctx, leaderPoll); err != nil {
				return err
			}
		}
	}
	return nil
}

// caughtUp waits until a replica has what its log had when it was first asked about.
func (s *show) caughtUp(ctx context.Context, log, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, returnMax, fmt.Errorf("%s has not come back after %v", name, returnMax))
	defer cancel()
	var want uint64
	for {
		resp, _, err := s.cluster.peers(ctx, log)
		if err == nil && want == 0 {
			want = resp.GetCommitIndex()
		}
		for _, p := range resp.GetPeers() {
			contact := p.GetLastContact()
			heard := p.GetLeader() || contact != nil && contact.AsDuration() < freshContact
			if want > 0 && p.GetName() == name && heard && p.GetLastIndex() >= want {
				return nil
			}
		}
		if err := client.Pause(ctx, returnPoll); err != nil {
			return err
		}
	}
}
