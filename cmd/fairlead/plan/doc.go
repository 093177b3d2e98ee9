// Package plan reads what somebody wants to plan for and shows what comes of it: tenants with their demands and promises, and the shares of a
// capacity that each will get.
//
// It owns the form of the input, a YAML or JSON document, and the views for people and for programs. The arithmetic is that of
// cell/allocate and placement, and it refuses to do any of its own beyond units: operations a second times the cost of one is a demand, and a
// share divided by that cost is operations again. It refuses keys that it does not know, and tells all faults of an input at once, each with
// its line.
package plan
