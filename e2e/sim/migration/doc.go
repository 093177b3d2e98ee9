// Package migration is a simulation of tenants that move, over the packages that decide in production: two cells' state machines, control's, and what the
// driver is told to do next. Time, the network, crashes and who drives are the simulation's; the same seed gives the same run.
//
// It is its tests: there is nothing in it to import.
package migration
