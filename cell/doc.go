// Package cell is the vocabulary that every part of Fairlead shares: tenants, classes, lanes, jobs, costs, weights, callers
// and the typed errors of the door.
//
// It owns the meaning and the bounds of these words, and nothing else: no state, no I/O, no wire format. Whatever it hands out has
// been checked, so that a [TenantID] from [ParseTenantID] needs no second look. The zero value of an identifier is never valid.
package cell
