// Package demo shows the noisy neighbour on this machine: it runs the same jobs of the same tenants first in the order they came, then through
// Fairlead, and compares what the quiet tenants had to wait.
//
// It owns the workload, the processes and the figures. The processes are the real thing: a server with a durable log of its own for each
// policy ([Serve]), workers beside it ([Work]), and applications that submit over loopback with a key for each tenant. [Run] starts all of
// them from its own binary and ends them again.
//
// These hold:
//
//   - Both policies get the same jobs, with the same service times, at the same moments, by a seed.
//   - A job waits from the call that submits it to the moment its handler starts, by the clock of the process that did each. The handler's
//     start and end are in the job's result, which is read back from the cell; a job counts as completed only with a checksum of
//     its payload that is right. Nothing else goes into the figures.
//   - The live view is drawn from what workers tell on a pipe as it happens. It is not used for the figures, except for when a job
//     started that failed and so has no result.
//   - A child ends when its standard input does, so none outlives the parent, however that ends; the state directory goes with them.
//
// It refuses to follow a symbolic link out of the folder that it was given, and to hold a file's content in memory.
package demo
