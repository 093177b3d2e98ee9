// Package drr is deficit round robin: who is served next, when many flows wait for the same servers, each has a
// weight, and every service has a cost that is known only roughly when it starts.
//
// It owns the rings (one per offer set, see below) and each flow's account in them. It refuses to know what a flow
// is: a tenant, an organization or a test's letter is a [Flow] with a value of any type. It holds no queue of its
// own (except in the convenience [Queue]), reads no clock, and never blocks a flow: a flow that may not run leaves
// by [Ring.Deactivate] and returns by [Ring.Activate], so that nothing is ever skipped in a scan.
//
// # The discipline
//
// The discipline is that of M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin"
// (SIGCOMM 1995), in a form whose work per dispatch depends neither on the number of flows nor on how many quanta a
// cost is. A round is a number. In each round a flow may spend its quantum, Q x weight; the head flow of the current
// round N is served while its deficit d is positive, and each service takes its cost from d. A flow that has spent
// its round is not visited until it may be served again: with k = floor(-d/Qw) + 1 it receives k quanta at once and
// is filed under round N + k, and N moves on to the first round that has a flow. The original visits such a flow k
// times; here it is touched once, whatever k is.
//
// A flow that has nothing ready loses a positive deficit with the round (smoothing, not savings). It keeps debt,
// which shrinks by one quantum per round: a pause does not erase what was overspent. While servers are free because
// nobody waits, [Ring.Idle] turns the rounds of empty rings, so that nobody is punished for what harmed nobody.
//
// A cost that turns out different is settled on the same account by [Ring.Settle].
//
// # Offer sets
//
// Servers may differ in what they serve. Servers with the same offer share one ring, named by a [SetID]; a flow is
// active in each ring that has something to serve it with. If the rings were independent, a flow that is active in
// many of them would collect a share in each. Therefore every charge advances a total S of the flow; a ring
// remembers how much of S it has seen, and when the flow reaches the head the unseen rest, what other rings have
// charged meanwhile, is charged here too. If that exhausts the deficit the flow is filed further on and the next
// head is tried, at most four times per poll. So spreading work over sets gains nothing.
//
// # Bounds
//
// For two flows that are backlogged over the same interval, and with S the charged cost in it,
//
//	|Si/wi - Sj/wj| <= 2Q + Maxi/wi + Maxj/wj
//
// where Max is the largest single charge, or the debt that a flow brings into the interval if that is more. A dispatch
// inspects at most five flows ([Ring.Touched] counts them): the head, and four before it that other sets have charged.
// The next 4,096 rounds are a bitmap wheel, or fewer in a ring that is to be small (Config.Rounds). Flows filed further
// ahead than that (a cost of more than 4,096 of the flow's quanta) wait in a heap by round; filing one there, or taking it
// out, moves at most a path of it: twelve entries at the largest number of flows that can be configured. Nothing is
// allocated on dispatch.
//
// # Invariants
//
// Every active flow is filed exactly once per ring, under a round that is not in the past, with a positive deficit.
// S is exactly what was charged less what was refunded. Arithmetic saturates: no sum wraps around and becomes an
// order. [Ring.Check] tests all of it; tests call it after every step.
//
// # A flow alone
//
// If N always jumped to the first filed round, the jump would forgive debt whenever the rival's queue is empty for an
// instant: a flow that declares a tenth of its cost, beside a rival that has few jobs and thinks between them, would get
// far more than its share: up to 3.0 of four servers where half is right. Therefore a flow that is granted while no other
// waits moves N on only by what was charged while nobody else waited, and one round per grant. It keeps the rest of its
// debt, up to LoneDebtMax of its largest charges: with no bound, two such flows that take turns waiting would stop for
// seconds when a third one comes. The four servers are then halved exactly where overruns are charged while they happen,
// and 2.5 to 1.5 at worst where they are settled at the end.
//
// What remains is no debt. A flow whose queue runs empty within a round loses what is left of the round, so a quantum much
// above a usual cost favours flows that always have work. And a rival that has just as many jobs as there are servers has
// none waiting when they end: all servers then go to whoever waits, for as long as its jobs take.
//
// The package is pure and not safe for concurrent use.
package drr
