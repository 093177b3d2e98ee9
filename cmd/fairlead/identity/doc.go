// Package identity is who an agent is to the others of its cluster: certificates, what they say, and where they are kept.
//
// A cluster has one certificate authority. The certificate of an agent names it in one URI, fairlead://CLUSTER/ROLE/NAME, with /CELL after it for
// an agent of a cell; whoever connects or is connected to checks that URI against what it expects, not the name of a host. Connections are
// TLS 1.3 in both directions. An agent without a certificate gets one with a join token, which pins the authority: it cannot be lured
// into another cluster.
//
// The package owns the files of an agent's directory: ca.crt, agent.crt, agent.key, gossip.keys, and ca.key where an agent may sign. Whoever can
// read a key file is the agent, so one that its group or everybody may read is refused. The files are read again by [Store.Reload],
// and whatever was made from a store uses what was read last. A certificate that is not of the same authority, cluster, role, cell or
// name as expected, or not of today, ends the handshake: no byte of it is read.
package identity
