package crash

import (
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func durationOf(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// audit compares the server's books with the ledger, while work goes on: every job that was acknowledged is there, under its key, and what
// had ended has ended as before. Of sample jobs that have ended it looks at the results, too; of all when sample is negative.
func (l *load) audit(rng *rand.Rand, sample int) {
	l.t.Helper()
	acked, before := l.books.snapshot() // before the list: what is acknowledged or ends later may be missing from it
	listed := make(map[string]*fairleadv1.Job, len(acked))
	for _, tenant := range tenants() {
		keys := map[string]string{}
		for job, err := range l.clients[tenant].List(l.t.Context(), client.Filter{PageSize: 500}) {
			if err != nil {
				l.t.Fatalf("listing jobs: %v", err)
			}
			if other, twice := keys[job.GetIdempotencyKey()]; twice && other != job.GetId() {
				l.t.Errorf("tenant %s has jobs %s and %s under one key", tenant, other, job.GetId())
			}
			keys[job.GetIdempotencyKey()] = job.GetId()
			if l.books.find(tenant, job) == nil {
				l.t.Errorf("tenant %s has job %s, which nobody submitted", tenant, job.GetId())
			}
			listed[job.GetId()] = job
		}
	}
	var ended []*entry
	for _, e := range acked {
		job := listed[e.id]
		if job == nil {
			l.t.Errorf("job %s of key %s was acknowledged and is lost", e.id, nameOf(e.tenant, e.key))
			continue
		}
		if before[e] || client.Ended(job.GetState()) {
			l.books.saw(e, job, false)
			ended = append(ended, e)
		}
	}
	if sample >= 0 {
		rng.Shuffle(len(ended), func(i, j int) { ended[i], ended[j] = ended[j], ended[i] })
		ended = ended[:min(sample, len(ended))]
	}
	l.auditResults(ended)
}

// auditResults looks at whole jobs.
func (l *load) auditResults(entries []*entry) {
	const readers = 8
	next := make(chan *entry)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for e := range next {
				job, err := l.clients[e.tenant].Get(l.t.Context(), e.id)
				if err != nil {
					l.t.Errorf("reading job %s: %v", e.id, err)
					continue
				}
				l.books.saw(e, job, true)
			}
		})
	}
	for _, e := range entries {
		next <- e
	}
	close(next)
	wg.Wait()
}

// auditAll is the last audit, once every job has ended: twice, with a kill in between, and nothing may differ.
func (l *load) auditAll(rng *rand.Rand) {
	l.t.Helper()
	for range 2 {
		l.audit(rng, -1)
		l.server.Kill()
		l.server.Start()
	}
	acked, _ := l.books.snapshot()
	status, err := l.server.Status(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	n := status.GetJobs()
	if got := n.GetSucceeded() + n.GetCancelled(); got != int64(len(acked)) {
		l.t.Errorf("%d jobs were acknowledged; of the server's %d succeeded and %d are cancelled", len(acked), n.GetSucceeded(), n.GetCancelled())
	}
}
