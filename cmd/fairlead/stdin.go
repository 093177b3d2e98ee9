package main

import (
	"context"
	"io"
)

// readerFunc is a function as a reader.
type readerFunc func(p []byte) (int, error)

// Read calls the function.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// stoppable returns a reader of from whose reads end, with the cause, when ctx does. A read of a terminal or a pipe cannot be stopped: one
// that is under way then is left to end with the process, which is about to.
func stoppable(ctx context.Context, from io.Reader) io.Reader {
	type result struct {
		n   int
		err error
	}
	return readerFunc(func(p []byte) (int, error) {
		buf := make([]byte, len(p))
		done := make(chan result, 1)
		go func() {
			n, err := from.Read(buf)
			done <- result{n, err}
		}()
		select {
		case r := <-done:
			return copy(p, buf[:r.n]), r.err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
}
