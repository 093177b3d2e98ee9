package controlserver

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const listAudit = "audit"

// auditService is the server as AuditService: who changed what.
type auditService struct{ *Server }

// Audit returns what answers AuditService.
func (s *Server) Audit() fairleadv1connect.AuditServiceHandler { return auditService{s} }

// ListAudit implements AuditService.
func (a auditService) ListAudit(ctx context.Context, req *fairleadv1.ListAuditRequest) (*fairleadv1.ListAuditResponse, error) {
	m, err := a.list(ctx, req)
	if err != nil {
		return nil, a.fail(ctx, err)
	}
	return m, nil
}

func (a auditService) list(ctx context.Context, req *fairleadv1.ListAuditRequest) (*fairleadv1.ListAuditResponse, error) {
	if _, err := a.reigning(); err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	last, err := pageAfter(listAudit, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	before := uint64(0)
	if last != "" {
		if before, err = strconv.ParseUint(last, 10, 64); err != nil {
			return nil, &cell.FieldError{
				Field: "page_token", Problem: fmt.Sprintf("names the record %.40q", last), Remedy: "give next_page_token of the page before",
			}
		}
	}
	view := a.machine.View()
	bounds := view.AuditBounds()
	m := &fairleadv1.ListAuditResponse{FirstSequence: bounds.First, LastSequence: bounds.Last, HashBeforeFirst: bounds.Before[:]}
	m.Records, m.NextPageToken = page(listAudit, size, view.Audit(before), func(r state.AuditRecord) string {
		return strconv.FormatUint(r.Sequence, 10)
	}, auditMessage)
	return m, a.verify(ctx)
}

func auditMessage(r state.AuditRecord) *fairleadv1.AuditRecord {
	return &fairleadv1.AuditRecord{
		Sequence: r.Sequence, Time: timeMessage(r.Time), Actor: r.Actor, Action: r.Action, Subject: r.Subject, Detail: r.Detail, Hash: r.Hash[:],
		Index: r.Index,
	}
}
