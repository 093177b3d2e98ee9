package localcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The pace of a tenant's application: steady, whatever the answers.
const (
	submitInterval = 100 * time.Millisecond
	submitTimeout  = 60 * time.Second // an application's patience
	attemptsMax    = 50               // more than fit into it
	followInterval = 500 * time.Millisecond
	followPage     = 500
	drainTimeout   = 3 * time.Minute
)

// submission is one call that submitted a job, from the application's side.
type submission struct {
	begun, ended time.Time
	id           string
	err          error
}

// loader is a tenant's application: it submits jobs, and looks at which have succeeded.
type loader struct {
	tenant Tenant
	client *client.Client

	mu          sync.Mutex
	submissions []submission
	open        map[int]time.Time // begun and not answered yet, by number
	succeeded   map[string]bool
	count       int
}

func newLoader(c *Cluster, t Tenant) (*loader, error) {
	cfg, err := c.settings(c.KeyFile(t.Name))
	if err != nil {
		return nil, err
	}
	cfg.AttemptsMax = attemptsMax
	cl, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	return &loader{tenant: t, client: cl, open: make(map[int]time.Time), succeeded: make(map[string]bool)}, nil
}

// submit submits a job now and then until pace ends, and returns once every call is answered, or ctx ends.
func (l *loader) submit(ctx context.Context, pace context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	t := time.NewTicker(submitInterval)
	defer t.Stop()
	for {
		select {
		case <-pace.Done():
			return
		case <-t.C:
			calls.Go(func() { l.one(ctx) })
		}
	}
}

func (l *loader) one(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	s := submission{begun: time.Now()}
	l.mu.Lock()
	l.count++
	n := l.count
	l.open[n] = s.begun
	l.mu.Unlock()
	done, err := l.client.Submit(ctx, client.Job{Operation: Operation, Payload: client.JSON(json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)))})
	s.ended, s.id, s.err = time.Now(), done.ID, err
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, n)
	l.submissions = append(l.submissions, s)
}

// follow notes which jobs have succeeded until ctx ends.
func (l *loader) follow(ctx context.Context) {
	for client.Pause(ctx, followInterval) == nil {
		_ = l.look(ctx, false) // a cell without a leader is asked again
	}
}

// look lists the jobs that have succeeded: all, or as far back as is new.
func (l *loader) look(ctx context.Context, all bool) error {
	known := 0
	succeeded := client.Filter{States: []fairleadv1.JobState{fairleadv1.JobState_JOB_STATE_SUCCEEDED}, Operation: Operation, PageSize: followPage}
	for job, err := range l.client.List(ctx, succeeded) {
		if err != nil {
			return err
		}
		l.mu.Lock()
		if l.succeeded[job.GetId()] {
			known++
		}
		l.succeeded[job.GetId()] = true
		l.mu.Unlock()
		if known >= followPage && !all { // what is older has been seen
			return nil
		}
	}
	return nil
}

// drain waits until every accepted job has succeeded, or for far more than time enough.
func (l *loader) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for l.look(ctx, true) != nil || l.tally(time.Now()).missing() > 0 {
		if client.Pause(ctx, followInterval) != nil {
			return
		}
	}
}

// tally is what a tenant's application has seen.
type tally struct {
	tenant                      Tenant
	accepted, completed, errors int
	waiting                     time.Duration // how long the oldest open call has been waiting
	longest                     time.Duration
	firstError                  error
	note                        string // for people
}

func (t tally) missing() int { return t.accepted - t.completed }

func (l *loader) tally(now time.Time) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := tally{tenant: l.tenant}
	for _, s := range l.submissions {
		t.longest = max(t.longest, s.ended.Sub(s.begun))
		if s.err != nil {
			if t.errors++; t.firstError == nil {
				t.firstError = s.err
			}
			continue
		}
		t.accepted++
		if l.succeeded[s.id] {
			t.completed++
		}
	}
	for _, begun := range l.open { // order-free: the largest of them
		t.waiting = max(t.waiting, now.Sub(begun))
	}
	return t
}

// after returns how long after a moment the first submission that began then was accepted, and false when none was yet; and how long the longest
// took that was open at the moment, or began within a while after it.
func (l *loader) after(moment time.Time, while time.Duration) (first, longest time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.submissions {
		if s.err == nil && !s.begun.Before(moment) && (!ok || s.ended.Sub(moment) < first) {
			first, ok = s.ended.Sub(moment), true
		}
		if s.ended.After(moment) && s.begun.Before(moment.Add(while)) {
			longest = max(longest, s.ended.Sub(s.begun))
		}
	}
	return first, longest, ok
}
