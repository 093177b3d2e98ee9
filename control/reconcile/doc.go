// Package reconcile says what control's leader does next: which commands it proposes and what it asks of agents, so that the cluster becomes what its
// record says.
//
// It owns one function, [Step], of the replicated state, of what the leader has heard of agents since it leads, and of the time. A step takes no
// action itself and remembers nothing: whoever calls it carries the actions out, in any order and as often as they come, and what was done shows in
// the state or in what agents say. So a step that is lost, repeated or cut off does no harm, and a new leader goes on where the last one stopped. It
// refuses to remove anything that holds a job or a vote: an agent that is gone for good is the operator's to take out.
//
// Gossip and silence decide little. A drop of contact shorter than a time-out changes nothing; time-outs count from when an agent was last heard
// of, or from when this leader began to listen, whichever is later, and nothing but hearing of it starts them anew. What one cell needs is bounded
// and never waits for another cell: cells that have been asked for something in vain let others have their turn.
//
// A tenant is moved without being asked for only if its cell is marked for evacuation, or if it is a whale and the configuration lets it: a step
// declares the migration, whose own rules do the rest. What was given up is left alone for a while.
//
// Invariants, checked in tests over random histories: the same arguments give the same actions; actions that were all carried out are not
// repeated; there are never more than [ActionsMax]; an agent that is not heard of gets no action; a log's first voters are written once.
package reconcile
