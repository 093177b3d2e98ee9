// Package engine is one cell's state machine: entries of its log go in, state and effects come out.
//
// It owns every fact about a cell's tenants and jobs: what was accepted, who holds it, how it ended, which idempotency keys are
// taken, what each lane has been charged, what tenants and their organizations are promised and where they stand with it, what each
// operation of a tenant has cost. [State.Apply] is a function of the state and an [Entry], and of nothing else: time, ids, random numbers and
// choices come inside the entry. It checks and charges, and never chooses: whoever proposes entries (package leader) has chosen, on this
// very state. A fact whose preconditions fail is refused with a typed result and changes nothing.
//
// The life of a job, as the table in transition.go has it:
//
//	accepted -> (delayed ->) ready -> leased -> succeeded | failed | cancelled | expired | quarantined
//
// Everything is bounded: see [Limits]. One entry does work in proportion to its facts, plus at most Limits.TimersPerEntryMax timers and as
// many keys; what a job leaves behind is gone with its retention and its key's window.
//
// A lane may leave for another cell, or come from one: see [cell.Mode] for what it does meanwhile, and transition in modes.go. Whoever moves it has it
// tracked where it is, so that its changes are numbered, and staged where it goes; takes what [State.Export] returns there as ImportFacts, in the order
// of a [Cursor], which the lane that is filled keeps; fences it, which ends all change in that very entry; and opens it in the one cell once the other
// has given it up. Fencing and opening take a time that does not depend on how many jobs there are: a lane's jobs, timers and keys stand apart from
// those of others. A lane that is not open takes nothing, fires no timer, and collects no key. The same content has the same digest in any cell.
//
// Invariants, which [State.Check] verifies: a job is in exactly one state, and counted there once for its lane and once for the cell; only
// a leased job has a live lease; what a tenant and each of its concurrency keys hold is the number of their live leases; a lane's live jobs
// and bytes are the sums over its jobs; a key stands for one job; timers are exactly what the jobs' states ask for, and only those of open lanes fire;
// each record of a tracked lane that has changed has one number, that of its last change; time never goes back.
//
// A State is not safe for concurrent use: the owner holds one lock around Apply, reads, and [Snapshot.Next].
package engine
