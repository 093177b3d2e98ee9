package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

// TestInterruptible sends this process the signals: the first cancels with its cause, the second exits at once.
func TestInterruptible(t *testing.T) {
	guard := make(chan os.Signal, 2) // so that a late signal never meets the default, which ends the process
	signal.Notify(guard, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(guard)
	for _, first := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		exited := make(chan struct{}, 1)
		ctx, stop := interruptible(t.Context(), func() { exited <- struct{}{} })
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if err := self.Signal(first); err != nil {
			t.Skipf("this system cannot signal itself: %v", err)
		}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), failure.ErrInterrupted) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		if len(exited) > 0 {
			t.Error("one signal exits at once")
		}
		if err := self.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		<-exited
		stop()
	}
	ctx, stop := interruptible(t.Context(), func() { t.Error("it exits without a signal") })
	stop()
	if ctx.Err() == nil {
		t.Error("the context outlives its stop")
	}
}

// TestStoppable: a read that nobody answers ends with the context.
func TestStoppable(t *testing.T) {
	from, to := io.Pipe()
	defer to.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := stoppable(ctx, from)
	go func() {
		if _, err := to.Write([]byte("abc")); err != nil {
			t.Error(err)
		}
	}()
	got := make([]byte, 3)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "abc" {
		t.Fatalf("read %q, %v", got, err)
	}
	cancel(failure.ErrInterrupted) // only now: what was not taken yet when the interrupt comes is nobody's
	rest, err := io.ReadAll(r)
	if len(rest) > 0 || !errors.Is(err, failure.ErrInterrupted) {
		t.Errorf("then read %q, %v", rest, err)
	}
	if code := failure.Explain(err).Code; code != failure.Interrupted {
		t.Errorf("it ends as %d", code)
	}
}
