// Package controlserver is the running control plane: it answers the services of organizations, tenants, keys, cells, placement, the audit and the
// cluster, keeps the replicated state that control's log is applied to, knows the live keys, and while its replica leads makes the cluster become
// what its record says.
//
// It owns the translation between the API and the log's commands, the making of ids, secrets and join tokens, and that what was committed reaches
// the cells: one goroutine a cell, each for itself, with bounded calls, so that a cell that hangs holds up nobody but its own tenants' changes. It
// decides nothing that the state decides: a check here spares the log an entry, the one in the state is what holds. What the leader does by itself
// is decided by package reconcile, and where tenants go by package placement; it is carried out here.
//
// What a leader has heard of agents, and what it has told cells, belongs to its reign and ends with it: a new leader configures every cell anew from
// the state. Nothing of that is ever the truth of anything: the state is, and what agents say of themselves.
//
// Migrations are declared and controlled here, and driven by whoever [Config].Drive is: while this replica leads it is given [Moves], the records and the
// ways to the cells, and what it proposes is refused by the state unless it fits. Both cells of a migration are told their part of what its tenant is promised.
//
// Gateways follow the routes from any replica: all of them first, then what changed, computed once for everybody out of what the log has touched, and
// a heartbeat each second while the replica can know that what it has is current.
//
// It refuses to keep a secret: one leaves in the answer that created it, and only its SHA-256 is stored. It knows no raft, door, gossip or other
// process: [Log], [Group], [Cells], [Dialer], [Certifier] and the functions of [Config] are what the process's wiring fills.
//
// Invariants: an answer that an organization, a tenant or a key was created, changed or revoked is given only after the commit, and that
// of the first two only after the cells know; a revoked key is not found by Lookup from the answer on; a cell is never left with an older
// policy, and is told none of a tenant that is not staged there yet or is being removed, whose lanes it would open; a tenant changes its cell
// at once only when the old one has told, after it takes nothing more, that it holds nothing of it, and else by a migration; every change
// that anybody asked for, and every decision of the leader's own, is in the audit, but for the steps of migrations, which are in their
// records; reads of what only the leader answers are linearizable.
package controlserver
