package leader

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// benchCell is a cell that commits at once.
type benchCell struct {
	b     *testing.B
	state *engine.State
	lead  *Leader
	now   cell.Instant
	index uint64
	buf   []byte
	ids   uint64
}

func newBenchCell(b *testing.B, tenants int) *benchCell {
	b.Helper()
	state, err := engine.New(engine.DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	c := &benchCell{b: b, state: state, now: epoch}
	if c.lead, err = New(testConfig(), state, c.now); err != nil {
		b.Fatal(err)
	}
	p := &Policy{}
	for i := range tenants {
		p.Policies = append(p.Policies, cell.TenantPolicy{Tenant: tenantName(i), Weight: 1000, Epoch: 1})
	}
	c.lead.Enqueue(&Call{Policy: p})
	c.drive()
	return c
}

func tenantName(i int) cell.TenantID { return cell.TenantID(fmt.Sprintf("tenant-%04d", i)) }

// drive seals, writes, reads and applies until nothing is left to do.
func (c *benchCell) drive() {
	for {
		c.now += 1000
		entry, _ := c.lead.Seal(c.now, uint64(c.now))
		if entry == nil {
			return
		}
		c.buf = engine.AppendEntry(c.buf[:0], entry)
		e, err := engine.DecodeEntry(c.buf)
		if err != nil {
			c.b.Fatal(err)
		}
		c.index++
		if _, err := c.lead.Applied(c.now, c.state.Apply(c.index, e)); err != nil {
			c.b.Fatal(err)
		}
	}
}

func (c *benchCell) item(tenant int, keyed bool) engine.SubmitFact {
	c.ids++
	f := engine.SubmitFact{
		Tenant: tenantName(tenant), Class: cell.ClassBatch,
		Spec: engine.Spec{
			Operation: "report.render", Payload: engine.Payload{Kind: engine.PayloadJSON, Data: []byte(`{"order":123456789}`)},
			Retry: engine.Retry{AttemptsMax: 5, DelayMin: time.Second, DelayMax: time.Minute}, Retention: time.Hour,
		},
	}
	binary.BigEndian.PutUint64(f.ID[8:], c.ids)
	if keyed {
		f.Spec.Key = f.ID.String()
	}
	return f
}

// BenchmarkSealApply is what a job costs in the leader, the log's codec and the state together, at 20 tenants.
func BenchmarkSealApply(b *testing.B) {
	perJob := func(b *testing.B, jobs int) {
		b.Helper()
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(jobs), "ns/job")
	}
	submit := func(b *testing.B, calls, items int) {
		b.Helper()
		b.ReportAllocs()
		c := newBenchCell(b, 20)
		for b.Loop() {
			b.StopTimer()
			if live, _ := c.state.Live(); live > 500_000 {
				c = newBenchCell(b, 20)
			}
			for range calls {
				s := &Submit{Items: make([]engine.SubmitFact, items)}
				for k := range s.Items {
					s.Items[k] = c.item(int(c.ids)%20, true)
				}
				c.lead.Enqueue(&Call{Submit: s})
			}
			b.StartTimer()
			c.drive()
		}
		perJob(b, b.N*calls*items)
	}
	b.Run("singles=64", func(b *testing.B) { submit(b, 64, 1) })
	b.Run("batch=500", func(b *testing.B) { submit(b, 1, 500) })
	b.Run("drain=32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			d := newDrain(b, 50_000)
			b.StartTimer()
			d.run()
		}
		perJob(b, b.N*50_000)
	})
}

// BenchmarkOpenPolls is what an entry costs that leases one job to one of so many waiting workers.
func BenchmarkOpenPolls(b *testing.B) {
	for _, polls := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("polls=%d", polls), func(b *testing.B) {
			b.ReportAllocs()
			c := newBenchCell(b, 20)
			poll := func(n int, sequence int64) *Poll {
				p := &Poll{
					Session: SessionID{Name: fmt.Sprint("worker-", n)}, Worker: "worker", Operations: []cell.Operation{"report.render"},
					Classes: [2]bool{true, true}, Slots: 1, Want: 1, Sequence: sequence, Until: c.now.Add(24 * time.Hour), LeaseDuration: time.Hour,
				}
				c.lead.Enqueue(&Call{Poll: p})
				return p
			}
			var open []*Poll
			for n := range polls {
				open = append(open, poll(n, 1))
			}
			c.drive()
			for b.Loop() {
				c.lead.Enqueue(&Call{Submit: &Submit{Items: []engine.SubmitFact{c.item(0, false)}}})
				c.drive()
				first := open[0]
				le := first.Leases[0]
				c.lead.Enqueue(&Call{Report: &Report{
					Session: first.Session, Outcomes: []Outcome{{JobID: le.JobID, Token: le.Token, Kind: engine.OutcomeSuccess, RunTime: 1000}},
				}})
				open = append(open[1:], first)
				again := *first
				again.Leases, again.Sequence = nil, first.Sequence+1
				open[len(open)-1] = &again
				c.lead.Enqueue(&Call{Poll: &again})
				c.drive()
			}
		})
	}
}

// drain is two workers with 32 slots each, that may hold as much again, and report 32 outcomes at a time.
type drain struct {
	*benchCell

	sessions [2]SessionID
	held     [2][]Leased
	sequence [2]int64
}

func newDrain(b *testing.B, jobs int) *drain {
	b.Helper()
	c := newBenchCell(b, 20)
	for range jobs / 500 {
		s := &Submit{}
		for range 500 {
			s.Items = append(s.Items, c.item(int(c.ids)%20, false))
		}
		c.lead.Enqueue(&Call{Submit: s})
	}
	c.drive()
	d := &drain{benchCell: c}
	for i := range d.sessions {
		d.sessions[i] = SessionID{Name: fmt.Sprintf("worker-%d", i)}
		p := &Poll{
			Session: d.sessions[i], Worker: "worker", Operations: []cell.Operation{"report.render"}, Classes: [2]bool{true, true},
			Slots: 32, Prefetch: 32, Want: 64, Sequence: 1, Until: c.now.Add(time.Minute), LeaseDuration: time.Minute,
		}
		c.lead.Enqueue(&Call{Poll: p})
		c.drive()
		d.held[i] = p.Leases
	}
	return d
}

func (d *drain) run() {
	done := 0
	for done < 50_000 {
		var reports [2]*Report
		for i := range d.sessions {
			d.sequence[i]++
			n := min(32, len(d.held[i]))
			r := &Report{Session: d.sessions[i], Sequence: d.sequence[i], Want: 32, Outcomes: make([]Outcome, n)}
			for k, le := range d.held[i][:n] {
				r.Outcomes[k] = Outcome{JobID: le.JobID, Token: le.Token, Kind: engine.OutcomeSuccess, RunTime: time.Millisecond}
			}
			d.held[i] = d.held[i][n:]
			done += n
			reports[i] = r
			d.lead.Enqueue(&Call{Report: r})
		}
		d.drive()
		for i, r := range reports {
			d.held[i] = append(d.held[i], r.Leases...)
		}
	}
	if n := d.state.Count(engine.Succeeded); n != 50_000 {
		d.b.Fatalf("%d jobs succeeded", n)
	}
}

// BenchmarkFence fences a lane, gives it away and opens it again, by how much waits in it, which must not matter.
func BenchmarkFence(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("jobs=", n), func(b *testing.B) {
			c := newBenchCell(b, 20)
			for left := n; left > 0; left -= 100 {
				s := &Submit{}
				for range 100 {
					s.Items = append(s.Items, c.item(0, false))
				}
				c.lead.Enqueue(&Call{Submit: s})
				c.drive()
			}
			f := engine.ModeFact{Lane: cell.Lane{Tenant: tenantName(0), Class: cell.ClassBatch}, Move: cell.Move{Migration: "m", Attempt: 1}, Epoch: 1}
			for b.Loop() {
				for _, f.Mode = range []cell.Mode{cell.ModeFenced, cell.ModeStandby, cell.ModeOpen} {
					f.Epoch++
					m := &Mode{Fact: f}
					c.lead.Enqueue(&Call{Mode: m})
					c.drive()
					if m.Result.Err != nil {
						b.Fatal(m.Result.Err)
					}
				}
			}
		})
	}
}
