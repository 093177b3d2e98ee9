package gateway

import (
	"bytes"
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// A list of a tenant whose lanes are apart is one home's pages and then the other's, of the interactive jobs and then of the batch ones. Its
// tokens say which comes next, and hold a cell's own token.

// pagePrefix begins a token of this package. Its bytes are the same in every encoding of a request.
const pagePrefix = "fl1."

// page is where a list goes on that began while the lanes were apart.
type page struct {
	class cell.Class // whose jobs are next
	then  cell.Class // whose jobs follow; 0 for none
	token string     // of a cell, for the next page
	start string     // of a cell, for the first page of what follows: where the list was when the lanes came apart
}

var letters = map[cell.Class]string{0: "-", cell.ClassInteractive: "i", cell.ClassBatch: "b"}

// text returns p as a token. Cells' tokens are base64 for URLs, which has no dots.
func (p page) text() string {
	return pagePrefix + letters[p.class] + letters[p.then] + "." + p.token + "." + p.start
}

// parsePage reads a token. It returns false when it is none of this package's, and the refusal when it is and is wrong.
func parsePage(text string) (page, bool, error) {
	rest, ok := strings.CutPrefix(text, pagePrefix)
	if !ok {
		return page{}, false, nil
	}
	wrong, _ := rejection.Error(&cell.FieldError{
		Field: "page_token", Problem: "is not one of this list's", Remedy: "repeat next_page_token as it was, or begin without",
	})
	classes, tokens, ok := strings.Cut(rest, ".")
	if !ok || len(classes) != len("ib") {
		return page{}, true, wrong
	}
	var p page
	found := 0
	for c, letter := range letters { // order-free: one at most is each letter
		if letter == classes[:1] {
			p.class = c
			found++
		}
		if letter == classes[1:] {
			p.then = c
			found++
		}
	}
	p.token, p.start, ok = strings.Cut(tokens, ".")
	if !ok || found != len(classes) || p.class == 0 || p.class == p.then || strings.Contains(p.start, ".") {
		return page{}, true, wrong
	}
	return p, true, nil
}

// mayContinue reports whether the ListJobs c may have a token of this package. It does not say no where it cannot see: in what is compressed, or
// is encoded in an address.
func mayContinue(c *call) bool {
	h := c.request.Header
	if h.Get("Content-Encoding") != "" || h.Get("Grpc-Encoding") != "" {
		return true
	}
	query := c.request.URL.RawQuery
	return bytes.Contains(c.body, []byte(pagePrefix)) || strings.Contains(query, pagePrefix) || strings.Contains(query, "base64=1") ||
		strings.Contains(query, "compression=")
}

// mergeList answers a ListJobs of a tenant whose lanes move or are apart.
func mergeList(ctx context.Context, req *fairleadv1.ListJobsRequest) (*fairleadv1.ListJobsResponse, error) {
	e, err := errandOf(ctx)
	if err != nil {
		return nil, err
	}
	p, ours, err := parsePage(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	if ours {
		return e.page(ctx, req, p)
	}
	if class := cell.Class(req.GetClass()); class.Valid() { // the numbers are the same
		return e.list(ctx, req, class)
	}
	together := true
	if e.first != nil {
		if _, err := firstOf[fairleadv1.ListJobsRequest, fairleadv1.ListJobsResponse](ctx, e); err == nil {
			together = false // it has listed what it has, and said that the rest is elsewhere
		} else if !ofLane(itemOf(err)) {
			return nil, relayed(err)
		}
	}
	for together && !e.lane().Apart() {
		to, err := e.target(ctx, cell.ClassInteractive)
		if err != nil {
			return nil, err
		}
		resp, s, err := askCell[fairleadv1.ListJobsRequest, fairleadv1.ListJobsResponse](ctx, e, to, req, nil)
		if s.notice.what == "" {
			return resp, err
		}
		together = s.refused
		e.refuse(to, 0)
	}
	return e.page(ctx, req, page{class: cell.ClassInteractive, then: cell.ClassBatch, token: req.GetPageToken(), start: req.GetPageToken()})
}

// page returns the page p of a list, with the token for the one after it.
func (e *errand) page(ctx context.Context, req *fairleadv1.ListJobsRequest, p page) (*fairleadv1.ListJobsResponse, error) {
	req = proto.CloneOf(req)
	req.Class, req.PageToken = fairleadv1.Class(p.class), p.token // the numbers are the same
	resp, err := e.list(ctx, req, p.class)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.GetNextPageToken() != "":
		p.token = resp.GetNextPageToken()
		resp.NextPageToken = p.text()
	case p.then != 0:
		resp.NextPageToken = page{class: p.then, token: p.start}.text()
	}
	return resp, nil
}

// list returns a page of the jobs of one class from its home.
func (e *errand) list(ctx context.Context, req *fairleadv1.ListJobsRequest, class cell.Class) (*fairleadv1.ListJobsResponse, error) {
	for {
		to, err := e.target(ctx, class)
		if err != nil {
			return nil, err
		}
		resp, s, err := askCell[fairleadv1.ListJobsRequest, fairleadv1.ListJobsResponse](ctx, e, to, req, nil)
		if s.notice.what == "" || err == nil && s.notice.class != class && s.notice.class != 0 || err != nil && !s.refused {
			return resp, err
		}
		e.refuse(to, 0)
	}
}
