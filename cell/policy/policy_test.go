package policy

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/sched"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected faults in testdata")

// The example in the documentation is a policy, and says what its comments say.
func TestExample(t *testing.T) {
	const path = "../../docs/policy.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("policy.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Sched.Quantum, want.Sched.CostDefault, want.Sched.OverrunMin = 10_000_000, 50_000_000, 0
	want.Sched.Bulkheads[0].PreemptAfter, want.Sched.Bulkheads[0].Burst = 2*time.Second, time.Second
	want.Sched.Bulkheads[0].Capacity, want.Sched.Bulkheads[1].Capacity = 3_000_000_000, 9_000_000_000
	want.Costing = cell.Costing{
		ByUnit: true, Unit: cell.ResourceCPU, Whole: 12_000_000_000,
		Capacity: cell.Resources{cell.ResourceCPU: 12_000_000_000, cell.ResourceMemory: 68_000_000_000_000},
	}
	want.Organizations = []cell.OrganizationPolicy{
		{Organization: "acme", Weight: 2000, Reservation: [2]cell.Rate{0, 7_200_000_000}, Limit: 10_000_000_000, Epoch: 1},
	}
	want.Tenants = []cell.TenantPolicy{
		{
			Tenant: "alder", Organization: "acme", Weight: 3000, Reservation: [2]cell.Rate{0, 3_600_000_000}, Limit: 8_000_000_000,
			Credit: cell.Credit{Max: 180_000_000_000, Refill: 100_000_000, Extra: 600_000_000}, RunningMax: 40,
			Starts: cell.StartRate{Jobs: 2, Per: 2 * time.Minute}, BacklogJobsMax: 100_000, BacklogBytesMax: 1 << 30, Epoch: 1,
		},
		{Tenant: "birch", Organization: "acme", Weight: 2000, Reservation: [2]cell.Rate{500_000_000, 3_000_000_000}, Epoch: 1},
		{Tenant: "cedar", Weight: 1000, Reservation: [2]cell.Rate{0, 1_800_000_000}, Epoch: 1},
	}
	want.Default.RunningMax = 20
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if _, err := sched.New(got.Sched, 0); err != nil {
		t.Error(err)
	}
	if p := got.TenantPolicy("cedar"); p != want.Tenants[2] {
		t.Errorf("%+v", p)
	}
	if p := got.TenantPolicy("fir"); p.Tenant != "fir" || p.RunningMax != 20 || p.Weight != 1000 {
		t.Errorf("%+v", p)
	}
}

// What a text leaves out has its default.
func TestDefaults(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a comment": "# nothing\n", "a document": "---\n", "empty sections": "cost:\nclasses:\n  batch:\norganizations:\ntenants: []\ndefault: {}\n",
		"slot time": "cost: {unit: slot_seconds}",
	} {
		got, err := Parse("p", []byte(text))
		if err != nil || !reflect.DeepEqual(got, Default()) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Everything that is wrong with a text is told at once, in its order. What testdata expects was read before it was believed.
func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse(filepath.Base(path), text)
			faults, ok := errors.AsType[*FaultsError](err)
			if !ok || !reflect.DeepEqual(got, File{}) {
				t.Fatalf("read as %+v, %v", got, err)
			}
			said := faults.Error() + "\n"
			golden := strings.TrimSuffix(path, ".yaml") + ".txt"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(said), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || said != string(want) {
				t.Errorf("said\n%s\nwant\n%s%v", said, want, err)
			}
			for _, e := range faults.Unwrap() {
				if f, ok := errors.AsType[*Fault](e); !ok || f.Problem == "" {
					t.Errorf("%v has no problem", e)
				}
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	text := strings.Repeat("#", BytesMax) + "\n"
	if _, err := Parse("p", []byte(text)); err == nil || !strings.Contains(err.Error(), "of at most 16777216") {
		t.Error(err)
	}
}

func TestParseUnits(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1_000_000, "0.6": 600_000, ".5": 500_000, "3_600.25": 3_600_250_000, "0.000001": 1, "1.2500000": 1_250_000, "-2.5": -2_500_000, "007": 7_000_000,
	} {
		if got, err := parseUnits(s); err != nil || got != want {
			t.Errorf("%s is %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-", ".", "1.", "one", "1e3", "0x10", "0.0000001", "99999999999999", "1.2.3", "+1", "∞", ".inf", "1 2", "--1"} {
		if got, err := parseUnits(s); err == nil {
			t.Errorf("%q is read as %d", s, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-1e15, 1e15).Draw(t, "n")
		if got, err := parseUnits(cell.FormatUnits(n)); err != nil || got != n {
			t.Fatalf("%d comes back as %d, %v", n, got, err)
		}
	})
}

// Whatever it is given, Parse returns, and what it takes is valid as a whole: the scheduler's configuration, and each promise beside the
// others.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "../../docs/policy.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Parse("p", text)
		if err != nil {
			if _, ok := errors.AsType[*FaultsError](err); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		s, err := sched.New(got.Sched, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range got.Organizations {
			o.Reservation, o.Limit = [2]cell.Rate{}, 0 // theirs come once their tenants are known, or the capacity may be passed on the way
			if err := s.SetOrganization(o); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range got.Tenants {
			if err := s.SetTenant(p); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range got.Organizations {
			if err := s.SetOrganization(o); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A tenant's hand is a list of groups, as is the default's, which a tenant that is named does not have.
func TestHands(t *testing.T) {
	got, err := Parse("p", []byte(`
tenants:
  - {id: alder, groups: [4, 1, 64]}
  - {id: birch, groups: []}
  - {id: cedar}
default: {groups: [7]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[cell.TenantID]uint64{"alder": 1<<63 | 1<<3 | 1, "birch": 0, "cedar": 0, "fir": 1 << 6} {
		if p := got.TenantPolicy(tenant); p.Groups != want {
			t.Errorf("%s holds %s, not %s", tenant, cell.FormatWorkerGroups(p.Groups), cell.FormatWorkerGroups(want))
		}
	}
}
