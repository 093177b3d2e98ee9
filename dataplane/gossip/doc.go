// Package gossip finds the agents of a cluster and suspects the dead ones. It is the only package that talks to memberlist.
//
// It owns who is seen alive, a hint of how busy each is, the keys that gossip is encrypted with, and that agents of different clusters
// never mix. It carries hints only: nobody's ownership, epoch, leadership or membership of a log is decided by what it says.
//
// These hold:
//
//   - Every packet is encrypted and carries the cluster's id as its label; who says of itself that it belongs to another cluster is
//     refused although it has the keys.
//   - What an agent says of itself fits [MetaBytesMax], or [Open] refuses it: memberlist would panic.
//   - A partition heals, however long it lasted: seeds that are not alive are asked again and again, which memberlist by itself stops
//     doing after half a minute.
//   - A restarted agent is itself again, at another address too, once its old self has been dead for a while.
package gossip
