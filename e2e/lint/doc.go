// Package lint holds the laws of the source tree that no general linter knows, and the test that applies them to it.
//
// It owns the table of layers (layers.go): every package of the module has a row that says whether it is pure or an edge, what
// of the project it may import and, if it is pure, what else. The table is checked against the laws of the architecture, the
// tree and .golangci.yml are checked against the table:
//
//   - a pure package has no goroutine, channel, select, lock, context, wall clock, randomness, I/O, init or mutable global, and
//     ranges over a map only where the order cannot be seen;
//   - edges of different folders meet only in cmd/fairlead, in e2e and in tests; the simulator imports no edge; raft and
//     memberlist have one importer each;
//   - every package has one package doc, in the usual form, and a name that says something;
//   - tests do not sleep outside synctest bubbles, and no committed file speaks of the machine it was written on.
//
// It refuses to guess: a package without a row is an error that names the row to add. Each check has a test of its own that
// shows it catch a violation, since a check that cannot fail proves nothing.
package lint
