package main

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// eachOf does something to every named object and writes what became of them: one object alone, or a list. A failure is shown and does not
// keep the rest from being done, unless nobody answers or nobody may; the last error is returned.
func eachOf[T proto.Message](a *app, p *output.Printer, view output.View[T], ids []string, do func(id string) (T, error)) error {
	if len(ids) == 1 && !p.Human() {
		item, err := do(ids[0])
		if err != nil {
			return err
		}
		return p.Object(view.Name(item), item)
	}
	list := output.NewList(p, view)
	var items []T
	var last error
	for _, id := range ids {
		item, err := do(id)
		if err == nil {
			items = append(items, item)
			continue
		}
		if last != nil {
			a.complain(failure.Explain(last))
		}
		last = err
		if code := failure.Explain(err).Code; code == failure.Unreachable || code == failure.Denied || code == failure.Interrupted ||
			errors.Is(err, context.Canceled) {
			break
		}
	}
	if len(items) > 0 || last == nil || !p.Human() {
		if len(items) > 0 {
			if err := list.Add(items...); err != nil {
				return err
			}
		}
		if err := list.Close(); err != nil {
			return err
		}
	}
	return last
}
