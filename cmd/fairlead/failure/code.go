package failure

// Code is the exit code of the process. Scripts depend on the numbers: they never change.
type Code int

// The exit codes. After a wait, the code is the job's final state: OK for succeeded and Failed for every other end.
const (
	OK          Code = 0
	Failed      Code = 1   // it was done and ended badly, or something broke that no other code names
	Usage       Code = 2   // the command line, the configuration or the request is wrong as written
	Unreachable Code = 3   // no server answers, it has no leader, or a gate blocks it; the outcome may be unknown
	Refused     Code = 4   // the server understood and said no: a limit, a conflict, overload
	TimedOut    Code = 5   // the wait is over and the job goes on
	NotFound    Code = 6   // there is no such thing, or it is not the caller's
	Denied      Code = 7   // no key, a dead key, or a key without the scope
	Interrupted Code = 130 // SIGINT or SIGTERM
)
