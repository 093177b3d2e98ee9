// Package mover drives migrations: for every live one it looks at what both cells say of the tenant's lanes, asks package migrate what is to be done
// next, and does that, until the migration has ended.
//
// It owns the calls to the cells, their deadlines and repetitions, the copying in chunks, and how fast that may be so that the source does not suffer. It
// decides nothing: what comes next is [migrate.Next]'s, whether it may is the record's in control's log, and what a lane does is the cell's own log's.
// It keeps no truth: ended at any instant, and begun again by another leader, it goes on from the record and from what the cells say.
//
// Each migration has a goroutine of its own, so that a cell that hangs holds up nobody but its own. None of them outlives [Mover.Run]'s context: whoever
// does not lead control any more drives nothing.
//
// It knows no log, no process and no certificate: [Control] and [Cells] are what the process's wiring fills.
package mover
