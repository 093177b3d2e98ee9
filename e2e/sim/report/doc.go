// Package report says what simulated runs came to: as a table that a newcomer understands, as JSON, as CSV and as pictures, and compares two runs
// tenant by tenant.
//
// It owns the figures and their forms. The same runs give the same bytes. It refuses to know about policies, files and terminals: it is handed
// finished runs and returns text. It does not trust names: what a trace called a tenant neither drives a terminal nor breaks a picture.
//
// # The figures
//
// Wait is start - arrival of the attempt that completed, latency completion - arrival. A percentile p of n values is the value of rank
// ceil(p x n / 100) in their order (nearest rank), so it is always one that occurred. A share is the part of all that was charged in the run.
// Utilisation is the service of completed jobs over slots x the time of the last completion: capacity that nobody used, or that was spent on attempts
// that were taken back, counts as unused.
//
// A job that had not started when the run ended has no wait that could be counted. Such jobs are reported beside the waits, or a policy that starves
// would look like one that serves quickly.
//
// # Two views
//
// A percentile of all work hides whoever is a small part of it: a tenant with one job in a hundred may wait for ever while the p99 of all
// stays as it was. So there are two views of an objective, of all work and of tenants, and the table shows both. See [View].
package report
