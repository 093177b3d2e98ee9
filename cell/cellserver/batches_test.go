package cellserver

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Full batches use each other's memory again. Each job stays what it was submitted as, whatever is submitted beside it and after it.
func TestBatchesShareMemory(t *testing.T) {
	w := open(t, nil)
	var mu sync.Mutex
	payloads := map[string]string{} // by job
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for round := range 5 {
				req := &fairleadv1.SubmitBatchRequest{}
				for i := range admit.BatchMax - round {
					job := &fairleadv1.JobSpec{Operation: "op", Payload: document(fmt.Sprintf("[%d,%d,%d]", caller, round, i))}
					if i%7 == 3 {
						job.Cost = -1 // its place is taken by the next one
					}
					req.Jobs = append(req.Jobs, job)
				}
				resp, err := w.Jobs().SubmitBatch(w.acme, req)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, r := range resp.GetResults() {
					if bad := r.GetRejection() != nil; bad != (i%7 == 3) {
						t.Errorf("job %d of a batch: %v", i, r)
					} else if !bad {
						payloads[r.GetJobId()] = req.GetJobs()[i].GetPayload().GetJson()
					}
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	for id, want := range payloads {
		if got := w.job(w.acme, id).GetPayload().GetJson(); got != want {
			t.Fatalf("%s has %s, and was submitted with %s", id, got, want)
		}
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if got := w.state.Count(engine.Ready); got != int64(len(payloads)) {
		t.Errorf("%d jobs, of %d accepted", got, len(payloads))
	}
}

func TestJobIDs(t *testing.T) {
	const at = cell.Instant(1_800_000_000_123_456_789)
	seen := map[cell.JobID]bool{}
	for range 1000 {
		id := newJobID(at)
		u := uuid.UUID(id)
		if sec, nsec := u.Time().UnixTime(); u.Version() != 7 || u.Variant() != uuid.RFC4122 || sec != 1_800_000_000 || nsec/1e6 != 123 {
			t.Fatalf("%v: version %d, variant %v, time %d.%09d", id, u.Version(), u.Variant(), sec, nsec)
		}
		if seen[id] {
			t.Fatalf("%v twice", id)
		}
		seen[id] = true
	}
}
