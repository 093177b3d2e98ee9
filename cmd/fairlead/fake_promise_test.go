package main

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

func (f *fakeServer) findOrganizationLocked(id string) (*fairleadv1.Organization, error) {
	for _, o := range f.groups {
		if o.GetId() == id {
			return o, nil
		}
	}
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "there is no organization " + id})
}

// CreateOrganization refuses a reservation above 100 as if its tenants reserved more.
func (f *fakeServer) CreateOrganization(
	_ context.Context, req *fairleadv1.CreateOrganizationRequest,
) (*fairleadv1.CreateOrganizationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if req.GetReservationBatch() > 100 {
		err, _ := rejection.Error(&cell.FieldError{Field: "reservation_batch", Problem: "is too much", Remedy: "give less"})
		return nil, err
	}
	o := &fairleadv1.Organization{
		Id: req.GetId(), DisplayName: req.GetDisplayName(), Weight: 1, ReservationInteractive: req.GetReservationInteractive(),
		ReservationBatch: req.GetReservationBatch(), Limit: req.GetLimit(), CreateTime: timestamppb.New(fakeTime), UpdateTime: timestamppb.New(fakeTime),
	}
	if req.Weight != nil {
		o.Weight = req.GetWeight()
	}
	f.groups = append(f.groups, o)
	return &fairleadv1.CreateOrganizationResponse{Organization: proto.CloneOf(o)}, nil
}

func (f *fakeServer) GetOrganization(_ context.Context, req *fairleadv1.GetOrganizationRequest) (*fairleadv1.GetOrganizationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.findOrganizationLocked(req.GetId())
	return &fairleadv1.GetOrganizationResponse{Organization: proto.CloneOf(o)}, err
}

func (f *fakeServer) ListOrganizations(_ context.Context, req *fairleadv1.ListOrganizationsRequest) (*fairleadv1.ListOrganizationsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	page, next, err := fakePage(f.groups, req.GetPageSize(), req.GetPageToken())
	return &fairleadv1.ListOrganizationsResponse{Organizations: page, NextPageToken: next}, err
}

func (f *fakeServer) UpdateOrganization(
	_ context.Context, req *fairleadv1.UpdateOrganizationRequest,
) (*fairleadv1.UpdateOrganizationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.findOrganizationLocked(req.GetId())
	if err != nil {
		return nil, err
	}
	setFields(o, req)
	return &fairleadv1.UpdateOrganizationResponse{Organization: proto.CloneOf(o)}, nil
}

// ExplainTenant answers a second later each time, with 1.5 units more charged to batch.
func (f *fakeServer) ExplainTenant(_ context.Context, req *fairleadv1.ExplainTenantRequest) (*fairleadv1.ExplainTenantResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tenants {
		if t.GetId() != req.GetId() {
			continue
		}
		looks := f.calls["ExplainTenant"]
		x := &fairleadv1.ExplainTenantResponse{
			Tenant: proto.CloneOf(t), Cell: "cell-1", CostUnit: "cpu_ms", Time: timestamppb.New(fakeTime.Add(time.Duration(looks) * time.Second)), Running: 3,
			Lanes: []*fairleadv1.LaneStanding{
				{Class: fairleadv1.Class_CLASS_INTERACTIVE},
				{
					Class: fairleadv1.Class_CLASS_BATCH, Ready: 4, Leased: 3, Delayed: 1, OldestWait: durationpb.New(90 * time.Second),
					ChargedCost: int64(looks) * 1_500_000, Reason: fairleadv1.WaitReason_WAIT_REASON_LIMIT, Message: "its limit of 6 a second is reached",
					ReservationAhead: durationpb.New(-250 * time.Millisecond), RoundsBehind: 2, Deficit: -5_000,
				},
			},
		}
		if t.GetCredit() != nil {
			x.CreditLeft = t.GetCredit().GetMax() / 2
		}
		if o, err := f.findOrganizationLocked(t.GetOrganization()); err == nil {
			x.Organization = proto.CloneOf(o)
		}
		return x, nil
	}
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "there is no tenant " + req.GetId()})
}

// CaptureTrace answers with a record for each job.
func (f *fakeServer) CaptureTrace(_ context.Context, req *fairleadv1.CaptureTraceRequest) (*fairleadv1.CaptureTraceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*fairleadv1.TraceRecord
	for _, j := range f.jobs {
		r := &fairleadv1.TraceRecord{
			JobId: j.GetId(), Tenant: "acme", Class: j.GetClass(), Operation: j.GetOperation(), Arrival: j.GetCreateTime(), DeclaredCost: j.GetCost(),
			Priority: j.GetPriority(), State: j.GetState(), ConcurrencyKeys: j.GetConcurrencyKeys(), Preemptible: j.GetPreemptible(), Deadline: j.GetDeadline(),
		}
		if j.GetFinishTime() != nil {
			r.Start, r.Finish, r.Run, r.Cost = j.GetCreateTime(), j.GetFinishTime(), durationpb.New(5*time.Millisecond), 5_000
		}
		all = append(all, r)
	}
	size := req.GetPageSize()
	if size == 0 {
		size = 500
	}
	page, next, err := fakePage(all, size, req.GetPageToken())
	return &fairleadv1.CaptureTraceResponse{Records: page, NextPageToken: next}, err
}
