// Package client is the Go SDK for submitting jobs to Fairlead and following them.
//
// It owns the caller's side of JobService: how a job is written down, when a call is repeated, and how a refusal reads in Go. It also
// owns how any Go program of Fairlead reaches a server ([Dial], [NewHTTPClient]), which the worker and the command line use.
//
// [Client.Submit] is cheap under concurrency: calls made while a batch is in flight wait for the next one and travel together, at most
// 500 jobs or 1 MiB at once; a call that finds nothing in flight leaves at once. Each call has its own answer, and giving up on one
// leaves the others alone.
//
// These hold:
//
//   - Every submission carries an idempotency key, the caller's or one made here, so that a submission whose answer was lost is safe to
//     repeat: it returns the same job.
//   - Every mutation ends as applied (nil), not applied, or unknown ([Error.Unknown]).
//   - What is definite (a bad argument, a missing permission, a used key) is never repeated. What is not is repeated with full jitter,
//     not before the time the server asked for, within the caller's context and within a budget of about a tenth of the fresh calls, so
//     that a cell in trouble does not get its callers' load twice.
//   - The token goes only to the address it was given for: redirects are not followed, and plain HTTP to another machine is refused
//     unless asked for. It prints as asterisks.
//
// It refuses to name a tenant: the key decides that. It keeps nothing on disk.
package client
