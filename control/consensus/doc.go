// Package consensus runs one raft group and is the only importer of the raft library and its stores.
//
// It owns a directory (log, votes, snapshots), the group's leadership and the order of what is applied. A state machine
// plugs in by [StateMachine] and sees bytes only, so that one package serves the control plane's log and every cell's.
//
// # What holds
//
//   - A proposal ends exactly once: applied, [ErrNotApplied] (definite) or [ErrUnknown] (it may be applied, now or after a
//     restart). Applied means that the entry was fsynced (on a majority, with several voters) and then applied.
//   - Apply, Snapshot and Restore are called from one goroutine at a time, Apply in log order without gaps.
//   - Fail-stop: after an error of the store, or a write that outlasts [Config.WriteDeadline], nothing is acknowledged any
//     more and the process ends through [Config.OnFatal]. An fsync that failed once says nothing about what is on the disk,
//     so that going on, or trying again, would be a guess; and a leader whose disk hangs would stay leader for ever
//     (hashicorp/raft#503).
//   - Corruption is refused, never repaired and never deleted: each entry, each vote and each snapshot carries a CRC32C of
//     ours, everything is read and verified before the first entry is served, and a mark beside the log says how far it was
//     acknowledged, so that a log which lost its end is told from one that ends there. [Open] then returns [ErrCorrupt].
//     The one thing that is repaired is the torn tail of a write that a crash cut off: it was never acknowledged.
//   - Snapshots follow bytes, not entry counts, and are written while Apply goes on.
//
// # Stores
//
// Entries are in raft-wal's segment files, votes and the list of segments in raft-boltdb, snapshots in raft's file store.
// Behind the same checks raft-boltdb took 2 to 4 times as long for an entry: it syncs twice and writes whole pages. What
// raft-wal 0.4.0 leaves open is listed, and closed, at segmentLog. A log's files are allocated whole, so that a directory
// takes two to three times [Config.SegmentBytes] and two snapshots.
//
// The mark is not synced. After a killed process it is exact; after a power cut it may be older than the log by what the
// system had not written back, and damage to just those last entries then passes for a torn tail.
//
// # Several voters
//
// With a [Transport] a group has as many voters as its membership says. The first ones are written once, into each one's
// empty directory; every later replica starts without and waits until a leader adds it. A proposal is applied when a majority
// has fsynced it.
//
//   - A leader that a majority does not answer steps down after half an [Config.ElectionTimeout], and the others elect another
//     one after a whole: with the default of 1 s a failover takes 1 to 3 s. A leader that closes hands over first.
//   - A replica whose store fails leaves the network before it tells its process: as long as its heartbeats are heard nobody
//     takes over. A leader whose disk hangs is replaced an election after [Config.WriteDeadline].
//   - [Group.Lead] says when this replica may serve and tells when it no longer may. What is read from the state machine is
//     not of a deposed leader's when [Group.Verify] returns nil after it.
//   - A change of the membership is one replica at a time. A new one is added without a vote, catches up, and is promoted;
//     then the one that it replaces is removed, never below the configured count ([ErrQuorum]). A replica that lost its
//     directory has forgotten its votes: it comes back under another ID, at another address until the old one is removed.
//   - A follower that lags behind the compacted log is sent a snapshot. Its log is emptied then, for it does not continue in
//     what follows; a crash in between is found and mended at the next start. A follower whose log went further than the
//     others agreed on, and parted from it in what they have compacted, is sent one snapshot after the other
//     (hashicorp/raft#697): that is told in [Stats] and in the log. A restart mends it.
//   - [Group.Save] and [Group.Restore] carry a state from one group to another, or back in time. A restore replaces the state
//     of all replicas under a leader that serves: readiness ends before it and begins anew behind it.
//
// # What it refuses
//
// Proposals above [Config.EntryBytesMax]; a directory that another process holds ([ErrLocked]), that belongs to another
// replica ([ErrForeign]) or that is damaged ([ErrCorrupt]).
//
// # One voter
//
// Without a Transport a group has one voter in one process and raft's in-memory transport carries nothing. The election
// time-outs are short (50 ms) because there they are nothing but a wait at every restart.
package consensus
