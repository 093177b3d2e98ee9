package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

func main() { os.Exit(int(run())) }

// run is main without the exit, so that what is deferred happens.
func run() failure.Code {
	ctx, stop := interruptible(context.Background(), func() { os.Exit(int(failure.Interrupted)) })
	defer stop()
	return newApp().execute(ctx, os.Args[1:])
}

// interruptible returns a context that SIGINT or SIGTERM cancels with the cause [failure.ErrInterrupted]. A second signal calls exit: whoever
// asks twice does not want to wait for what is being wound up. stop ends the watch and waits for it.
func interruptible(parent context.Context, exit func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-signals:
				if n > 0 {
					exit()
				}
				cancel(failure.ErrInterrupted)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cancel(nil)
	}
}
