package tree

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// TestCheckNoticesWhatIsBroken breaks one thing at a time in a tree of everything.
func TestCheckNoticesWhatIsBroken(t *testing.T) {
	cases := map[string]struct {
		breaks func(t *Tree[int])
		says   string
	}{
		"nothing": {func(*Tree[int]) {}, ""},
		"a lane that left the rotation": {func(t *Tree[int]) {
			l := t.tenants["a"].Lane(cell.ClassBatch)
			t.ring(l).Deactivate(l.flow, 0)
		}, "in the rotation"},
		"a lane that left by its reservation only": {func(t *Tree[int]) {
			l := t.tenants["a"].Lane(cell.ClassBatch)
			t.reservedHeap(l, 0).remove(&l.extra.entries.get(0).reserved)
		}, "waits by its reservation"},
		"a lane that waits by credit that it lacks": {func(t *Tree[int]) { t.tenants["b"].meter.rich = false }, "has credit false"},
		"a limit that let go too late":              {func(t *Tree[int]) { t.tenants["b"].meter.limit = tag{at: int64(t.now) + 5} }, "limited false"},
		"a tenant limited by nothing":               {func(t *Tree[int]) { t.tenants["a"].limited = true }, "limited without a limit"},
		"a timer for nobody":                        {func(t *Tree[int]) { t.setTimer(&t.tenants["b"].meter.timer, 1<<62) }, "timer is set"},
		"a timer that nobody has":                   {func(t *Tree[int]) { t.timers.put(&seat[int]{lane: t.tenants["a"].Lane(cell.ClassBatch), key: 1}) }, "timers set"},
		"an organization that left the rotation": {func(t *Tree[int]) {
			n := &t.organizations["m"].branches[1].node
			t.ring(n).Deactivate(n.flow, 0)
		}, "organization m: batch in set 0: in the rotation"},
		"an organization that is not represented": {func(t *Tree[int]) {
			g := t.organizations["m"].branches[1].bough(0)
			t.sides[1].offers[0].reserved.remove(&g.leastReserved)
		}, "represented false"},
		"an organization that is by another tag": {func(t *Tree[int]) { t.organizations["m"].branches[1].bough(0).leastReserved.key++ }, "represented by"},
		"an organization's own reservation": {func(t *Tree[int]) {
			t.sides[1].offers[0].assured.remove(&t.organizations["m"].branches[1].extra.entries.get(0).reserved)
		}, "organization m: batch in set 0: waits by its reservation"},
		"an organization's limit":        {func(t *Tree[int]) { t.organizations["m"].limited = true }, "waits true"},
		"a sum of reservations":          {func(t *Tree[int]) { t.organizations["m"].reserved[1]-- }, "reserve"},
		"a sum that is promised away":    {func(t *Tree[int]) { t.organizations["m"].policy.Reservation[1] = 1 }, "below"},
		"a count of an organization's":   {func(t *Tree[int]) { t.organizations["m"].runnable++ }, "may run"},
		"a count inside an organization": {func(t *Tree[int]) { t.organizations["m"].branches[1].bough(0).runnable++ }, "counted"},
		"a count of those that wait":     {func(t *Tree[int]) { t.sides[1].offers[0].waiting-- }, "wait, counted"},
		"virtual time that runs away":    {func(t *Tree[int]) { t.sides[1].offers[0].v += 1e15 }, "more than two bursts"},
		"a heap out of order":            {func(t *Tree[int]) { t.sides[1].offers[0].reserved.items[0].key = 1 << 60 }, "keyed"},
		"a set that is closed":           {func(t *Tree[int]) { t.open = 0 }, "closed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tr := everything(t)
			c.breaks(tr)
			err := tr.Check()
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// everything is a tree with a tenant for each tier and account, all of them waiting.
func everything(tb testing.TB) *Tree[int] {
	tb.Helper()
	tr, err := New[int](DefaultConfig())
	if err != nil {
		tb.Fatal(err)
	}
	tr.Advance(1000e9)
	if err := tr.OpenSet(0); err != nil {
		tb.Fatal(err)
	}
	err = tr.SetOrganization(cell.OrganizationPolicy{Organization: "m", Weight: 1000, Reservation: [2]cell.Rate{0, 2e6}, Limit: 9e6})
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range []cell.TenantPolicy{
		{Tenant: "a", Organization: "m", Weight: 1000, Reservation: [2]cell.Rate{0, 1e6}},
		{Tenant: "b", Weight: 1000, Limit: 3e6, Credit: cell.Credit{Max: 5e6, Refill: 1e6, Extra: 1e6}},
		{Tenant: "c", Weight: 0, Reservation: [2]cell.Rate{0, 1e6}},
	} {
		n, err := tr.SetTenant(p, func(cell.Class) int { return 0 })
		if err != nil {
			tb.Fatal(err)
		}
		tr.Activate(n.Lane(cell.ClassBatch), 0)
	}
	for range 5 {
		tr.Advance(tr.now.Add(time.Second))
		p, ok := tr.Next(tr.now, cell.ClassBatch, 0)
		if !ok {
			tb.Fatal("nobody waits")
		}
		tr.Charge(p, 0, 1e6)
	}
	return tr
}

// TestHeldAtTheEnds: sums and products stop at the ends of their range, and a tag goes back exactly as far as it went.
func TestHeldAtTheEnds(t *testing.T) {
	const most, least = 1<<63 - 1, -1 << 63
	for _, c := range []struct{ got, want int64 }{
		{add(most, 1), most},
		{add(least, -1), least},
		{add(most, least), -1},
		{add(3, -5), -2},
		{add(least, least), least},
		{sub(most, -1), most},
		{sub(least, 1), least},
		{sub(0, least), most},
		{sub(-1, least), most},
		{sub(3, 5), -2},
		{sub(least, least), 0},
	} {
		if c.got != c.want {
			t.Errorf("%d, want %d", c.got, c.want)
		}
	}
	for _, c := range []struct{ a, b, c, quotient, rest int64 }{
		{7, 3, 4, 5, 1}, {most, most, most, most, 0}, {most, most, 1, most, 0}, {most, 2, 1, most, 0}, {0, most, 1, 0, 0},
	} {
		if q, r := muldiv(c.a, c.b, c.c); q != c.quotient || r != c.rest {
			t.Errorf("%d x %d / %d is %d and %d", c.a, c.b, c.c, q, r)
		}
	}
	for _, rate := range []int64{1, 3, 7e5, 1e6, 1e12} {
		g := tag{at: 5}
		costs := []int64{1, 2, 3, 999_999, 1e6, 1e9 + 7}
		for _, c := range costs {
			g.move(c, rate)
			if g.part < 0 || g.part >= rate {
				t.Fatalf("part %d of %d", g.part, rate)
			}
		}
		for _, c := range costs {
			g.move(-c, rate)
		}
		if g != (tag{at: 5}) {
			t.Errorf("rate %d: %+v there and back", rate, g)
		}
	}
	g := tag{}
	g.move(most, 1)
	if g.due() != most {
		t.Errorf("%+v", g)
	}
	g.move(least, 1)
	if g.at > 0 {
		t.Errorf("%+v", g)
	}
}
