// Package placement decides which cell a tenant is at home in, and says why. It also holds the arithmetic of putting tenants apart: how many
// different hands of workers there are, how likely two tenants share some, how likely one is stuck behind others.
//
// It owns what a tenant's demand is ([Profile], [Meter]), which cells can have it (the filters), which of those is best (the scores), when a move
// is worth what it costs ([Snapshot.Rebalance]), where the tenants of a cell go ([Snapshot.Evacuate]), who is too large for a pool
// ([Snapshot.Whales]), whether any one cell can be lost ([Snapshot.Check]), and the hand of worker groups that a tenant is dealt ([Deal]). It
// refuses to change anything, to measure, and to know how a tenant is moved: whoever asks carries the decision out, and the record of the
// assignment is what counts. Decisions are made on a [Snapshot], a value that is built once for each pass; what a pass simulates on it is undone.
//
// Demand is max(recent average, p95, declared floor) of each resource in each hour of the day. A cell's load is the sum, hour by hour, of its
// tenants' demand, and its largest hour counts: tenants that peak together are not packed together.
//
// Invariants: nothing is placed beyond a cell's tested capacity; what is placed with the failure reserve leaves a way to place the tenants of any
// one lost cell; the order of cells and tenants in the input changes nothing; equal input gives equal decisions, since ties are broken by a hash
// of the names and then the names; a simulated change that is undone leaves no trace; no move is planned that gains nothing, that the budget does
// not cover, or of a tenant that moved less than the cool-down ago. Amounts are integers, so that sums do not depend on their order; only scores
// are floating-point.
//
// Shuffle sharding gives every tenant a hand: a few of many workers, or queues, drawn at random. Who floods or poisons its own hand harms those
// who hold the same cards, and few hold all of them. Counts of hands are exact; chances are float64 sums and products of positive terms only, so
// that even tiny ones are right to twelve digits. The chances of all outcomes add up to one; a larger hand never makes sharing nothing likelier;
// one more heavy tenant never makes being stuck less likely.
package placement
