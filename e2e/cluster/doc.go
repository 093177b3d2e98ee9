// Package cluster tests clusters of real processes under faults: agents that are killed, stopped and cut off, links that are cut in one
// direction or both, disks that hang, while jobs are submitted, run, cancelled and looked at. What callers were told is checked against a model
// of one machine that never fails.
package cluster
