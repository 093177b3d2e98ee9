package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

// crowd has enough jobs for a simulation to say how far it is.
const crowd = "workers: {slots: 100}\ncohorts:\n  - name: crowd\n    arrivals: {at: 0s, jobs: 20000}\n    service: 1ms\n"

// TestSimProgress: a long run says how far it is on standard error, in place on a terminal and in lines elsewhere, and leaves the answer alone.
func TestSimProgress(t *testing.T) {
	inEmptyDir(t)
	if err := os.WriteFile("crowd.yaml", []byte(crowd), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, talks := range map[string]bool{"terminal": true, "pipe": false} {
		t.Run(name, func(t *testing.T) {
			a, out, talk := fakeApp("")
			a.talks = talks
			now := time.Unix(0, 0)
			a.now = func() time.Time {
				now = now.Add(progressElsewhere)
				return now
			}
			if code := a.execute(t.Context(), []string{"sim", "run", "crowd.yaml", "--policy", "fifo"}); code != failure.OK {
				t.Fatalf("exit code %d:\n%s", code, talk)
			}
			if !strings.Contains(talk.String(), "crowd under fifo: 4096 of 20000 jobs, 20 %") || strings.Contains(talk.String(), "\r") != talks {
				t.Errorf("it says %q", talk)
			}
			if !strings.HasPrefix(out.String(), "crowd; 20,000 jobs on 100 slots\n") {
				t.Errorf("it answers %q", out)
			}
		})
	}
}

// TestSimInterrupted: an interrupt ends a simulation in its midst.
func TestSimInterrupted(t *testing.T) {
	inEmptyDir(t)
	if err := os.WriteFile("crowd.yaml", []byte(crowd), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failure.ErrInterrupted)
	a, out, talk := fakeApp("")
	if code := a.execute(ctx, []string{"sim", "run", "crowd.yaml", "--policy", "fifo"}); code != failure.Interrupted || out.Len() > 0 {
		t.Errorf("exit code %d, with %q and %q", code, out, talk)
	}
}

func TestBaseName(t *testing.T) {
	for file, want := range map[string]string{
		"a/NASA-1993-3.1-cln.swf.gz": "NASA-1993-3.1-cln", "mine.yaml": "mine", "day": "day", ".csv": ".csv", "v1.2.jsonl": "v1.2", "x.txt": "x.txt",
	} {
		if got := baseName(file); got != want {
			t.Errorf("%s is called %s, want %s", file, got, want)
		}
	}
}
