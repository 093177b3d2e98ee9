// Package trace reads and writes records of work: which jobs came when, whose they were, and how long each ran.
//
// It owns the text forms and what a simulated [Job] is. It refuses to know about policies, workers and clocks: a trace says what was asked
// for, never what was made of it. Reading is strict: whatever is not understood is refused with its line and column, and what a form leaves
// out is filled in by rules that [Trace.Notes] states in words.
//
// # The project's own forms
//
// CSV has a header that names the columns, in any order. Unknown columns are refused. The first three are required; an empty field is the
// same as a column that is absent.
//
//	arrival_ms    when the job came, in milliseconds since the trace's start, with at most 6 decimals
//	tenant        whose it is
//	service_ms    how long it ran, in milliseconds, with at most 6 decimals
//	job           its number, unique in the trace; at equal times lower numbers come first. Default: its place among the records, from 0
//	organization  the tenant's parent; default none
//	class         interactive or batch; default batch
//	operation     what kind of job it is; default work
//	cohort        the name under which reports count it; default its tenant
//	cost          what it declares to cost, in micro-units of the cost unit; default 0, unknown
//	actual        what it did cost, in micro-units; default its service in microseconds: slot time
//	priority      seconds of head start within its lane, default 0
//	preemptible   true or false, default false
//	deadline_ms   when it expires if it has not started, in milliseconds since the trace's start; default never
//	keys          its concurrency keys as key=max, with ; between them
//
// JSONL has one object per line with the same names as members, and keys as a list of {"key":...,"max":...}.
//
// # Forms of others
//
// Standard Workload Format has 18 numbers per line and comments after a semicolon. The tenant is the user, the organization the group; jobs
// of one processor are interactive, others batch; the service is the run time, and the cost run time x processors, in processor-hours. A
// job takes one slot here, however many processors it had.
//
// A token trace is CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens. It has no tenants: they are dealt out by a Zipf rule from a
// seed. The cost is the tokens, the service by [TokenRates].
//
// All of them may be compressed with gzip, which is told by content, as the form is.
package trace
