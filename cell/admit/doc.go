// Package admit is the door of a cell: the size and shape of what may enter it.
//
// It owns the bounds on one job and on one worker's call, their defaults, and the typed refusals. What is bounded over many jobs, the backlog,
// is the engine's, which counts them. Everything here looks at one value and a time, and changes at most the value it is given, by filling
// in defaults.
package admit
