// Package bench measures how fast a cell is, as ratios to what the same machine can do at all.
//
// One table comes out of one run:
//
//	go test -run '^$' -bench Speed -benchtime 1x ./e2e/bench
//
// Everything is measured five times over, interleaved, so that whatever else the machine does meets the cell and its limits alike; a row's ratio
// is the median of five. Where both sides can be stopped and started, the two take turns every quarter of a second. The state directories lie below
// TMPDIR, which must be on the disk in question: on a file system in memory an fsync costs nothing and the limits that contain one mean nothing.
//
// # Layout
//
// The server is a process of its own, this test binary started again: package agent's whole wiring, that is control, a cell and the gateway on a
// fresh state directory, with the settings that fairlead dev makes for its process. Callers and workers are in the process of the benchmark. Each
// measurement gets a server of its own, so that none pays for what another left in memory.
//
// # The limits
//
//   - echo: 64 callers, a call each, of JobService.Submit on a handler that answers at once. It is served by the same process with the same
//     settings, by the same HTTP server and handler options, and called through the same client construction with the same messages; what it
//     lacks is the gateway, the cell and the log.
//   - group commit: 64 writers append a record of a job's size to one file, a call each. While one fdatasync runs the next write gathers what came
//     in; a writer goes on when its record is durable. The file's blocks exist already. It is the least that a durable log of single submissions
//     can do.
//   - fdatasync: 4 KiB written into a file whose blocks exist, and made durable, over and over by one writer. The median is taken, before and after
//     what is compared with it.
//
// The log alone is group commit through raft: the same 64 writers, whose records one goroutine packs into entries of control/consensus. It is shown
// to tell the cell's own cost from that of its log.
//
// # What is measured
//
//   - submit: 64 callers, a JobService.Submit each, with an idempotency key, through the gateway with an API key.
//   - SDK: the same callers through client.Submit, which coalesces.
//   - batches: the same callers, a SubmitBatch of 500 jobs each, with keys, over h2c.
//   - backlog: 50,000 waiting no-op jobs, leased, run and reported by one worker with 64 slots and 64 prefetch, from its start to its orderly end.
//   - start: 200 submissions a second, evenly, and an idle worker with 64 slots: from the call of client.Submit to the first line of the handler.
//
// The column cpu is what both processes together used for one operation. It says more than the rates when other programs compete.
package bench
