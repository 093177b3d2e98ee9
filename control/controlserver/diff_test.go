package controlserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// heldRecords is what a fake cell holds of every lane, as DigestLane shows it: the record's id is its bucket, from 1 on.
type heldRecords struct {
	records map[int]string
	change  uint64
	filled  bool // by the other cell
}

const fakeBuckets = 40

func (f *fakeCell) GetLanes(ctx context.Context, _ *fairleadv1.GetLanesRequest) (*fairleadv1.GetLanesResponse, error) {
	err := f.enter(ctx, "lanes")
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &fairleadv1.GetLanesResponse{CommitP99: durationpb.New(time.Millisecond)}
	for _, class := range cell.Classes() {
		v := &fairleadv1.LaneView{Class: fairleadv1.Class(class), Change: f.held.change}
		if f.held.filled {
			v.Change, v.Cursor = 0, &fairleadv1.LaneCursor{Seeded: math.MaxUint64, Change: f.held.change}
		}
		m.Lanes = append(m.Lanes, v)
	}
	return m, err
}

func (f *fakeCell) DigestLane(ctx context.Context, r *fairleadv1.DigestLaneRequest) (*fairleadv1.DigestLaneResponse, error) {
	err := f.enter(ctx, "digest")
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &fairleadv1.DigestLaneResponse{}
	of := func(value string) []byte { sum := sha256.Sum256([]byte(value)); return sum[:] }
	if b := int(r.GetBucket()); b > 0 {
		if v, ok := f.held.records[b]; ok {
			m.Records = append(m.Records, &fairleadv1.LaneRecord{Kind: "job", Id: fmt.Sprint(b), Digest: of(v)})
		}
		return m, err
	}
	all := ""
	for i := range fakeBuckets {
		m.Buckets = append(m.Buckets, of(f.held.records[i+1]))
		all += f.held.records[i+1] + "\n"
	}
	m.Digest = of(all)
	return m, err
}

// A diff names what differs, bucket after bucket, and says whether both lanes were as of one change.
func TestDiffMigration(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.moves()
		east, west := c.dialer.cell("east"), c.dialer.cell("west")
		id := c.startMove("ash", "west").GetId()
		if _, err := c.Migrations().DiffMigration(c.ctx, &fairleadv1.DiffMigrationRequest{Id: id}); rejection.From(err).GetReason() != "MIGRATION_STATE" {
			t.Error(err)
		}
		c.drive(m, id, toRamping()...)
		records := map[int]string{}
		for i := range fakeBuckets {
			records[i+1] = fmt.Sprint("value ", i)
		}
		set := func(change uint64, edit func(map[int]string)) {
			other := maps.Clone(records)
			edit(other)
			east.set(func() { east.held = heldRecords{records: records, change: 7} })
			west.set(func() { west.held = heldRecords{records: other, change: change, filled: true} })
		}
		diff := func() (found []string, last *fairleadv1.DiffMigrationResponse) {
			t.Helper()
			for after := int32(0); ; {
				d, err := c.Migrations().DiffMigration(c.ctx, &fairleadv1.DiffMigrationRequest{Tenant: "ash", Class: fairleadv1.Class_CLASS_BATCH, AfterBucket: after})
				if err != nil {
					t.Fatal(err)
				}
				for _, one := range d.GetDifferences() {
					found = append(found, one.GetId()+" "+one.GetProblem())
				}
				if after = d.GetNextBucket(); after == 0 {
					return found, d
				}
			}
		}
		set(7, func(map[int]string) {})
		if found, d := diff(); len(found) != 0 || !d.GetEqual() || !d.GetSamePoint() || d.GetBuckets() != fakeBuckets {
			t.Errorf("%v, %v", found, d)
		}
		set(6, func(map[int]string) {})
		if _, d := diff(); d.GetSamePoint() {
			t.Errorf("%v", d)
		}
		set(7, func(r map[int]string) { delete(r, 3); r[5] = "another" })
		found, d := diff()
		if want := []string{"3 missing at target", "5 differs"}; !slices.Equal(found, want) || d.GetEqual() || d.GetBucketsDiffer() != 2 {
			t.Errorf("%v, %v", found, d)
		}
		set(7, func(r map[int]string) { clear(r) })
		if found, d := diff(); len(found) != fakeBuckets || d.GetBucketsDiffer() != fakeBuckets { // over several calls
			t.Errorf("%v, %v", found, d)
		}
	})
}

// A plan says what is in the way, and changes nothing.
func TestPlanMigration(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.moves()
		c.cfg.Seen = func(m *fairleadv1.GetLanesResponse) migrate.CellSeen {
			return migrate.CellSeen{Reachable: true, CommitP99: m.GetCommitP99().AsDuration()}
		}
		index := c.machine.View().Index()
		p, err := c.Migrations().PlanMigration(c.ctx, &fairleadv1.PlanMigrationRequest{Tenant: "ash"})
		if err != nil || p.GetSource() != "east" || p.GetTarget() != "west" || len(p.GetGates()) == 0 || c.machine.View().Index() != index {
			t.Errorf("%v, %v", p, err)
		}
		west := c.dialer.cell("west")
		west.set(func() { west.hang = true })
		began := time.Now()
		p, err = c.Migrations().PlanMigration(c.ctx, &fairleadv1.PlanMigrationRequest{Tenant: "ash", Target: "west"})
		if took := time.Since(began); err != nil || len(p.GetBlockers()) == 0 || took > 2*planLookMax {
			t.Errorf("%v, %v after %v", p, err, took)
		}
		if _, err := c.Migrations().PlanMigration(c.ctx, &fairleadv1.PlanMigrationRequest{Tenant: "elm"}); rejection.From(err).GetReason() != "NOT_FOUND" {
			t.Error(err)
		}
	})
}
