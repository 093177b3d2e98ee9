package engine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// crowd is a state with many jobs, for what has to hold at size.
type crowd struct {
	t     testing.TB
	s     *engine.State
	index uint64
	now   cell.Instant
	size  uint64
}

func crowdID(i uint64) (id cell.JobID) {
	binary.BigEndian.PutUint64(id[8:], i)
	return id
}

// newCrowd has n jobs of four tenants: of ten, one has ended, one is leased, one is delayed for a second, one expires in a second.
func newCrowd(t testing.TB, n uint64) *crowd {
	t.Helper()
	s, err := engine.New(engine.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, s: s, now: start, size: n}
	for i := range uint64(4) {
		c.apply(&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: crowdTenant(i), Weight: 1000, Epoch: 1}})
	}
	for from := uint64(0); from < n; from += 1000 {
		var facts []engine.Fact
		for i := from; i < min(n, from+1000); i++ {
			facts = append(facts, c.submission(i))
			switch i % 10 {
			case 0:
				facts = append(facts, c.grant(i), c.outcome(i, 1, engine.OutcomeFatal))
			case 1:
				facts = append(facts, c.grant(i))
			}
		}
		c.apply(facts...)
	}
	return c
}

func crowdTenant(i uint64) cell.TenantID {
	return cell.TenantID([]string{"acme", "globex", "initech", "umbrella"}[i%4])
}

func (c *crowd) submission(i uint64) *engine.SubmitFact {
	f := &engine.SubmitFact{ID: crowdID(i), Tenant: crowdTenant(i), Class: cell.ClassBatch, Spec: engine.Spec{
		Operation: "op", Key: "key-" + crowdID(i).String(), Payload: engine.Payload{Kind: engine.PayloadJSON, Data: []byte(`{"invoice":4711}`)},
		Retry: engine.Retry{AttemptsMax: 3}, Retention: time.Minute,
	}}
	if i%3 == 0 {
		f.Spec.Keys = []cell.ConcurrencyKey{{Key: "customer-" + string(rune('a'+i%1000)), Max: int64(1 + i%5)}}
	}
	switch i % 10 {
	case 2:
		f.Spec.NotBefore = start + second
	case 3:
		f.Spec.Deadline = start + second
	}
	return f
}

func (c *crowd) grant(i uint64) *engine.GrantFact {
	return &engine.GrantFact{ID: crowdID(i), Lease: engine.Lease{Token: engine.Token{Nonce: i}, Session: "s", Worker: "w", Charged: 5}}
}

func (c *crowd) outcome(i uint64, attempt int32, k engine.OutcomeKind) *engine.OutcomeFact {
	return &engine.OutcomeFact{ID: crowdID(i), Token: engine.Token{Epoch: 1, Attempt: attempt, Nonce: i}, Kind: k, Charged: 7}
}

// apply applies facts as one entry and returns how many were taken.
func (c *crowd) apply(facts ...engine.Fact) int {
	c.index++
	taken := 0
	for _, r := range c.s.Apply(c.index, &engine.Entry{Time: c.now, Facts: facts}).Results {
		if r.Err == nil && !r.Duplicate {
			taken++
		}
	}
	return taken
}

// churn does one of everything to jobs all over the state.
func (c *crowd) churn(round uint64) int {
	i := round * 7919 * 10 // of the last digit 0, which were ended
	at := func(digit uint64) uint64 { return (i + digit) % c.size }
	c.now += second / 50
	return c.apply(
		c.submission(c.size+round),
		&engine.RetryFact{ID: crowdID(at(0)), Tenant: crowdTenant(at(0))},
		c.outcome(at(1), 1, engine.OutcomeSuccess),
		c.grant(at(4)),
		&engine.ChargeFact{ID: crowdID(at(4)), Token: engine.Token{Epoch: 1, Attempt: 1, Nonce: at(4)}, Charged: 50},
		c.outcome(at(4), 1, engine.OutcomeFailure),
		&engine.CancelFact{ID: crowdID(at(5)), Tenant: crowdTenant(at(5))},
		&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: crowdTenant(round), Weight: cell.Weight(round), Epoch: 1}},
		&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: cell.TenantID("new-" + crowdID(round).String()), Epoch: 1}},
		&engine.OrganizationFact{Policy: cell.OrganizationPolicy{Organization: cell.OrganizationID("new-" + crowdID(round%99).String())}},
	)
}

// TestSnapshotWhileApplying takes a snapshot of many jobs piece by piece, with entries of all kinds in between: it is the state at its mark, and
// no piece is larger than it may be.
func TestSnapshotWhileApplying(t *testing.T) {
	size := uint64(200_000)
	if testing.Short() {
		size /= 10
	}
	c := newCrowd(t, size)
	mark := c.s.Hash()
	n, err := c.s.BeginSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.s.BeginSnapshot(); err == nil {
		t.Fatal("a second snapshot began before the first was over")
	}
	var b []byte
	rounds, taken := uint64(0), 0
	for err == nil {
		before := len(b)
		b, err = n.Next(b)
		if piece := len(b) - before; piece > 128<<10+1024 { // and a record
			t.Fatalf("a piece has %d bytes", piece)
		}
		for range 20 {
			taken += c.churn(rounds)
			rounds++
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if uint64(taken) < 9*rounds || rounds < size/200 { // of 10 facts, nearly all must have been possible, or it proves little
		t.Errorf("%d facts were taken in %d entries", taken, rounds)
	}
	if more, err := n.Next(nil); len(more) > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after its end there are %d bytes, %v", len(more), err)
	}
	restored, err := engine.Restore(engine.DefaultLimits(), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if restored.Hash() != mark {
		t.Error("the snapshot is not the state at its mark")
	}
	if err := c.s.Check(); err != nil {
		t.Error(err)
	}
}

// TestSnapshotSetAside changes every job before the snapshot's first piece is taken: all is set aside, and still comes in bounded pieces.
func TestSnapshotSetAside(t *testing.T) {
	c := newCrowd(t, 20_000)
	mark := c.s.Hash()
	n, err := c.s.BeginSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.size {
		c.apply(&engine.CancelFact{ID: crowdID(i), Tenant: crowdTenant(i)})
	}
	c.now += cell.Instant(2 * time.Minute)
	for c.s.Count(engine.Cancelled) > 0 { // the retention of all of them ends
		c.apply()
	}
	var b []byte
	for err == nil {
		before := len(b)
		if b, err = n.Next(b); len(b)-before > 128<<10+1024 {
			t.Fatalf("a piece has %d bytes", len(b)-before)
		}
	}
	restored, err := engine.Restore(engine.DefaultLimits(), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if restored.Hash() != mark {
		t.Error("the snapshot is not the state at its mark")
	}
}

func BenchmarkApplySubmit(b *testing.B) {
	b.ReportAllocs()
	const batch = 50
	var c *crowd
	var encoded []byte
	for i := uint64(0); b.Loop(); i++ { // an iteration is one job
		if i%500_000 == 0 {
			b.StopTimer()
			c = newCrowd(b, 0)
			b.StartTimer()
		}
		if i%batch != 0 {
			continue
		}
		e := engine.Entry{Time: c.now}
		for k := i; k < i+batch; k++ {
			e.Facts = append(e.Facts, c.submission(4+10*k))
		}
		encoded = engine.AppendEntry(encoded[:0], &e)
		c.decoded(encoded, batch)
	}
}

// decoded applies an entry as a replica does, from its bytes.
func (c *crowd) decoded(encoded []byte, want int) {
	e, err := engine.DecodeEntry(encoded)
	if err != nil {
		c.t.Fatal(err)
	}
	c.index++
	taken := 0
	for _, r := range c.s.Apply(c.index, e).Results {
		if r.Err == nil {
			taken++
		}
	}
	if taken != want {
		c.t.Fatalf("%d of %d facts were taken", taken, want)
	}
}

func BenchmarkApplyLifecycle(b *testing.B) {
	b.ReportAllocs()
	const batch = 50
	c := newCrowd(b, 0)
	var encoded []byte
	for i := uint64(0); b.Loop(); i++ { // an iteration is one job, from its submission to the end of its retention and its key's window
		if i%batch != 0 {
			continue
		}
		c.now += cell.Instant(10 * time.Second)
		e := engine.Entry{Time: c.now}
		for j := i; j < i+batch; j++ {
			k := 4 + 10*j
			e.Facts = append(e.Facts, c.submission(k), c.grant(k), c.outcome(k, 1, engine.OutcomeSuccess))
		}
		encoded = engine.AppendEntry(encoded[:0], &e)
		c.decoded(encoded, 3*batch)
	}
}

func BenchmarkDecodeEntry(b *testing.B) {
	b.ReportAllocs()
	const batch = 50
	c := newCrowd(b, 0)
	e := engine.Entry{Time: c.now}
	for k := range uint64(batch) {
		e.Facts = append(e.Facts, c.submission(k))
	}
	encoded := engine.AppendEntry(nil, &e)
	b.SetBytes(int64(len(encoded)))
	for b.Loop() {
		if _, err := engine.DecodeEntry(encoded); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/job")
}

func BenchmarkSnapshot100k(b *testing.B) {
	b.ReportAllocs()
	c := newCrowd(b, 100_000)
	var piece []byte
	pieces := 0
	for b.Loop() {
		n, err := c.s.BeginSnapshot()
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			piece, err = n.Next(piece[:0])
			pieces++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(pieces), "µs/piece")
}

func BenchmarkRestore100k(b *testing.B) {
	b.ReportAllocs()
	snapshot := snapshotOf(b, newCrowd(b, 100_000).s)
	b.SetBytes(int64(len(snapshot)))
	for b.Loop() {
		if _, err := engine.Restore(engine.DefaultLimits(), bytes.NewReader(snapshot)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/job")
}

// TestTrimIsBounded lowers the bound of a lane that keeps many ended jobs: no entry forgets them all at once.
func TestTrimIsBounded(t *testing.T) {
	c := newCrowd(t, 100_000) // of which 5,000 have ended in each of two lanes
	l := engine.DefaultLimits()
	l.FinishedJobsMax = 10
	c.apply(&engine.LimitsFact{Limits: l})
	lane := c.s.Lane(cell.Lane{Tenant: crowdTenant(4), Class: cell.ClassBatch})
	for i, want := range []int64{5000 + 1 - 4096, 10, 10} {
		id := uint64(4 + 20*i) // of the first tenant, ready
		c.apply(&engine.CancelFact{ID: crowdID(id), Tenant: crowdTenant(id)})
		var kept int64
		for st := engine.Succeeded; st <= engine.Quarantined; st++ {
			kept += lane.Count(st)
		}
		if kept != want {
			t.Errorf("after end %d the lane keeps %d jobs, want %d", i, kept, want)
		}
	}
	if err := c.s.Check(); err != nil {
		t.Error(err)
	}
}
