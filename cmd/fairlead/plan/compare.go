package plan

import (
	"github.com/fairlead/fairlead/cell/allocate"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// Comparison is what simpler rules would do with the same demands.
type Comparison struct {
	// Operations is how many a second everybody is given under equal requests.
	Operations *Micro `json:"operations,omitempty"`
	// EqualRequests is what those would ask of the capacity in all, which may be more than there is.
	EqualRequests *Micro    `json:"equalRequests,omitempty"`
	Tenants       []Compare `json:"tenants"`
}

// Compare is what simpler rules give one tenant.
type Compare struct {
	Name string `json:"name"`
	// HardSplit is an equal part of the capacity that nobody else can use.
	HardSplit Micro `json:"hardSplit"`
	// MaxMin is an equal part of the capacity, and of what others leave.
	MaxMin Micro `json:"maxMin"`
	// EqualRequests is what as many operations as everybody else's would cost; nil if the cost of one is not known.
	EqualRequests *Micro `json:"equalRequests,omitempty"`
}

// Compare adds to the plan what simpler rules would give. Operations is how many a second everybody has under equal requests; 0 is as many as
// the capacity holds. It returns the errors of Allocate.
func (in Input) Compare(a *Allocation, operations Micro) error {
	hard, err := allocate.HardSplit(in.Capacity, in.claims())
	if err != nil {
		return err
	}
	maxmin, err := allocate.MaxMin(in.Capacity, in.claims())
	if err != nil {
		return err
	}
	var costs, asked Micro
	for _, t := range in.Tenants {
		costs += t.Cost
	}
	if operations == 0 && costs > 0 {
		operations = Micro(in.Capacity).per(costs)
	}
	c := &Comparison{}
	for i, t := range in.Tenants {
		x := Compare{Name: t.Name, HardSplit: Micro(hard[i]), MaxMin: Micro(maxmin[i])}
		if t.Cost > 0 {
			ask := operations.times(t.Cost)
			x.EqualRequests = &ask
			asked += ask
		}
		c.Tenants = append(c.Tenants, x)
	}
	if costs > 0 {
		c.Operations, c.EqualRequests = &operations, &asked
	}
	a.Comparison = c
	return nil
}

// print writes the comparison beside what was planned.
func (c *Comparison) print(p *output.Printer, a Allocation) error {
	if c == nil {
		return nil
	}
	if err := p.Text(""); err != nil {
		return err
	}
	name := "EQUAL REQUESTS"
	if c.Operations != nil {
		name = c.Operations.Short() + " OPS/S EACH"
	}
	var rows [][]string
	var hard, maxmin Micro
	for i, t := range c.Tenants {
		rows = append(rows, []string{
			output.Safe(t.Name), a.Tenants[i].Final.Short(), t.HardSplit.Short(), t.MaxMin.Short(), orNone(t.EqualRequests, output.None),
		})
		hard += t.HardSplit
		maxmin += t.MaxMin
	}
	asked := orNone(c.EqualRequests, output.None)
	if c.EqualRequests != nil && *c.EqualRequests > a.Capacity {
		asked += " of " + a.Capacity.Short()
	}
	rows = append(rows, []string{"(total)", a.Given.Short(), hard.Short(), maxmin.Short(), asked})
	return p.Section([]output.Column{{Name: "TENANT"}, {Name: "PLANNED"}, {Name: "HARD SPLIT"}, {Name: "MAX-MIN"}, {Name: name}}, rows)
}
