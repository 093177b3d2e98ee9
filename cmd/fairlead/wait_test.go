package main

import (
	"context"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// TestWaitOutlastsTheServer: a server that goes away during a wait and comes back finds the wait going on.
func TestWaitOutlastsTheServer(t *testing.T) {
	inEmptyDir(t)
	f := newFakeServer()
	t.Cleanup(f.Close)
	t.Setenv("FAIRLEAD_ADDR", f.URL)
	t.Setenv("FAIRLEAD_TOKEN", "flk_acme")
	job := f.submitLocked(&fairleadv1.JobSpec{Operation: "wait.long", IdempotencyKey: "k"})
	ctx, cancel := context.WithTimeout(t.Context(), awaitMax)
	defer cancel()

	a, _, talk := fakeApp("")
	a.talks = true
	code := make(chan failure.Code, 1)
	go func() { code <- a.execute(ctx, []string{"job", "wait", job.GetJobId()}) }()
	for n := range 3 {
		if err := f.awaitCalls(ctx, "WaitJob", 2+n); err != nil {
			t.Fatal(err)
		}
		f.CloseClientConnections()
	}
	f.mu.Lock()
	f.jobs[0].State = fairleadv1.JobState_JOB_STATE_SUCCEEDED
	f.wakeLocked()
	f.mu.Unlock()
	if got := <-code; got != failure.OK {
		t.Errorf("exit code %d: %s", got, talk)
	}
	if !strings.Contains(talk.String(), "the wait goes on") {
		t.Errorf("it does not say that the server is away: %s", talk)
	}
}
