// Package worker is the Go SDK for running jobs: it leases them from a cell, runs their handlers, and reports what came of them.
//
// It owns the worker's side of WorkerService. [New] and [Worker.Run] run the handlers of a [Registry] in so many slots; [Handle] and
// [HandleResult] register typed ones, [Exec] runs a program for each job and [HTTP] posts it. [Execute] runs one task without a server,
// for tests.
//
// # How it talks to the cell
//
// Outcomes go out the moment there are any, in one Report at a time: what ends while it is under way goes with the next. A Report
// asks for as many jobs as there is room for, so a busy worker needs no other call. A Lease is kept open while there is room that no Report
// is about to fill, and whenever a Report brought less than it asked for. A call whose answer was lost is repeated as it was, under its
// sequence number, and the cell answers the same again. Extensions go separately, all leases in one call, three times in a lease's duration.
//
// # What holds
//
//   - Only operations with a handler are leased, and never more jobs than slots and prefetch have room for.
//   - Each lease is answered for once: by its outcome, or by a free release if it was never started or was cut short by the worker's end.
//     A lease that the cell took back is not answered for; one that could not be extended in time is, and the cell decides.
//   - A handler's context ends with a cause: [ErrCancelled], [ErrLeaseLost], [ErrTimedOut] or [ErrShutdown].
//   - A panic is a failure of its job alone, and so is a handler that ends its goroutine.
//   - When Run's context ends, no job is leased any more, jobs not started go back free at once, running ones have until the drain's
//     time-out, and Run returns when all of it is reported.
//   - Memory is bounded by slots + prefetch jobs, whatever the cell or the network does.
//
// It refuses to interpret payloads beyond decoding JSON, to keep state on disk, and to stop a handler that ignores its context: such a one
// keeps its slot, and at the end is given up on ([ErrAbandoned]).
package worker
