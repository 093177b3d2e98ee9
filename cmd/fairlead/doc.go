// Command fairlead is the node, the command line and the workers of Fairlead in one static binary.
//
// It owns how people and scripts talk to the platform: nouns and verbs, formats, exit codes, and messages that say what happened, why, and
// what to do. Standard output is data and standard error is talk. It holds no rule of the platform: what a job or a tenant may be is
// decided by the server, and checked here only where an early answer is the better one. Edges of different folders meet here and nowhere
// else. Starting must stay cheap, for a process per job is a common thing: nothing is read or dialled before a command needs it.
package main
