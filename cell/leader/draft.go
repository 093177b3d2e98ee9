package leader

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// draft is the entry being sealed, and then in flight, with what belongs to it.
type draft struct {
	now   cell.Instant
	seed  uint64
	entry *engine.Entry
	bytes int
	refs  []ref // one for each fact
	// answer has the calls to be answered when the entry is applied, beside those that their facts finish.
	answer []*Call
	done   []*Call // calls that are done

	// What the entry holds on top of the state.
	jobs          map[cell.JobID]struct{}          // jobs that a fact of a call is about: a second one waits for the next entry
	keys          map[laneKey]struct{}             // keys that it takes
	tenants       map[cell.TenantID]struct{}       // whose policy it changes
	organizations map[cell.OrganizationID]struct{} // the same
	parents       map[cell.OrganizationID]struct{} // of lanes that it charges
	books         []*book                          // lanes that it adds to or charges
	cell          engine.Extra
	accepted      uint64 // submissions

	judged  bool // whether leases were lost together is known
	grants  int
	dry     [sched.OffersMax]uint8 // classes of which there is nothing more for an offer, a bit each
	open    uint64                 // offers for which something may be taken, and somebody asked when the grants began: a bit each
	asking  []*Call                // reports that want jobs
	turn    []*Call                // those whose turn comes again
	reports []*Call                // reports whose outcomes are all sealed
}

// laneKey is an idempotency key in its lane.
type laneKey struct {
	book *book
	key  string
}

// ref is where a fact's result goes.
type ref struct {
	call  *Call
	item  int
	lease *lease // of a grant
}

func (d *draft) reset(now, at cell.Instant, seed uint64) {
	facts := 0
	if d.entry != nil {
		facts = len(d.entry.Facts) // the next entry is likely to be of the size of the last
	}
	for _, b := range d.books {
		b.jobs, b.bytes, b.charged, b.listed = 0, 0, false, false
	}
	*d = draft{
		now: now, seed: seed, entry: &engine.Entry{Time: at, Facts: make([]engine.Fact, 0, facts)},
		refs: emptied(d.refs), jobs: clearOrMake(d.jobs), keys: clearOrMake(d.keys), tenants: clearOrMake(d.tenants),
		organizations: clearOrMake(d.organizations), parents: clearOrMake(d.parents), books: emptied(d.books),
		asking: emptied(d.asking), turn: emptied(d.turn), reports: emptied(d.reports), answer: emptied(d.answer),
	}
}

// emptied returns s without its elements, which it forgets: they may be large.
func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

func clearOrMake[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	clear(m)
	return m
}

// add puts a fact of about so many bytes into the entry.
func (d *draft) add(f engine.Fact, bytes int, r ref) {
	d.entry.Facts = append(d.entry.Facts, f)
	d.refs = append(d.refs, r)
	d.bytes += bytes
	if r.call != nil {
		r.call.pending++
	}
}

// claim reports whether the job is free for a call's fact in this entry, and takes it.
func (d *draft) claim(id cell.JobID) bool {
	n := len(d.jobs)
	d.jobs[id] = struct{}{}
	return len(d.jobs) > n
}

func (d *draft) busy(id cell.JobID) bool {
	_, taken := d.jobs[id]
	return taken
}

// list notes that the entry changes the lane.
func (d *draft) list(b *book) {
	if !b.listed {
		b.listed = true
		d.books = append(d.books, b)
	}
}

// grow notes that the entry adds a live job of so many bytes to the lane.
func (d *draft) grow(b *book, bytes int64) {
	d.list(b)
	b.jobs++
	b.bytes += bytes
	d.cell.CellJobs++
	d.cell.CellBytes += bytes
}

// extra is what the entry holds on top of the state, as the lane sees it.
func (d *draft) extra(b *book) engine.Extra {
	x := d.cell
	x.LaneJobs, x.LaneBytes = b.jobs, b.bytes
	return x
}

// random returns the next number made from the seed (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
func (d *draft) random() uint64 {
	d.seed += 0x9e3779b97f4a7c15
	z := d.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
