// Package migrate is one tenant's move from one cell to another, as a table of states, events and transitions, and what is to be done next in each.
//
// It owns the decisions: [Record.Apply] says which event may follow where a migration stands, and control's log holds its result; [Next] says what a driver does
// now, which is a function of the record and of what was seen of both cells; [Gates] says what is proved. It refuses to know how any of it is carried out: calls,
// chunks, time-outs and back-off are the mover's.
//
// The way there and the two ways back, of which abort is open until the first class is committed and reverse from then on (a picture of all transitions is in
// testdata/machine.md, and a test keeps it so):
//
//	declared -> admitted -> provisioned -> seeding -> catching_up -> shadowing -> ready -> ramping -> cut_over -> draining -> released
//	abort:   declared to ramping           -> aborting  -> aborted
//	reverse: ramping or cut_over           -> reversing -> rolled_back
//	restart: admitted to ramping, before the first commit -> admitted, as the next attempt
//
// In ramping each class goes through at_source -> fencing -> committed -> observing -> moved, one at a time; in reversing back through reverse_fencing and
// reverse_committed to returned.
//
// Invariants, which the explorer in the tests verifies over the real Apply and Next: a lane is open in at most one cell; a cell's lane takes nothing after the
// position of its fence; a class is committed only while its lane stands still, with equal content in both cells; every change of a home raises the lane's epoch,
// and so does giving a switch up; an event decided on an earlier record changes nothing; from wherever faults leave it a migration comes to an end, or is held
// with a reason that people can act on.
//
// Values only: there is no state here, and everything may be used by many goroutines at once.
package migrate
