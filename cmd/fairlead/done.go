package main

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// printDone writes what a change answered: the object for machines, a sentence by format and args for people.
func (a *app) printDone(p *output.Printer, name string, m proto.Message, format string, args ...any) error {
	if !p.Human() {
		return p.Object(name, m)
	}
	return p.Text(fmt.Sprintf(format, args...))
}
