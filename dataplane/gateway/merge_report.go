package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// report is a worker's report that names leases of lanes which move: each outcome is handed in where the lease is until a cell has taken it or
// refused it for another reason, and each lease is extended there. Which of the leases have moved is not said, so that each cell that may have
// one is asked about all that is left.
type report struct {
	*errand
	req     *fairleadv1.ReportRequest
	resp    *fairleadv1.ReportResponse
	tenants []cell.TenantID
	pending []int // the outcomes that no cell has taken yet

	asked   map[cell.ID]verdict // since the last wait: what the cell said of the outcomes that it has not taken
	extends map[cell.ID]bool    // who was asked to extend the leases

	named   map[leaseName]bool // the leases to extend
	revoked map[leaseName]bool // those that are taken back for certain
	doubted map[leaseName]bool // those that everybody has taken back, some of whom may never have had them; nil before the first answer
}

// tenantsNamedMax is how many tenants a cell names in an answer at most.
const tenantsNamedMax = 50

// verdict is what a cell says of outcomes that it has not taken, those that say more above those that say less.
type verdict uint8

const (
	verdictUnknown   verdict = iota // that it does not know the jobs, if anything
	verdictElsewhere                // of one, that another cell has the lane
	verdictMoving                   // of one, that it may be taken a little later
)

func verdictOf(r *fairleadv1.Rejection) verdict {
	switch {
	case !ofLane(r):
		return verdictUnknown
	case r.GetReason() == reasonMoved:
		return verdictElsewhere
	default:
		return verdictMoving
	}
}

// leaseName names a lease.
type leaseName struct{ job, token string }

// mergeReport answers a Report that names leases of lanes which are not, or not all, served by the cell that it was sent to.
func mergeReport(ctx context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	e, err := errandOf(ctx)
	if err != nil {
		return nil, err
	}
	r := &report{
		errand: e, req: req, asked: map[cell.ID]verdict{}, extends: map[cell.ID]bool{},
		named: map[leaseName]bool{}, revoked: map[leaseName]bool{},
	}
	for _, x := range req.GetExtensions() {
		r.named[leaseName{x.GetJobId(), x.GetToken()}] = true
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	if err := r.finish(ctx); err != nil {
		return nil, err // whoever reports repeats all of it: what was taken is taken for the same again
	}
	for _, x := range req.GetExtensions() {
		if name := (leaseName{x.GetJobId(), x.GetToken()}); r.doubted[name] && !r.revoked[name] {
			r.resp.Cancels = append(r.resp.Cancels, &fairleadv1.LeaseRef{JobId: x.GetJobId(), Token: x.GetToken()})
		}
	}
	return r.resp, nil
}

// begin takes in the answer of the cell that was asked first, or asks one.
func (r *report) begin(ctx context.Context) error {
	if r.tenant != "" {
		r.tenants = []cell.TenantID{r.tenant}
	} else if r.tenants = r.notice.tenants; len(r.tenants) > 0 {
		r.tenant = r.tenants[0] // whose room it takes while it waits
	}
	if r.first == nil {
		return r.open(ctx)
	}
	resp, err := firstOf[fairleadv1.ReportRequest, fairleadv1.ReportResponse](ctx, r.errand)
	switch {
	case err == nil:
		// A cell that was not told that it may not know a lease says of the platform's that it does not, and those it alone has granted.
		return r.take(r.by, resp, r.c.caller.Tenant == "")
	case ofLane(itemOf(err)) && r.c.caller.Tenant != "":
		r.refuse(r.by, r.notice.class)
		return r.open(ctx)
	default:
		return relayed(err)
	}
}

// open hands all of the report to one of the tenant's homes: each is first as often as the other, since it alone is asked for more jobs.
func (r *report) open(ctx context.Context) error {
	for {
		to, err := r.targets(ctx, [2]bool{true, true})
		if err != nil {
			return err
		}
		cells := distinct(to[:])
		by := cells[r.f.turn.Add(1)%uint64(len(cells))]
		resp, s, err := askCell[fairleadv1.ReportRequest, fairleadv1.ReportResponse](ctx, r.errand, by, r.req, forwarded())
		if s.refused {
			r.refuseAll(by, to)
			continue
		}
		if err != nil {
			return err
		}
		return r.take(by, resp, isSure(s))
	}
}

// forwarded is the header of a report that may name leases which the cell never had.
func forwarded() http.Header { return http.Header{HeaderLaneForwarded: {"1"}} }

// isSure reports whether a cell has taken back only leases that it had.
func isSure(s said) bool { return s.header.Get(HeaderLaneForwarded) == "1" }

// take takes in the first answer.
func (r *report) take(by cell.ID, resp *fairleadv1.ReportResponse, sure bool) error {
	if len(resp.GetResults()) != len(r.req.GetOutcomes()) {
		return fmt.Errorf("gateway: the cell has answered for %d of %d outcomes", len(resp.GetResults()), len(r.req.GetOutcomes()))
	}
	r.resp = resp
	r.asked[by], r.extends[by] = verdictUnknown, true
	for i, o := range resp.GetResults() {
		if v := verdictOf(o.GetRejection()); v != verdictUnknown || r.c.caller.Tenant != "" && unknown(o) {
			r.asked[by] = max(r.asked[by], v)
			r.pending = append(r.pending, i)
		}
	}
	cancels := resp.GetCancels()
	resp.Cancels = nil
	r.cancel(cancels, sure)
	return nil
}

// unknown reports whether a cell does not know the job of an outcome.
func unknown(o *fairleadv1.OutcomeResult) bool {
	return o.GetRejection().GetReason() == rejection.ReasonNotFound
}

// finish asks the homes of the lanes until nothing is left, or nobody knows what is.
func (r *report) finish(ctx context.Context) error {
	for {
		lanes := r.lanes()
		homes := r.homes(lanes)
		fresh := slices.DeleteFunc(slices.Clone(homes), func(id cell.ID) bool {
			_, asked := r.asked[id]
			return asked || len(r.pending) == 0 && (len(r.named) == 0 || r.extends[id])
		})
		for _, home := range fresh {
			if err := r.put(ctx, home); err != nil {
				return err
			}
		}
		if len(fresh) > 0 {
			continue
		}
		if len(r.pending) == 0 || r.nobodys(homes, lanes) {
			return nil
		}
		if err := r.wait(ctx, lanes...); err != nil {
			if r.hopeless() {
				return nil
			}
			return err
		}
		clear(r.asked)
	}
}

// lanes returns where the lanes of the tenants concerned are at home now.
func (r *report) lanes() []route.Lane {
	table := r.f.cfg.Routes()
	var out []route.Lane
	for _, t := range r.tenants {
		if l, ok := table.Lane(t); ok {
			out = append(out, l)
		}
	}
	return out
}

// homes returns the cells that may have what is left, in the order of their names. Where nothing is known of whose it is, it is the cell that
// was asked.
func (r *report) homes(lanes []route.Lane) []cell.ID {
	table := r.f.cfg.Routes()
	var out []cell.ID
	if len(r.notice.tenants) >= tenantsNamedMax { // there may be more than it names
		for _, c := range table.Cells() {
			out = append(out, c.Name)
		}
		return out
	}
	for _, l := range lanes {
		for _, class := range cell.Classes() {
			if home, _ := l.Home(class); !slices.Contains(out, home) {
				if _, ok := table.Cell(home); ok {
					out = append(out, home)
				}
			}
		}
	}
	if len(out) == 0 && r.by != "" {
		out = append(out, r.by)
	}
	slices.Sort(out)
	return out
}

// nobodys reports whether all homes that there are, as recent as any cell knows of, do not know the jobs of what is left.
func (r *report) nobodys(homes []cell.ID, lanes []route.Lane) bool {
	var epoch cell.Epoch
	for _, l := range lanes {
		epoch = max(epoch, newest(l))
	}
	elsewhere := slices.ContainsFunc(homes, func(id cell.ID) bool { return r.asked[id] != verdictUnknown })
	return len(homes) > 0 && !elsewhere && epoch >= r.notice.epoch
}

// hopeless reports whether what is left would be answered no better later: no home will take it, and one of them does not know the job. It can be
// that a cell that had the lane remembers a job which its owner has forgotten.
func (r *report) hopeless() bool {
	for _, v := range r.asked { // order-free: each is looked at alone
		if v == verdictMoving {
			return false
		}
	}
	return !slices.ContainsFunc(r.pending, func(i int) bool { return !unknown(r.resp.GetResults()[i]) })
}

// put hands what is left to a cell, and has it extend the leases unless it was asked to before.
func (r *report) put(ctx context.Context, to cell.ID) error {
	req := &fairleadv1.ReportRequest{Session: r.req.GetSession()}
	for _, i := range r.pending {
		req.Outcomes = append(req.Outcomes, r.req.GetOutcomes()[i])
	}
	extend := !r.extends[to]
	if extend {
		req.Extensions = r.req.GetExtensions()
	}
	resp, s, err := askCell[fairleadv1.ReportRequest, fairleadv1.ReportResponse](ctx, r.errand, to, req, forwarded())
	switch {
	case s.refused:
		r.asked[to] = verdictMoving
		return nil
	case err != nil:
		return err
	case len(resp.GetResults()) != len(r.pending):
		return fmt.Errorf("gateway: the cell has answered for %d of %d outcomes", len(resp.GetResults()), len(r.pending))
	}
	for _, t := range s.notice.tenants {
		if !slices.Contains(r.tenants, t) {
			r.tenants = append(r.tenants, t)
		}
	}
	r.asked[to], r.extends[to] = verdictUnknown, true
	var left []int
	for k, i := range r.pending {
		o := resp.GetResults()[k]
		v := verdictOf(o.GetRejection())
		r.asked[to] = max(r.asked[to], v)
		if v != verdictUnknown || unknown(o) {
			left = append(left, i)
		}
		if v == verdictUnknown {
			r.resp.Results[i] = o
		}
	}
	r.pending = left
	if extend {
		r.cancel(resp.GetCancels(), isSure(s))
	}
	return nil
}

// cancel takes in the leases that a cell has taken back. Of those that it was to extend, one that is not sure may have named some which it never
// had: those only count when nobody else knows them either.
func (r *report) cancel(refs []*fairleadv1.LeaseRef, sure bool) {
	back := map[leaseName]bool{}
	for _, ref := range refs {
		name := leaseName{ref.GetJobId(), ref.GetToken()}
		back[name] = true
		if (sure || !r.named[name]) && !r.revoked[name] {
			r.revoked[name] = true
			r.resp.Cancels = append(r.resp.Cancels, ref)
		}
	}
	if r.doubted == nil {
		r.doubted = back
		return
	}
	for name := range r.doubted { // order-free: each is looked at alone
		if !back[name] {
			delete(r.doubted, name)
		}
	}
}
