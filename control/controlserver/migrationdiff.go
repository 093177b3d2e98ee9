package controlserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	// differencesMax is how many records an answer names; with the last of them it ends behind a whole bucket.
	differencesMax = 500
	// bucketsPerCall bounds the buckets whose records are read for one answer: a cell looks through the whole lane for each.
	bucketsPerCall = 16
	// digestPoll is between two looks at a digest that a cell is computing.
	digestPoll = 50 * time.Millisecond
)

// The problems that a difference can have.
const (
	missingAtSource = "missing at source"
	missingAtTarget = "missing at target"
	differs         = "differs"
)

// errNoCopy is returned when there is nothing to compare yet, or nothing any more.
var errNoCopy = errors.New("there is no copy to compare: it is there from seeding until the migration is completed, aborted or rolled back")

// DiffMigration implements MigrationService. Both lanes go on meanwhile: only when it says that both were compared at the same point is a difference one.
func (m migrationService) DiffMigration(
	ctx context.Context, req *fairleadv1.DiffMigrationRequest,
) (*fairleadv1.DiffMigrationResponse, error) {
	out, err := m.diff(ctx, req)
	if err != nil {
		return nil, m.fail(ctx, err)
	}
	return out, nil
}

// compared is one class of a migration, whose two lanes are compared.
type compared struct {
	record         migrate.Record
	class          cell.Class
	source, target fairleadv1connect.LaneServiceClient
}

func (s *Server) diff(ctx context.Context, req *fairleadv1.DiffMigrationRequest) (*fairleadv1.DiffMigrationResponse, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	of, err := s.migration(req.GetId(), req.GetTenant())
	if err != nil {
		return nil, err
	}
	c := compared{record: of.Record, class: cell.Class(req.GetClass())}
	if c.class == 0 {
		c.class = of.Order[0]
	}
	if !c.class.Valid() {
		return nil, &cell.FieldError{Field: "class", Problem: fmt.Sprintf("is %d", req.GetClass()), Remedy: "use interactive or batch"}
	}
	if of.State < migrate.Seeding || of.State > migrate.CutOver && of.State != migrate.Reversing {
		return nil, errNoCopy
	}
	c.source, c.target = s.cfg.Dialer.Lanes(of.Source, r.agentsOf(of.Source)), s.cfg.Dialer.Lanes(of.Target, r.agentsOf(of.Target))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.diff(ctx, int(req.GetAfterBucket()))
}

func (c *compared) diff(ctx context.Context, after int) (*fairleadv1.DiffMigrationResponse, error) {
	before, err := c.samePoint(ctx)
	if err != nil {
		return nil, err
	}
	source, err := c.digest(ctx, c.source, c.record.Source)
	if err != nil {
		return nil, err
	}
	target, err := c.digest(ctx, c.target, c.record.Target)
	if err != nil {
		return nil, err
	}
	out := &fairleadv1.DiffMigrationResponse{Equal: bytes.Equal(source.GetDigest(), target.GetDigest()), Buckets: int32(len(source.GetBuckets()))}
	if len(target.GetBuckets()) != len(source.GetBuckets()) {
		return nil, reached(c.record.Target, errors.New("it has another number of buckets: run the same release on both cells"))
	}
	read := 0
	for i := range source.GetBuckets() {
		if bytes.Equal(source.GetBuckets()[i], target.GetBuckets()[i]) {
			continue
		}
		out.BucketsDiffer++
		switch bucket := i + 1; {
		case bucket <= after || out.GetNextBucket() != 0:
		case read == bucketsPerCall || len(out.GetDifferences()) >= differencesMax:
			out.NextBucket = int32(bucket - 1)
		default:
			read++
			found, err := c.bucket(ctx, bucket)
			if err != nil {
				return nil, err
			}
			out.Differences = append(out.Differences, found...)
		}
	}
	now, err := c.samePoint(ctx)
	out.SamePoint = before != 0 && before == now
	return out, err
}

// samePoint returns the number of the last change that both lanes have, one more than it so that it is never 0; and 0 when one has more than the other.
func (c *compared) samePoint(ctx context.Context) (uint64, error) {
	owner, other := c.source, c.target
	at := []cell.ID{c.record.Source, c.record.Target}
	if c.record.Owner(c.class) == c.record.Target {
		owner, other = other, owner
		slices.Reverse(at)
	}
	var seen [2]*fairleadv1.LaneView
	for i, client := range []fairleadv1connect.LaneServiceClient{owner, other} {
		m, err := client.GetLanes(ctx, &fairleadv1.GetLanesRequest{Tenant: string(c.record.Tenant)})
		if err != nil {
			return 0, reached(at[i], err)
		}
		for _, v := range m.GetLanes() {
			if v.GetClass() == fairleadv1.Class(c.class) {
				seen[i] = v
			}
		}
	}
	if seen[1].GetCursor().GetSeeded() != migrate.SeededAll || seen[1].GetCursor().GetChange() != seen[0].GetChange() {
		return 0, nil
	}
	return seen[0].GetChange() + 1, nil
}

// digest returns a lane's digests once the cell has computed them.
func (c *compared) digest(ctx context.Context, client fairleadv1connect.LaneServiceClient, id cell.ID) (*fairleadv1.DigestLaneResponse, error) {
	for {
		m, err := client.DigestLane(ctx, c.request(0))
		if err != nil {
			return nil, reached(id, err)
		}
		if len(m.GetDigest()) > 0 {
			return m, nil
		}
		if err := pause(ctx, digestPoll); err != nil {
			return nil, reached(id, fmt.Errorf("its digest is computed to %d thousandths: %w", m.GetDone(), err))
		}
	}
}

func (c *compared) request(bucket int) *fairleadv1.DigestLaneRequest {
	move := c.record.Move()
	return &fairleadv1.DigestLaneRequest{
		Move: &fairleadv1.Move{Migration: string(move.Migration), Attempt: move.Attempt}, Tenant: string(c.record.Tenant),
		Class: fairleadv1.Class(c.class), Bucket: int32(bucket),
	}
}

// bucket returns what differs in one bucket.
func (c *compared) bucket(ctx context.Context, bucket int) ([]*fairleadv1.Difference, error) {
	source, err := c.source.DigestLane(ctx, c.request(bucket))
	if err != nil {
		return nil, reached(c.record.Source, err)
	}
	target, err := c.target.DigestLane(ctx, c.request(bucket))
	if err != nil {
		return nil, reached(c.record.Target, err)
	}
	return differences(source.GetRecords(), target.GetRecords()), nil
}

// differences returns how two lists of records differ, in the order of their kinds and ids.
func differences(source, target []*fairleadv1.LaneRecord) []*fairleadv1.Difference {
	type name struct{ kind, id string }
	there := make(map[name][]byte, len(target))
	for _, r := range target {
		there[name{r.GetKind(), r.GetId()}] = r.GetDigest()
	}
	var out []*fairleadv1.Difference
	add := func(n name, problem string) {
		out = append(out, &fairleadv1.Difference{Kind: n.kind, Id: n.id, Problem: problem})
	}
	for _, r := range source {
		n := name{r.GetKind(), r.GetId()}
		digest, ok := there[n]
		delete(there, n)
		switch {
		case !ok:
			add(n, missingAtTarget)
		case !bytes.Equal(digest, r.GetDigest()):
			add(n, differs)
		}
	}
	for n := range there { // order-free: sorted below
		add(n, missingAtSource)
	}
	slices.SortFunc(out, func(a, b *fairleadv1.Difference) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetId(), b.GetId()), cmp.Compare(a.GetProblem(), b.GetProblem()))
	})
	return out
}
