package crash

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// TestPausedServerGivesGrace stops the server for longer than the leases last. When it goes on, every lease has its full duration again: an
// outcome that comes well after the lease's original end is taken, and what is not heard of goes back one duration later, not at once.
func TestPausedServerGivesGrace(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a quarter of a minute, most of it a pause")
	}
	t.Parallel()
	harness.NeedSignals(t)
	const (
		lease = 5 * time.Second // the shortest there is
		pause = 8 * time.Second // more than a lease, and than what counts as a pause
		late  = 3 * time.Second // less than a lease, after the pause
		jobs  = 6
	)
	server := harness.NewServer(t, harness.Config{Tenants: []string{"acme"}})
	server.Start()
	c := server.Client("acme")
	for i := range jobs {
		if _, err := c.Submit(t.Context(), client.Job{Operation: operation, Payload: client.JSON(i)}); err != nil {
			t.Fatal(err)
		}
	}
	conn := server.Conn("worker")
	service := fairleadv1connect.NewWorkerServiceClient(conn.HTTP, conn.URL, conn.Options...)
	leases := leaseAll(t, service, jobs, lease)

	server.Process().Pause()
	harness.Pause(t, pause)
	resumed := time.Now()
	server.Process().Resume()
	harness.Pause(t, late)

	report := &fairleadv1.ReportRequest{Session: "by-hand", Sequence: 1}
	for i, le := range leases[1:] {
		report.Outcomes = append(report.Outcomes, &fairleadv1.Outcome{
			JobId: le.GetJobId(), Token: le.GetToken(), RunTime: durationOf(time.Second),
			Result: &fairleadv1.Outcome_Success{Success: &fairleadv1.Success{
				Result: &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: fmt.Sprint(i)}},
			}},
		})
	}
	answer, err := service.Report(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(resumed); took > lease {
		t.Skipf("the machine took %v for what should take %v: the grace was over", took, late)
	}
	for i, r := range answer.GetResults() {
		if r.GetRejection() != nil || r.GetState() != fairleadv1.JobState_JOB_STATE_SUCCEEDED {
			t.Errorf("an outcome %v after the pause was answered with %v", late, answer.GetResults()[i])
		}
	}
	for _, le := range leases[1:] {
		job, err := c.Get(t.Context(), le.GetJobId())
		if err != nil {
			t.Fatal(err)
		}
		if job.GetLostAttempts() != 0 || job.GetAttempt() != 1 {
			t.Errorf("job %s has attempt %d, %d lost", job.GetId(), job.GetAttempt(), job.GetLostAttempts())
		}
	}
	// The one that nobody reported.
	harness.Eventually(t, lease+20*time.Second, "the silent lease is over", func() bool {
		job, err := c.Get(t.Context(), leases[0].GetJobId())
		if err != nil {
			t.Fatal(err)
		}
		return job.GetState() == fairleadv1.JobState_JOB_STATE_READY && job.GetLostAttempts() == 1
	})
	if after := time.Since(resumed); after < lease {
		t.Errorf("the silent lease was over %v after the pause, before its grace of %v", after, lease)
	}
}

// leaseAll leases so many jobs as a worker of its own session.
func leaseAll(t *testing.T, service fairleadv1connect.WorkerServiceClient, jobs int, d time.Duration) []*fairleadv1.JobLease {
	t.Helper()
	var leases []*fairleadv1.JobLease
	req := &fairleadv1.LeaseRequest{
		Session: "by-hand", Worker: "by-hand", Operations: []string{operation}, Slots: int32(jobs), LeaseDuration: durationOf(d),
		Wait: durationOf(10 * time.Second),
	}
	for len(leases) < jobs {
		req = proto.CloneOf(req)
		req.Sequence++
		req.Held = nil
		for _, le := range leases {
			req.Held = append(req.Held, &fairleadv1.LeaseRef{JobId: le.GetJobId(), Token: le.GetToken()})
		}
		answer, err := service.Lease(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, answer.GetLeases()...)
	}
	return leases
}
