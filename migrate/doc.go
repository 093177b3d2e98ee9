// Package migrate is one tenant's move from one cell to another, as a table of states, events and transitions, and what is to be done next in each.
package migrate
