// Package tree is who runs next among the tenants of a cell: a tree of cell, organizations and tenants, in each class for itself, with three tiers.
//
// It owns every account that decides a turn: reservations, credits, limits and the rotations' deficits. It holds no jobs and knows nothing of
// them: a lane (a tenant in a class) is made active in an offer set by its owner while it has a ready job for it with no cap in the way, and
// the tree says whose turn it is, by which tier, and whom it blocks until when. It reads no clock: time is an argument, and it begins with the
// first [Tree.Advance].
//
// # The tiers
//
// [Tree.Next] asks in this order:
//
//  1. reserved: the tenant with the least tag R among those that are not ahead of the virtual time V;
//  2. organization: when no tenant is, the organization with the least R of its own that is not; inside it, whose turn it is in its rotation;
//  3. credit: the tenant with the least tag K among those that have credit and whose K has come, unless nobody else waits;
//  4. shared: whose turn it is by weight, level by level, by deficit round robin (package drr).
//
// Ties are broken by the ids of what stands directly below the cell, then by the tenants'. Only the lanes of one class and one offer set compete.
//
// What is borrowed does not spend the reservation, as with the ceilings of Linux's HTB: a share is the reservation and a weighted part of what is
// spare. The tags are those of A. Gulati, A. Merchant and P. Varman, "mClock: Handling Throughput Variability for Hypervisor IO Scheduling"
// (OSDI 2010), section 3, for costs that are known only roughly when they are charged.
//
// # Accounts
//
// A charge is taken from the accounts of its tier only, and from the limits always: reserved, R of the tenant and of its organization; organization,
// R of the organization and the tenant's place in the rotation inside it; credit, K and the bucket; shared, the place in the rotation at each
// level. A settlement hits the same accounts.
//
// R moves on by cost / reservation with each charge, V with real time, but to no more than two bursts after the least R of those that wait: under
// scarcity V runs slower and what everybody is promised shrinks in proportion, with no storm of catching up afterwards. A node that becomes
// runnable is owed no more than one burst: R = max(R, V - burst). The details:
//
//   - A promise counts from when it is made: R = V then. A new tenant is owed nothing from before, and a tree that starts owes nobody.
//   - V is moved on when it is asked for: at each poll of its set, and before a node becomes runnable in it, or an idle cell would owe two bursts.
//   - Each offer set has a V, and a node an R in each that it has been in; a charge moves it in all of them. Sets fall behind real time by how
//     short each is of servers. One R for all would leave a tenant without its reservation for hours in a set that has fallen behind, for
//     having been served in one that has not. In a set that is new to it a node is as far ahead of V as in that in which it was charged last.
//   - A refund brings R back by as much, but while the node waits not to more than two bursts behind V: it must not turn back V and with it
//     everybody else's reservations.
//   - While an organization is blocked its lanes keep their tags, since blocking takes the same time however many they are. When it is let go they
//     count as one burst behind V where they are farther, in their order.
//
// L = max(L, now - burst) + cost / limit for a dispatch and for what is charged on top; a refund brings it back. While it is ahead of now the
// node is blocked, and [Tree.Wake] says until when.
//
// K = K + cost / extra. When K is more than a burst behind, spending starts afresh from now: a bucket then lasts exactly what it holds / extra,
// whenever that begins. Who misses its turn by less catches up. The bucket does not refill while it is being spent: only from K + burst on, or
// from K on once it is empty, so that somebody who spends all that comes in gets all of it.
//
// Which offer sets a tenant is active in is its caller's to say, by operations and by the hand of worker groups in its policy. What the tree
// does about a hand is to carry debt: when it changes, the tenant's lanes owe in sets that are new to them what they owe elsewhere.
//
// # Bounds
//
// A dispatch looks at or moves a constant number of nodes, and a path in each heap that it changes: of an organization's reservations, of the
// class's, of the timers ([Tree.Touched] counts them all). Blocking an organization takes a step for each offer set in which any of its lanes
// waits, however many they are. Whoever moves time on lets go of those whose time has come, each of whom a charge has blocked before. Nothing is
// allocated once heaps have their size.
//
// A tenant takes 176 bytes and its place in a map, which makes some 210; each of its lanes that has had a job 144 more, and 176 for a reservation
// or credit; a limit or credit 128. An organization takes 1 KB, and 1.5 KB for each class and set that its tenants use.
//
// # Invariants
//
// A lane waits in a rotation exactly while it is active and neither its tenant's limit nor a [Tree.Hold] is in the way; an organization, while any
// lane inside it does and its own limit lets it. V is never more than two bursts after the least R of those that wait, and never turned back. Times
// and sums are held at the ends of their range and do not wrap. [Tree.Check] tests all of it; tests call it after every step.
//
// The package is pure and not safe for concurrent use.
package tree
