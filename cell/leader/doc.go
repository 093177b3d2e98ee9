// Package leader is the part of a cell that only its leader plays: it turns calls into entries of the log.
//
// It owns the choice. Calls come in (submissions, reports, polls, cancellations ...), [Leader.Seal] checks them on the cell's state, runs the
// scheduler ahead by the entry being sealed, and returns one entry of facts in order: submissions and outcomes first, then the grants they
// permit. The owner proposes that entry, and hands the result back by [Leader.Applied], or by [Leader.Failed]. One entry is in flight at a
// time, and the next is sealed on the state after it, so that ids, keys and bounds are checked exactly and Apply refuses nothing that
// was sealed. Nothing leaves a call before its entry is committed.
//
// It also owns what is the leader's alone and not in the log: worker sessions, the clock of leases, extensions, and open polls. A new leader
// finds the leases in the state and gives each a full grace.
//
// Where tenants and organizations stand with what they are promised is the scheduler's, decided ahead of the state; the leader logs it with the
// entry that charges them, and gives it back to a new scheduler together with what the state has learned: what operations cost, when jobs
// started, what is held.
//
// A lane may be on its way to another cell or from one. What changes its mode is an entry of its own, after which the leader makes what it keeps of the
// lane from the state: it is ahead of it in nothing then. The jobs of a lane that is not open wait in the scheduler all the same, in a suspended lane,
// as copies bring them; so nothing is done for each when the lane opens. While a lane is fenced the time of its leases stands still. When it leaves,
// they hold their workers' room until those have stopped, who are not told to; when it opens, they are taken over with a full grace.
//
// Invariants: every lease that is live in the state in a lane that is open or fenced, or granted by the entry in flight, is held by exactly one
// session; what a class, a tenant and a concurrency key hold in the scheduler is the number of their leases, those included whose workers have yet to
// stop; a job waits in the scheduler exactly when it is ready in the state, or will be after the entry in flight.
//
// Time and random numbers are arguments. A Leader is not safe for concurrent use: the owner holds the lock of its state around every
// method.
package leader
