// Package sim runs scenarios and traces through scheduling policies on a virtual clock.
//
// It owns the clock, the slots and the order of events, simple reference policies of its own (first in first out, round robin, round robin
// with a cap, deficit round robin), and the independent check of what came out. The policy `fairlead` is the very scheduler that runs in
// production, package sched, driven as the cell's leader drives it. It refuses to know about files, flags and pictures: its callers read
// and draw.
//
// # Time
//
// Time is a duration since the start. Events at the same time go in this order: completions (by slot), arrivals (by job id), expiries, then
// dispatch until no free slot can be given anything. Nothing takes time but running jobs, so that results in whole milliseconds are exact.
//
// # Determinism
//
// The same scenario, policy and seed give the same bytes: the only source of randomness is one PCG per cohort, seeded by the scenario's
// seed and the cohort's place, no wall clock is read, and no map's order is seen. NB: rates at random and lognormal values are
// floating-point arithmetic, which may round differently on another architecture; everything else is whole numbers.
//
// # What is simulated
//
// The scheduler and the slots of one cell whose log is instantaneous: no network, no fsync, no worker that dies, no lease that expires, and
// no job held beyond the slots. hashicorp/raft is not simulated: it uses real timers, and real clusters are tested elsewhere.
package sim
