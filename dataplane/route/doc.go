// Package route is what a gateway knows of a cluster: whose keys are live, in which cell each tenant is at home, and where cells and
// control are.
//
// It owns the [Table], one generation of that knowledge, how an [Update] of control makes the next one, and the bytes in which a table is
// kept on disk so that a gateway can start while control is away. It decides nothing and calls nobody: where a call goes is read from it.
//
// A table is a value: it is never changed, and any number of requests may read one while the next is made. What two generations have in
// common they share, so that one changed key does not cost a copy of a hundred thousand.
//
// These hold:
//
//   - A table never goes back. An update of an older index changes nothing, and the home of a lane of an older epoch never replaces that of
//     a newer, not even in an update that begins anew: epochs only rise, over restores too. Each of a tenant's lanes has its own.
//   - What begins anew takes effect as a whole: until its last part is there, the table answers as before.
//   - A damaged file is never trusted in part: [Decode] returns all of it or an error.
//
// It refuses to know time: whether a key has expired is asked with the time as an argument.
package route
