package main

import (
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// pageSizeMax is the API's bound on a page.
const pageSizeMax = 500

func limitFlag(cmd *cobra.Command, limit *int) {
	cmd.Flags().IntVar(limit, "limit", 0, "list at most so many; 0 lists all")
	completeNothing(cmd, "limit")
}

// writePages writes a list page by page, all of it or up to limit.
func writePages[T proto.Message](p *output.Printer, view output.View[T], limit int, page func(size int32, token string) ([]T, string, error)) error {
	if limit < 0 {
		return failure.Usagef("give a number of items, or 0 for all", "--limit is %d, below 0", limit)
	}
	list := output.NewList(p, view)
	left, token := limit, ""
	for {
		size := pageSizeMax
		if limit > 0 {
			size = min(size, left)
		}
		items, next, err := page(int32(size), token)
		if err != nil {
			return err
		}
		if limit > 0 && len(items) > left {
			items = items[:left]
		}
		if len(items) > 0 {
			if err := list.Add(items...); err != nil {
				return err
			}
		}
		left -= len(items)
		if next == "" || limit > 0 && left <= 0 {
			return list.Close()
		}
		token = next
	}
}

// when shows a time with its age: what a description has room for.
func (a *app) when(t *timestamppb.Timestamp) string {
	if t == nil {
		return output.None
	}
	age := output.Age(a.now(), t)
	if t.AsTime().Before(a.now()) {
		age += " ago"
	}
	return t.AsTime().UTC().Format(time.RFC3339) + " (" + age + ")"
}
