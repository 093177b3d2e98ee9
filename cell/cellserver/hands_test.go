package cellserver

import (
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// A worker is given jobs of tenants that hold its group, and one without a group those of tenants without a hand; a job that waits for its hand
// says so.
func TestHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.promise(cell.TenantPolicy{Tenant: "acme", Groups: 1<<63 | 1<<3})
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		ask := func(group int32) []*fairleadv1.JobLease {
			return w.lease(w.worker, &fairleadv1.LeaseRequest{
				Session: "s" + string('0'+group), Operations: []string{"op"}, Slots: 1, Group: group, Wait: durationpb.New(0),
			})
		}
		for _, group := range []int32{0, 1, 63} {
			if got := ask(group); len(got) != 0 {
				t.Fatalf("a worker of group %d was given %v", group, got)
			}
		}
		x := w.explain(id)
		if x.GetReason() != fairleadv1.WaitReason_WAIT_REASON_NO_WORKER || !strings.Contains(x.GetMessage(), "4 and 64") || x.GetWorkers() != 0 {
			t.Errorf("%v", x)
		}
		if got := ask(64); len(got) != 1 || got[0].GetJobId() != id {
			t.Errorf("a worker of group 64 was given %v", got)
		}
		for _, group := range []int32{-1, 65} {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Operations: []string{"op"}, Slots: 1, Group: group})
			refused(t, "a group that is none", err, connect.CodeInvalidArgument, "BAD_FIELD", "group")
		}
	})
}
