// Package localcluster runs a whole cluster on this machine, as child processes of the binary that it is in, and shows what happens to jobs when
// its leaders are killed, and when a tenant is moved to another cell while it runs.
//
// It owns the processes, their ports and their folder ([Cluster]), and the demonstrations. That of lost leaders ([Run]) has three control agents, a
// cell of three replicas, a cell of one, a gateway and a worker for each cell; that of a whale ([RunWhale]) three control agents, two cells of one
// replica and a gateway, with the workers in this process, which see when each job begins. All have certificates, as fairlead cluster prepare,
// bootstrap and seed make them. Nothing in it is other than what an operator would start by hand, so what it shows is what a real cluster does.
//
// These hold:
//
//   - A child ends when its standard input does, so none outlives the parent, however that ends; a temporary folder goes with them.
//   - A child that ends although nobody killed it ends the run, with its last words.
//   - A job counts as accepted when the submission was answered so, as completed when the cell lists it as succeeded, and as lost when it was
//     accepted and is not completed once there has been far more than time enough. Nothing else goes into the figures.
//   - In the demonstration of a whale each call is made once, and an error of any of them is counted. A job is there twice when the cells list it
//     twice, when its submission made two jobs, or when it came to its end more often than its lost leases account for.
//   - A folder that was given is kept and can be used again: its ports are in it.
//
// It is not how to run a cluster for others: everything shares one machine, and its loss loses all.
package localcluster
