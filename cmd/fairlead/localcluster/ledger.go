package localcluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// whaleTenant is the place of the whale among the tenants.
const whaleTenant = 0

// The moments of a run.
const (
	markFlood = iota // the whale comes
	markMoved        // and is served by its own cell
	markEnd
	marks
)

// entry is one job, from the side of its application and of whoever worked on it.
type entry struct {
	tenant          int
	begun, answered time.Time
	id              string // of an accepted one
	err             error
	start           time.Time // of its first run
	ended           []string  // the job of each run that came to its end
}

// ledger is what applications and workers have seen of all jobs. It is safe for concurrent use.
type ledger struct {
	tenants []Tenant

	mu      sync.Mutex
	entries []entry
	failed  []int // calls other than submissions that failed, by tenant
	first   error // the first error of any call
	marks   [marks]time.Time
}

func newLedger(tenants []Tenant) *ledger {
	return &ledger{tenants: tenants, failed: make([]int, len(tenants))}
}

func (l *ledger) mark(m int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks[m] = time.Now()
}

// begin notes jobs of a call that is about to be made, and returns the number of the first.
func (l *ledger) begin(tenant, jobs int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := len(l.entries)
	for now := time.Now(); len(l.entries) < first+jobs; {
		l.entries = append(l.entries, entry{tenant: tenant, begun: now})
	}
	return first
}

// answered notes what became of a submission.
func (l *ledger) answered(n int, id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.entries[n]
	e.answered, e.id, e.err = time.Now(), id, err
	l.first = cmp.Or(l.first, err)
}

// fail notes a call that is no submission and failed.
func (l *ledger) fail(tenant int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed[tenant]++
	l.first = cmp.Or(l.first, err)
}

// order is the payload of a job: its number in the ledger.
type order struct {
	N int `json:"n"`
}

// handler returns what works on a job: it takes a while, and notes when.
func (l *ledger) handler() worker.HandlerFunc {
	return func(ctx context.Context, task *worker.Task) (client.Payload, error) {
		var o order
		if err := json.Unmarshal(task.Payload.Body(), &o); err != nil {
			return client.Payload{}, worker.Fatal(fmt.Errorf("the payload: %w", err))
		}
		l.run(o.N, "")
		if err := client.Pause(ctx, whaleService); err != nil {
			return client.Payload{}, err
		}
		l.run(o.N, task.ID)
		return client.JSON(o), nil
	}
}

// run notes that a job begins, or with its id that it has ended.
func (l *ledger) run(n int, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n >= len(l.entries) { // of an earlier run in the same folder
		return
	}
	e := &l.entries[n]
	switch {
	case id != "":
		e.ended = append(e.ended, id)
	case e.start.IsZero():
		e.start = time.Now()
	}
}

// missing counts the accepted jobs that have not come to an end.
func (l *ledger) missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i := range l.entries {
		if l.entries[i].id != "" && len(l.entries[i].ended) == 0 {
			n++
		}
	}
	return n
}

// wait is the 95th percentile of how long jobs of the neighbours waited whose submission began between two moments, from there to the start of their
// handlers; a job that has not begun by now has waited until now.
func (l *ledger) wait(from, to, now time.Time) time.Duration {
	return l.waitOf(func(tenant int) bool { return tenant != whaleTenant }, from, to, now)
}

func (l *ledger) waitOf(whose func(tenant int) bool, from, to, now time.Time) time.Duration {
	const quantile = 0.95
	l.mu.Lock()
	var waits []time.Duration
	for i := range l.entries {
		e := &l.entries[i]
		if !whose(e.tenant) || e.err != nil || e.begun.Before(from) || !e.begun.Before(to) {
			continue
		}
		start := e.start
		if start.IsZero() {
			start = now
		}
		waits = append(waits, start.Sub(e.begun))
	}
	l.mu.Unlock()
	return nearestRank(waits, quantile)
}

// nearestRank returns the least value that a share q of them does not exceed; 0 of none. It sorts them.
func nearestRank(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := int(math.Ceil(q * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}

// longest is how long the longest submission of a tenant took to be answered.
func (l *ledger) longest(tenant int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := time.Duration(0)
	for i := range l.entries {
		if e := &l.entries[i]; e.tenant == tenant && !e.answered.IsZero() {
			longest = max(longest, e.answered.Sub(e.begun))
		}
	}
	return longest
}

// applicant is a tenant's application: it submits jobs and looks at them. Each call is made once: an error is seen.
type applicant struct {
	ledger *ledger
	place  int
	tenant Tenant
	client *client.Client
}

func newApplicant(c *Cluster, l *ledger, place int, t Tenant) (*applicant, error) {
	cfg, err := c.settings(c.KeyFile(t.Name))
	if err != nil {
		return nil, err
	}
	cfg.AttemptsMax = 1
	cl, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	return &applicant{ledger: l, place: place, tenant: t, client: cl}, nil
}

func jobOf(n int, class cell.Class) client.Job {
	return client.Job{Operation: Operation, Class: class, Payload: client.JSON(order{N: n})}
}

// steadily submits a job now and then, of the classes in turn, until pace ends, and returns once every call is answered, or ctx ends.
func (a *applicant) steadily(ctx, pace context.Context, every time.Duration, classes ...cell.Class) {
	var calls sync.WaitGroup
	defer calls.Wait()
	t := time.NewTicker(every)
	defer t.Stop()
	for i := 0; ; i++ {
		select {
		case <-pace.Done():
			return
		case <-t.C:
			class := classes[i%len(classes)]
			calls.Go(func() { a.submit(ctx, class) })
		}
	}
}

func (a *applicant) submit(ctx context.Context, class cell.Class) {
	n := a.ledger.begin(a.place, 1)
	done, err := a.client.Submit(ctx, jobOf(n, class))
	a.ledger.answered(n, done.ID, err)
}

// floodPiece is how many jobs of a flood go in one call.
const floodPiece = 250

// flood submits many jobs as fast as they are taken.
func (a *applicant) flood(ctx context.Context, class cell.Class, jobs int) {
	for jobs > 0 && ctx.Err() == nil {
		piece := make([]client.Job, min(floodPiece, jobs))
		first := a.ledger.begin(a.place, len(piece))
		for i := range piece {
			piece[i] = jobOf(first+i, class)
		}
		results, err := a.client.SubmitBatch(ctx, piece)
		for i := range piece {
			switch {
			case i < len(results):
				a.ledger.answered(first+i, results[i].ID, results[i].Err)
			default:
				a.ledger.answered(first+i, "", err)
			}
		}
		jobs -= len(piece)
	}
}

// read looks at a job of its own now and then until pace ends.
func (a *applicant) read(ctx, pace context.Context) {
	for client.Pause(pace, readPace) == nil {
		id := a.ledger.someJob(a.place)
		if id == "" {
			continue
		}
		if _, err := a.client.Get(ctx, id); err != nil && ctx.Err() == nil {
			a.ledger.fail(a.place, fmt.Errorf("getting the job %s: %w", id, err))
		}
	}
}

// someJob returns an accepted job of a tenant: of those in the middle, which may be waiting, running or over.
func (l *ledger) someJob(tenant int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.entries {
		if e := &l.entries[(len(l.entries)/2+i)%len(l.entries)]; e.tenant == tenant && e.id != "" {
			return e.id
		}
	}
	return ""
}

// list returns the tenant's jobs as often as the list has them.
func (a *applicant) list(ctx context.Context) ([]*fairleadv1.Job, error) {
	var all []*fairleadv1.Job
	for job, err := range a.client.List(ctx, client.Filter{PageSize: followPage}) {
		if err != nil {
			return nil, err
		}
		all = append(all, job)
	}
	return all, nil
}

// recent is how far back the waits go that are shown while it goes on.
const recent = 5 * time.Second

// tally is what the tenant's application has seen until now.
func (a *applicant) tally(now time.Time) tally {
	t := a.ledger.tally(a.place, now)
	t.tenant = a.tenant
	wait := a.ledger.waitOf(func(tenant int) bool { return tenant == a.place }, now.Add(-recent), now, now)
	t.note = "p95 wait " + seconds(wait)
	return t
}

func (l *ledger) tally(tenant int, now time.Time) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := tally{errors: l.failed[tenant]}
	for i := range l.entries {
		e := &l.entries[i]
		switch {
		case e.tenant != tenant:
		case e.answered.IsZero():
			t.waiting = max(t.waiting, now.Sub(e.begun))
		case e.err != nil:
			t.errors++
		default:
			t.accepted++
			if len(e.ended) > 0 {
				t.completed++
			}
		}
	}
	return t
}
