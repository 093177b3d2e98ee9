package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// batch is a batch of jobs whose lanes move: each job is sent where its lane is until a cell has accepted it or refused it for another reason.
// It is never sent again once it was: what came of it is then unknown at worst.
type batch struct {
	*errand
	jobs    []*fairleadv1.JobSpec
	results []*fairleadv1.SubmitResult // in the order of jobs
	pending []int                      // the jobs that no cell has taken yet
}

// mergeBatch answers a SubmitBatch of which a cell has not taken some jobs because of their lanes.
func mergeBatch(ctx context.Context, req *fairleadv1.SubmitBatchRequest) (*fairleadv1.SubmitBatchResponse, error) {
	e, err := errandOf(ctx)
	if err != nil {
		return nil, err
	}
	b := &batch{errand: e, jobs: req.GetJobs()}
	resp, err := firstOf[fairleadv1.SubmitBatchRequest, fairleadv1.SubmitBatchResponse](ctx, e)
	switch {
	case err != nil && !ofLane(itemOf(err)):
		return nil, relayed(err)
	case err != nil:
		b.results = make([]*fairleadv1.SubmitResult, len(b.jobs))
		for i := range b.jobs {
			b.pending = append(b.pending, i)
		}
	case len(resp.GetResults()) != len(b.jobs):
		return resp, nil // the cell does not say what became of which
	default:
		b.results = resp.GetResults()
		for i, r := range b.results {
			if ofLane(r.GetRejection()) {
				b.pending = append(b.pending, i)
			}
		}
	}
	for _, i := range b.pending {
		e.refused[b.class(i).Index()] = e.by
	}
	for len(b.pending) > 0 {
		if err := b.round(ctx); err != nil {
			b.refuse(b.pending, err)
			break
		}
	}
	return &fairleadv1.SubmitBatchResponse{Results: b.results}, nil
}

// round sends what is pending and can be, to one cell after the other. It returns the refusal of what is left when that has waited for too long.
func (b *batch) round(ctx context.Context) error {
	var wanted [2]bool
	for _, i := range b.pending {
		wanted[b.class(i).Index()] = true
	}
	to, err := b.targets(ctx, wanted)
	if err != nil {
		return err
	}
	groups := map[cell.ID][]int{}
	var left []int
	for _, i := range b.pending {
		if home := to[b.class(i).Index()]; home != "" {
			groups[home] = append(groups[home], i)
		} else {
			left = append(left, i)
		}
	}
	b.pending = left
	for n, home := range to {
		if n > 0 && home == to[0] || len(groups[home]) == 0 {
			continue
		}
		b.send(ctx, home, groups[home])
	}
	return nil
}

// send sends some jobs to a cell and takes in what it says of each.
func (b *batch) send(ctx context.Context, to cell.ID, items []int) {
	req := &fairleadv1.SubmitBatchRequest{}
	for _, i := range items {
		req.Jobs = append(req.Jobs, b.jobs[i])
	}
	resp, s, err := askCell[fairleadv1.SubmitBatchRequest, fairleadv1.SubmitBatchResponse](ctx, b.errand, to, req, nil)
	switch {
	case s.refused:
		b.again(to, items...)
		return
	case err == nil && len(resp.GetResults()) != len(items):
		err = fmt.Errorf("the cell has answered for %d of %d jobs", len(resp.GetResults()), len(items))
	}
	if err != nil {
		b.refuse(items, err)
		return
	}
	for k, i := range items {
		r := resp.GetResults()[k]
		if ofLane(r.GetRejection()) {
			b.again(to, i)
			continue
		}
		rename(r.GetRejection(), k, i)
		b.results[i] = r
	}
}

// again puts off jobs that a cell has not taken because of their lanes.
func (b *batch) again(by cell.ID, items ...int) {
	for _, i := range items {
		b.refused[b.class(i).Index()] = by
	}
	b.pending = append(b.pending, items...)
	slices.Sort(b.pending) // the order in a lane is that of the batch
}

// refuse gives some jobs a whole call's refusal.
func (b *batch) refuse(items []int, err error) {
	for _, i := range items {
		b.results[i] = &fairleadv1.SubmitResult{Rejection: itemOf(err)}
	}
}

// class is whose lane the job i is of. One of no class is taken for one of the first: the cell says what is wrong with it.
func (b *batch) class(i int) cell.Class {
	if b.jobs[i].GetClass() == fairleadv1.Class_CLASS_BATCH {
		return cell.ClassBatch
	}
	return cell.ClassInteractive
}

// rename makes a refusal name the job as the caller's batch has it.
func rename(r *fairleadv1.Rejection, is, was int) {
	if r == nil || is == was {
		return
	}
	from, to := fmt.Sprintf("jobs[%d].", is), fmt.Sprintf("jobs[%d].", was)
	if rest, ok := strings.CutPrefix(r.GetField(), from); ok {
		r.Field = to + rest
		r.Message = strings.ReplaceAll(r.GetMessage(), from, to)
	}
}
