// Package cellserver runs one cell: it is the shell around the cell's state machine (package engine) and its leader (package leader).
//
// It owns the goroutine that seals entries and hands them to the log, the lock over state and leader, the clock, random seeds and job ids, and
// the Connect handlers of jobs, workers and status. It decides nothing: it turns messages into calls and results into messages.
//
// Calls gather in an inbox while an entry is in flight; the next entry is sealed from all of them (group commit). A call is answered only
// after its entry is applied, which is after it is durable.
//
// Lanes come and go: LaneService has a mover copy a lane, fence it and open it elsewhere, which the state machine decides in its log. What is asked of a
// lane that is not open here is refused with where it stands, and answers say in headers for a gateway where else to look. So a client of the gateway
// does not notice. What a move compares is computed piece by piece, beside everything else.
//
// The log is given by whoever wires the process, as are the authenticated callers: this package imports neither control nor the gateway.
package cellserver
