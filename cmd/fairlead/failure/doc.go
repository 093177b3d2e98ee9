// Package failure turns whatever went wrong in a command into what people and scripts see: an exit code, and a message that says what
// happened, why, and what to do.
//
// It owns the table of exit codes and the one function, [Explain], that maps errors to it. It reads typed errors only: the API's
// rejections, Connect codes, the configuration's faults, the context's, and its own [Problem]. It refuses to guess from an error's text, and prints nothing.
package failure
