// Package gateway is the door of the API: HTTP middleware that decides who may call what before a byte of the body is read, and in a cluster
// what stands behind the door: forwarding to the agent that serves a request.
//
// It owns authentication by API key, the table of which procedure needs which permission, the bounds on what reaches a handler
// (connections, concurrent requests, bytes), and the form of JSON that requests may take. It is middleware and not an interceptor because
// Connect decompresses and decodes a body before interceptors run.
//
// In a cluster it has three more parts. A [Watcher] keeps the routes and the live keys current from control, and on disk for when control is
// away. A [Forwarder] passes requests on as they are, in whatever protocol, to the leader of the tenant's cell or of control. [Inside] is
// the door of the agents that they arrive at: it lets in other agents only, by their role, and takes the caller from the header that the
// outer door has set.
//
// It refuses what it does not know: a procedure without a row in the table is refused whatever the key, and [Mux] refuses to mount a
// service that has one. It knows nothing of jobs, tenants or where keys are kept: a [Directory] answers for a key's hash, and the
// handlers behind ask [CallerFrom] who calls. Every refusal is written in the caller's own protocol.
//
// These hold:
//
//   - A handler of a scoped procedure runs only with a caller in its context that holds the permission; a handler of a tenant's
//     procedure only with a caller that has a tenant; an operator's only with a caller of the platform.
//   - A secret is hashed as soon as it is read and is never logged. It does not pass the door, and no header that agents trust comes
//     in from outside.
//   - A request is tried again only when it certainly was not done (the agent was not reached, could not have all of it, or said that it
//     does not lead) or has no side effect. When that goes on for too long, the answer is that nothing was done. When the answer of an
//     agent that has the request is lost, the answer is that its outcome is unknown.
//   - An agent that holds a request is given up when another is seen to lead in a later term, or when it leaves probes unanswered for
//     seconds, and not before: a long poll is slow on purpose.
//   - Nothing is shared between cells: one that hangs holds up nobody but its own tenants.
//   - A caller does not see that its tenant moves from one cell to another, nor that its lanes are in two for a time. What a cell does not do
//     because of a lane that moves waits, and is done where the lane is; it counts as waiting then, within bounds of each tenant's own, and
//     not as any cell's. An answer of which a part was done elsewhere is put together in the order of the request. An answer that says nothing
//     of lanes passes as it is, unread.
//   - Routes never go back, and a file of them that is not whole is not used.
package gateway
