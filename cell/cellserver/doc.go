// Package cellserver runs one cell: it is the shell around the cell's state machine (package engine) and its leader (package leader).
//
// It owns the goroutine that seals entries and hands them to the log, the lock over state and leader, the clock, random seeds and job ids, and
// the Connect handlers of jobs, workers and status. It decides nothing: it turns messages into calls and results into messages.
//
// Calls gather in an inbox while an entry is in flight; the next entry is sealed from all of them (group commit). A call is answered only
// after its entry is applied, which is after it is durable.
//
// The log is given by whoever wires the process, as are the authenticated callers: this package imports neither control nor the gateway.
package cellserver
