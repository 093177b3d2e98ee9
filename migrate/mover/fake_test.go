package mover

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeJob is a job as far as copying it matters.
type fakeJob struct {
	ID     string
	Seq    uint64
	Change uint64
	Value  string
	Gone   bool
}

// fakeLane is one lane of a fakeCell.
type fakeLane struct {
	mode    fairleadv1.LaneMode
	epoch   uint64
	move    *fairleadv1.Move
	fence   uint64
	tracked bool
	change  uint64
	cursor  *fairleadv1.LaneCursor
	jobs    map[string]fakeJob
	seq     uint64
	granted int64
	sum     [sha256.Size]byte // the jobs' digests, added bit by bit
}

type laneKey struct {
	tenant string
	class  fairleadv1.Class
}

// fakeCell is a cell as LaneService shows it: its lanes lie in a map instead of a log.
type fakeCell struct {
	fairleadv1connect.UnimplementedLaneServiceHandler

	name string

	mu     sync.Mutex
	index  uint64
	lanes  map[laneKey]*fakeLane
	p99    time.Duration
	hangs  bool
	slow   time.Duration                              // each call takes it
	refuse func(method string, m proto.Message) error // nil for nobody
	calls  map[string]int
	most   int                    // records in a chunk
	health *fairleadv1.LaneHealth // of every lane
}

var _ fairleadv1connect.LaneServiceClient = (*fakeCell)(nil)

func newFakeCell(name string) *fakeCell {
	return &fakeCell{name: name, lanes: map[laneKey]*fakeLane{}, calls: map[string]int{}, p99: time.Millisecond, index: 1, most: 16}
}

// open gives a tenant both lanes, with so many jobs each.
func (c *fakeCell) open(tenant string, epoch uint64, jobs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range []fairleadv1.Class{fairleadv1.Class_CLASS_INTERACTIVE, fairleadv1.Class_CLASS_BATCH} {
		l := &fakeLane{mode: fairleadv1.LaneMode_LANE_MODE_OPEN, jobs: map[string]fakeJob{}, cursor: &fairleadv1.LaneCursor{}}
		c.lanes[laneKey{tenant, class}] = l
		for i := range jobs {
			l.seq++
			id := fmt.Sprintf("%s-%v-%d", tenant, class, i)
			l.store(fakeJob{ID: id, Seq: l.seq, Value: "waits"})
		}
	}
	_ = epoch
}

// submit accepts a job, or says why not.
func (c *fakeCell) submit(tenant string, class fairleadv1.Class, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[laneKey{tenant, class}]
	if l == nil || l.mode != fairleadv1.LaneMode_LANE_MODE_OPEN {
		return errors.New("not here")
	}
	l.seq++
	l.put(fakeJob{ID: id, Seq: l.seq, Value: "waits"})
	return nil
}

// finish changes a job.
func (c *fakeCell) finish(tenant string, class fairleadv1.Class, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[laneKey{tenant, class}]
	if l == nil || l.mode != fairleadv1.LaneMode_LANE_MODE_OPEN {
		return errors.New("not here")
	}
	j, ok := l.jobs[id]
	if !ok {
		return errors.New("lost")
	}
	if j.Value == "done" {
		return errors.New("twice")
	}
	j.Value = "done"
	l.granted++
	l.put(j)
	return nil
}

func (l *fakeLane) put(j fakeJob) {
	if l.tracked {
		l.change++
		j.Change = l.change
	}
	l.store(j)
}

// jobs returns what a lane holds, by id.
func (c *fakeCell) held(tenant string, class fairleadv1.Class) (mode fairleadv1.LaneMode, jobs map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[laneKey{tenant, class}]
	if l == nil {
		return 0, nil
	}
	jobs = map[string]string{}
	for id, j := range l.jobs {
		jobs[id] = j.Value
	}
	return l.mode, jobs
}

func (c *fakeCell) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// enter counts a call, and hangs or refuses as told. It leaves with the lock held.
func (c *fakeCell) enter(ctx context.Context, method string, m proto.Message) error {
	c.mu.Lock()
	c.calls[method]++
	hangs, slow, refuse := c.hangs, c.slow, c.refuse
	c.mu.Unlock()
	if refuse != nil {
		if err := refuse(method, m); err != nil {
			c.mu.Lock()
			return err
		}
	}
	if hangs {
		<-ctx.Done()
		c.mu.Lock()
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	}
	if err := pause(ctx, slow); err != nil {
		c.mu.Lock()
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	c.mu.Lock()
	return nil
}

func (c *fakeCell) lane(tenant string, class fairleadv1.Class, m *fairleadv1.Move) (*fakeLane, error) {
	l := c.lanes[laneKey{tenant, class}]
	if l == nil {
		return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: "NOT_FOUND", Message: "no such lane"})
	}
	if l.move != nil && (l.move.GetMigration() == m.GetMigration() && m.GetAttempt() < l.move.GetAttempt()) {
		return nil, rejection.New(connect.CodeAborted, &fairleadv1.Rejection{Reason: "MOVE_STALE", Message: "of another attempt"})
	}
	return l, nil
}

// store and drop keep the digest as they go: a long move asks for it often.
func (l *fakeLane) store(j fakeJob) {
	l.drop(j.ID)
	l.jobs[j.ID] = j
	l.flip(j)
}

func (l *fakeLane) drop(id string) {
	if j, ok := l.jobs[id]; ok {
		l.flip(j)
		delete(l.jobs, id)
	}
}

// flip adds a job's digest, or takes it off.
func (l *fakeLane) flip(j fakeJob) {
	d := sha256.Sum256([]byte(fmt.Sprint(j.ID, " ", j.Seq, " ", j.Value)))
	for i := range d {
		l.sum[i] ^= d[i]
	}
}

func (l *fakeLane) digest() []byte { return slices.Clone(l.sum[:]) }

func (l *fakeLane) view(class fairleadv1.Class) *fairleadv1.LaneView {
	v := &fairleadv1.LaneView{
		Class: class, Mode: l.mode, Epoch: l.epoch, Move: l.move, FenceIndex: l.fence, Tracked: l.tracked, Change: l.change,
		Cursor: proto.CloneOf(l.cursor), Digest: l.digest(), Granted: l.granted, JobsReady: int64(len(l.jobs)), Bytes: int64(len(l.jobs) * 10),
	}
	return v
}

func (c *fakeCell) GetLanes(ctx context.Context, r *fairleadv1.GetLanesRequest) (*fairleadv1.GetLanesResponse, error) {
	err := c.enter(ctx, "GetLanes", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m := &fairleadv1.GetLanesResponse{
		Index: c.index, Time: timestamppb.Now(), CommitP50: durationpb.New(c.p99 / 2), CommitP99: durationpb.New(c.p99), Slots: 10, PolicyEpoch: 1,
	}
	for _, class := range []fairleadv1.Class{fairleadv1.Class_CLASS_INTERACTIVE, fairleadv1.Class_CLASS_BATCH} {
		if l := c.lanes[laneKey{r.GetTenant(), class}]; l != nil {
			v := l.view(class)
			v.Health = c.health
			m.Lanes = append(m.Lanes, v)
		} else {
			m.Lanes = append(m.Lanes, &fairleadv1.LaneView{Class: class})
		}
	}
	return m, nil
}

func (c *fakeCell) StageLane(ctx context.Context, r *fairleadv1.StageLaneRequest) (*fairleadv1.StageLaneResponse, error) {
	err := c.enter(ctx, "StageLane", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	key := laneKey{r.GetTenant().GetTenant(), r.GetClass()}
	if l := c.lanes[key]; l != nil {
		if proto.Equal(l.move, r.GetMove()) && l.mode == fairleadv1.LaneMode_LANE_MODE_STAGED {
			return &fairleadv1.StageLaneResponse{Index: c.index}, nil
		}
		if len(l.jobs) > 0 {
			return nil, rejection.New(connect.CodeFailedPrecondition, &fairleadv1.Rejection{Reason: "LANE_FILLED", Message: "wipe it first"})
		}
	}
	c.index++
	c.lanes[key] = &fakeLane{
		mode: fairleadv1.LaneMode_LANE_MODE_STAGED, epoch: r.GetEpoch(), move: r.GetMove(), jobs: map[string]fakeJob{}, cursor: &fairleadv1.LaneCursor{},
	}
	return &fairleadv1.StageLaneResponse{Index: c.index}, nil
}

func (c *fakeCell) TrackLane(ctx context.Context, r *fairleadv1.TrackLaneRequest) (*fairleadv1.TrackLaneResponse, error) {
	err := c.enter(ctx, "TrackLane", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := c.lane(r.GetTenant(), r.GetClass(), r.GetMove())
	if err != nil {
		return nil, err
	}
	c.index++
	l.tracked, l.move = !r.GetOff(), r.GetMove()
	return &fairleadv1.TrackLaneResponse{Index: c.index}, nil
}

func (c *fakeCell) ExportLane(ctx context.Context, r *fairleadv1.ExportLaneRequest) (*fairleadv1.ExportLaneResponse, error) {
	err := c.enter(ctx, "ExportLane", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := c.lane(r.GetTenant(), r.GetClass(), r.GetMove())
	if err != nil {
		return nil, err
	}
	next := proto.CloneOf(r.GetCursor())
	if next == nil {
		next = &fairleadv1.LaneCursor{}
	}
	var seeds, changes []fakeJob
	for _, j := range l.jobs {
		if j.Seq > next.GetSeeded() && !j.Gone {
			seeds = append(seeds, j)
		}
		if j.Change > next.GetChange() {
			changes = append(changes, j)
		}
	}
	slices.SortFunc(seeds, func(a, b fakeJob) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(changes, func(a, b fakeJob) int { return cmp.Compare(a.Change, b.Change) })
	m := &fairleadv1.ExportLaneResponse{Next: next, Change: l.change, Index: c.index}
	var out []fakeJob
	switch {
	case len(seeds) > c.most:
		out = seeds[:c.most]
		next.Seeded = out[len(out)-1].Seq
		m.SeedLeft, m.ChangesLeft = int64(len(seeds)-len(out)), int64(len(changes))
	case next.GetSeeded() != math.MaxUint64:
		out = seeds
		next.Seeded = math.MaxUint64
		m.ChangesLeft = int64(len(changes))
	default:
		out = changes[:min(len(changes), c.most)]
		m.ChangesLeft = int64(len(changes) - len(out))
		if next.Change = l.change; m.ChangesLeft > 0 {
			next.Change = out[len(out)-1].Change
		}
	}
	if m.GetSeedLeft() == 0 && m.GetChangesLeft() == 0 && next.GetSeeded() == math.MaxUint64 {
		next.Change = l.change
	}
	m.Count = int64(len(out))
	var records bytes.Buffer // one after the other, as they are: chunks are joined
	for _, j := range out {
		err = errors.Join(err, json.NewEncoder(&records).Encode(j))
	}
	m.Records = records.Bytes()
	if next.GetSeeded() == math.MaxUint64 && next.GetChange() == l.change {
		m.Digest = l.digest()
	}
	return m, err
}

func (c *fakeCell) ImportLane(ctx context.Context, r *fairleadv1.ImportLaneRequest) (*fairleadv1.ImportLaneResponse, error) {
	err := c.enter(ctx, "ImportLane", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := c.lane(r.GetTenant(), r.GetClass(), r.GetMove())
	if err != nil {
		return nil, err
	}
	if l.mode != fairleadv1.LaneMode_LANE_MODE_STAGED && l.mode != fairleadv1.LaneMode_LANE_MODE_STANDBY {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%v takes no import", l.mode))
	}
	begin := r.GetCursor()
	if begin == nil {
		begin = &fairleadv1.LaneCursor{}
	}
	if !proto.Equal(begin, l.cursor) {
		return &fairleadv1.ImportLaneResponse{Cursor: proto.CloneOf(l.cursor), Index: c.index}, nil
	}
	var in []fakeJob
	for d := json.NewDecoder(bytes.NewReader(r.GetRecords())); d.More(); {
		var j fakeJob
		if err := d.Decode(&j); err != nil {
			return nil, err
		}
		in = append(in, j)
	}
	c.index++
	for _, j := range in {
		j.Change = 0
		l.store(j)
		l.seq = max(l.seq, j.Seq)
	}
	l.cursor = proto.CloneOf(r.GetNext())
	return &fairleadv1.ImportLaneResponse{Cursor: proto.CloneOf(l.cursor), Index: c.index, Applied: true, Digest: l.digest()}, nil
}

func (c *fakeCell) SetLaneMode(ctx context.Context, r *fairleadv1.SetLaneModeRequest) (*fairleadv1.SetLaneModeResponse, error) {
	err := c.enter(ctx, "SetLaneMode", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := c.lane(r.GetTenant(), r.GetClass(), r.GetMove())
	if err != nil {
		return nil, err
	}
	if l.mode == r.GetMode() && l.epoch == r.GetEpoch() {
		return &fairleadv1.SetLaneModeResponse{Index: c.index, Lane: l.view(r.GetClass())}, nil
	}
	if r.GetEpoch() < l.epoch {
		return nil, rejection.New(connect.CodeAborted, &fairleadv1.Rejection{Reason: "MOVE_STALE", Message: "an older epoch"})
	}
	c.index++
	switch r.GetMode() {
	case fairleadv1.LaneMode_LANE_MODE_FENCED:
		l.fence = c.index
	case fairleadv1.LaneMode_LANE_MODE_OPEN:
		l.fence, l.granted = 0, 0
		if l.mode == fairleadv1.LaneMode_LANE_MODE_STAGED {
			l.tracked, l.change = true, l.cursor.GetChange()
		}
	case fairleadv1.LaneMode_LANE_MODE_STANDBY:
		l.cursor = &fairleadv1.LaneCursor{Seeded: math.MaxUint64, Change: l.change}
		l.tracked = false
	case fairleadv1.LaneMode_LANE_MODE_TOMBSTONE:
		l.tracked = false
	case fairleadv1.LaneMode_LANE_MODE_STAGED, fairleadv1.LaneMode_LANE_MODE_UNSPECIFIED:
	}
	l.mode, l.epoch, l.move = r.GetMode(), r.GetEpoch(), r.GetMove()
	return &fairleadv1.SetLaneModeResponse{Index: c.index, Lane: l.view(r.GetClass())}, nil
}

func (c *fakeCell) DigestLane(ctx context.Context, r *fairleadv1.DigestLaneRequest) (*fairleadv1.DigestLaneResponse, error) {
	err := c.enter(ctx, "DigestLane", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := c.lane(r.GetTenant(), r.GetClass(), r.GetMove())
	if err != nil {
		return nil, err
	}
	return &fairleadv1.DigestLaneResponse{Digest: l.digest(), Index: c.index, Change: l.change, Done: 1000}, nil
}

func (c *fakeCell) WipeLane(ctx context.Context, r *fairleadv1.WipeLaneRequest) (*fairleadv1.WipeLaneResponse, error) {
	err := c.enter(ctx, "WipeLane", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l := c.lanes[laneKey{r.GetTenant(), r.GetClass()}]
	if l == nil {
		return &fairleadv1.WipeLaneResponse{}, nil
	}
	if l.mode != fairleadv1.LaneMode_LANE_MODE_STAGED && l.mode != fairleadv1.LaneMode_LANE_MODE_TOMBSTONE {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%v is not wiped", l.mode))
	}
	c.index++
	n := 0
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		if n++; n > c.most {
			break
		}
		l.drop(id)
	}
	return &fairleadv1.WipeLaneResponse{Left: int64(len(l.jobs))}, nil
}

func (c *fakeCell) ProveLane(ctx context.Context, r *fairleadv1.ProveLaneRequest) (*fairleadv1.ProveLaneResponse, error) {
	err := c.enter(ctx, "ProveLane", r)
	defer c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.index++
	return &fairleadv1.ProveLaneResponse{Token: r.GetToken(), Index: c.index}, nil
}
