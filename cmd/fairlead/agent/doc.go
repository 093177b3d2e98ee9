// Package agent wires the roles of a Fairlead process together and runs them: the log of control and of a cell, the servers on top of them, and
// the gateway in front.
//
// It is the one place where the edges of different folders meet. It owns the order of starting and stopping, and nothing else: no rule
// about jobs, tenants or keys is here.
package agent
