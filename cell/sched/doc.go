// Package sched decides which ready job runs next in a cell.
//
// It owns the order of what waits: which class may take a slot (the bulkheads), whose turn it is among the tenants of a class (package
// tree), which of a tenant's jobs goes first, and what is in a job's way: a concurrency key, a running cap, a start rate. It keeps every
// lease, because what is held is what limits count, and what each was charged. It refuses to know about workers' calls, the log or the wall
// clock: it is told what waits, what ends and how many slots live, and asked for the next job of an offer set.
//
// It is a cache. Everything in it follows from the cell's state, except the order inside a round of the rotation; whoever owns it
// throws it away and fills it again when in doubt.
//
// # Hands
//
// The cell's workers may be dealt into groups, and a tenant's policy may give it a hand of them (shuffle sharding): its jobs run on workers
// of those groups and on no others, so that jobs that kill or hog their workers reach the hand of their tenant. A worker without a group runs
// the jobs of tenants without a hand. What a worker asks for, its offer set, is therefore a set of operations and a group, of which at most
// [OffersMax] may have live workers: a cell of 64 groups whose workers all offer the same has as many as there can be. A lane waits in the
// sets that have its operations and a group of its hand; who may run is looked up when something begins or ceases to wait, and when a hand
// changes, but not when somebody asks. A hand says where, not how much: bulkheads, shares and limits are the cell's, whatever the hands. What
// is held when the hand changes stays where it is. A tenant's own workers are in no group. A cell without groups does nothing of this.
//
// # Suspended lanes
//
// A lane that leaves the cell, or is being filled, is suspended: what waits in it keeps its place, and is granted to nobody. It counts as nobody's
// demand, and its leases are left alone.
//
// # Work
//
// Work per decision does not grow with the number of tenants, nor with what they have waiting: a class whose bulkhead is full is passed by
// one comparison, a tenant without a job that may run for the offer is not in that offer's rotation, and a tenant's best job is the least
// of the heads of at most [OperationsMax] queues. Inside a queue jobs that carry the same concurrency keys are one strand, which is blocked
// and woken as one: when a key has room again, only the best strand of each operation that sleeps at it is woken. So a grant and a release
// cost O(log) for each operation that shares the key, however many jobs and strands are blocked. Jobs of several keys can make chains; a
// call follows them only so far (see pending.go). Nothing is allocated for a job that comes, runs and ends in a steady state.
//
// # Invariants
//
// For every limit, what is held is the sum of the leases that live. A lane is in the rotation of exactly the sets that offer an operation of
// which it has a job that may run, and whose group its tenant holds. Nothing is both queued and held: a job that is added while its last
// lease has yet to be dropped waits outside its queue. A lease is dropped once. Whatever keeps a job waiting ends by a call or at the time
// that [Scheduler.Wake] gives. [Scheduler.Check] tests all of it.
//
// A Scheduler is not safe for concurrent use.
package sched
