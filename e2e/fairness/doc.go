// Package fairness is the scheduler's independent test: properties over random workloads, the public bug scenarios of other job platforms
// as scripts, and one trace through two drivers. It is written from the scheduler's rules, not from its code: it counts what happened by
// itself, and holds the scheduler to that. It has no code of its own beside its tests.
//
// # Properties
//
// A virtual clock drives cell/sched by itself (world), and a whole cell's leader, state and log codec (rig). By default each property is
// tried on what takes a second or so, the same on every machine; FAIRLEAD_FAIRNESS_CASES says on how many new workloads instead.
//
//	long-run shares are the planner's, within 0.5 % or a turn's worth of a period  TestSharesEqualPlan, TestFigureD, TestEditsReachWhatWaits
//	flows that always have work stay within 2Q + Maxi/wi + Maxj/wj, at each level  TestPairsStayClose
//	nobody waits longer than a bound that is derived there                         TestNobodyWaitsLong
//	a slot idles only beside what a cap, a limit or a held-back room keeps         TestNoSlotIdles, TestRoomIsHeldBackAndLent
//	a reservation is delivered over any time, whatever surrounds it                TestReservationsAreDelivered
//	a class has its own back in the longest borrowed job, or patience and a stop   TestAClassGetsItsOwnBack
//	who gives back keeps what is its own, and what its tenants reserve             TestVictimsKeepTheirReservation and the same
//	credit is worth what the bucket holds, and a lone tenant burns none            TestCredit...
//	keys, operations, priorities and offer sets multiply nothing                   TestSpreadingGainsNothing
//	declaring less, or more, gains nothing; a newcomer starves nobody              TestSayingLess..., TestANewcomer...
//	what is held is what runs, at every moment (I1, I2)                            world.held, rig.look
//	every reason is true, with its numbers, its time and a wake-up for it (I10)    TestReasonsAreTrue
//	the same promise again changes nothing; an edit reaches what waits (I13)       TestTheSameAgain..., TestEditsReach..., restart.txt
//	promises, parents, slots and offers may change at any time                     TestAnythingMayChange
//	a poison tenant reaches the workers of its hand; who holds another waits a bound TestPoisonReachesOnlyItsHand, TestHandsOfTwoOfEight
//	workers of groups and tenants with hands may change at any time                TestHandsMayChange
//	the simulator and the cell that fairlead dev runs dispatch alike               TestOneTraceTwoDrivers
//
// The tree below the scheduler has its own naive model: TestTreeEqualsNaive in cell/tree.
//
// # Scenarios
//
// Faults that users of other platforms reported, by their names, each as a script of the kind and not of the instance: other numbers and
// names must answer the same. The scripts are testdata/*.txt; a line of prose there names the report.
//
// Starvation and the unit of fairness:
//
//	flood then one                     starvation.txt
//	exact interleave                   starvation.txt: alone, under organizations, inside one
//	late joiner and weights            starvation.txt
//	three groups                       starvation.txt
//	key sharding                       starvation.txt, TestSpreadingGainsNothing
//	long jobs and short jobs           starvation.txt: declared, not declared, declared wrongly
//	suspended work is not usage        starvation.txt: what waits, is delayed, blocked or cancelled. Suspended jobs are out of scope
//	scan window of blocked heads       starvation.txt, by keys, caps, rates, limits and operations; TestNoSlotIdles
//	rate limit stalls the queue        starvation.txt, quota.txt
//	wind-up                            starvation.txt, with and without a reservation
//	starts against continuations       starvation.txt: retries and jobs taken back. Workflows, and so their next steps, are out of scope
//	affinity hides priority            starvation.txt
//	batch occupies every worker        starvation.txt: not lent, and lent
//	idle bulkhead is used              starvation.txt, TestRoomIsHeldBackAndLent
//	ageing                             starvation.txt
//	sand and couch                     starvation.txt: by cost; jobs of several slots are out of scope; the bound: TestCheckCost in cell
//	no tenant given                    refused: TestNoCaller in cell/cellserver, TestDenyByDefault in dataplane/gateway
//	zero weight                        starvation.txt; weights that are none: TestWeight in cell
//	burst between samples              starvation.txt
//	charge leak                        starvation.txt; TestSettlementHitsTheSameAccounts in cell/tree
//	concurrent charges                 there are none: charges are facts of one log, in its order; rig.restart compares states
//	inconsistent comparator            TestTreeEqualsNaive in cell/tree: promises change between turns, and heaps are checked
//
// Slots and limits:
//
//	dropped between dequeue and lease  slots.txt: the entry is lost, or applied unknown to its leader
//	count, not position                slots.txt
//	rate-limited job keeps its slot    slots.txt, over a restart
//	replay passes the bound            slots.txt
//	worker killed                      slots.txt
//	double release                     slots.txt; world.finish drops twice
//	lost wake-up                       slots.txt; TestReasonsAreTrue
//	bound expires while the job runs   slots.txt
//	parent waits for child             out of scope: a job does not wait for another
//	key lost on the way                slots.txt, over a restart
//	many workers ask at once           slots.txt
//	total over all keys                slots.txt
//
// Reservation, borrowing, reclaim, preemption:
//
//	preemption loop                    reclaim.txt
//	cannot reclaim its own             reclaim.txt, TestAClassGetsItsOwnBack
//	victim below its reservation       reclaim.txt, TestVictimsKeepTheirReservation
//	blocked heads, small ones behind   reclaim.txt
//	no guarantee, no claim             reclaim.txt
//	per resource                       out of scope: a class counts slots, and cost is the dominant share as one number
//	request counted in the check       reclaim.txt, for caps and for limits; TestReasonsAreTrue
//	overlapping victims                reclaim.txt, TestAClassGetsItsOwnBack
//	fairness at any price              reclaim.txt
//	work that was taken back           reclaim.txt
//
// Quota accounting:
//
//	double credit                      quota.txt
//	wrong wake-up reason               quota.txt, TestReasonsAreTrue
//	contradictory terminal state       quota.txt; rig.look checks leases against jobs after every entry
//	orphans eat quota                  quota.txt
//	restart overcommit                 quota.txt: caps, keys, start rates and limits
//	negative and huge amounts          quota.txt; TestCheckCost in cell, TestExtremesAreDefined in cell/tree
//	quota lowered under use            quota.txt
//
// Worker groups and hands of them:
//
//	poison pill                        hands.txt, TestPoisonReachesOnlyItsHand
//	endless jobs in one tenant's hand  TestHandsOfTwoOfEight
//
// A restart changes none of it: restart.txt.
//
// Of other chapters: rate limiters that must be exact and each their own, and a change that reaches what waits (quota.txt); crashes, late
// results and expiry are in cell/leader's scripts, explanations in TestReasonsAreTrue.
package fairness
