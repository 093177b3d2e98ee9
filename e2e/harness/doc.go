// Package harness starts what users start: the real fairlead binary, and test binaries in a role of their own, as processes that a test may
// kill, stop and start again.
//
// It owns the processes. Each leads a process group, is killed with its group when its test ends, and on Linux dies with the test binary
// however that ends, so that none outlives a test. What a process wrote to its standard error goes to the test's log when the test fails.
// Nothing here sleeps for a guess: whoever waits looks at something observable, with a deadline, and gives up at once when the process has
// ended.
//
// A package that uses it calls Main from its TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m, roles)) }
//
// Variables of the environment, for people:
//
//   - FAIRLEAD_BINARY is a fairlead binary to test instead of one built from the tree, such as one built with the race detector.
//   - FAIRLEAD_PROFILE is a directory: servers then run inside the test binary, re-executed, and leave a CPU profile there when they are
//     terminated.
package harness
