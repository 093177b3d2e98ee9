package plan

import (
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/placement"
)

// Sharding is what isolation is worked out for: every tenant has a hand of the workers.
type Sharding struct {
	Workers, Hand int
	Tenants       int // in all; 0 leaves out how many share
	Heavy         int // that fill their hands; 0 leaves out how likely a tenant is stuck
}

// Isolation is how far tenants are apart, as programs see it. Chances are from 0 to 1.
type Isolation struct {
	Workers int `json:"workers"`
	Hand    int `json:"hand"`
	// Shards is exact, and left out where it does not fit in 64 bits.
	Shards      *uint64  `json:"shards,omitempty"`
	ShardsAbout float64  `json:"shardsAbout"`
	Overlap     []Shared `json:"overlap"`
	Heavy       int      `json:"heavy,omitempty"`
	Stuck       *float64 `json:"stuck,omitempty"`
}

// Shared is how likely another tenant shares so many workers.
type Shared struct {
	Workers int     `json:"workers"`
	Chance  float64 `json:"chance"`
	OrMore  float64 `json:"orMore"`
	// Tenants is how many of the others share so many, on average.
	Tenants *float64 `json:"tenants,omitempty"`
}

// Isolation works it out. It returns a *[cell.FieldError] when a number is out of bounds.
func (s Sharding) Isolation() (Isolation, error) {
	n, exact, err := placement.Shards(s.Workers, s.Hand)
	if err != nil {
		return Isolation{}, err
	}
	about, err := placement.ShardsAbout(s.Workers, s.Hand)
	if err != nil {
		return Isolation{}, err
	}
	chances, err := placement.Overlap(s.Workers, s.Hand)
	if err != nil {
		return Isolation{}, err
	}
	i := Isolation{Workers: s.Workers, Hand: s.Hand, ShardsAbout: about, Overlap: make([]Shared, len(chances))}
	if exact {
		i.Shards = &n
	}
	more := 0.0
	for j := len(chances) - 1; j >= 0; j-- {
		more = min(more+chances[j], 1)
		i.Overlap[j] = Shared{Workers: j, Chance: chances[j], OrMore: more}
		if s.Tenants > 0 {
			others := float64(s.Tenants-1) * chances[j]
			i.Overlap[j].Tenants = &others
		}
	}
	if s.Heavy > 0 {
		stuck, err := placement.Stuck(s.Workers, s.Hand, s.Heavy)
		if err != nil {
			return Isolation{}, err
		}
		i.Heavy, i.Stuck = s.Heavy, &stuck
	}
	return i, nil
}

// Print writes it for people.
func (i Isolation) Print(p *output.Printer) error {
	shards := fmt.Sprintf("about %.4g", i.ShardsAbout)
	if i.Shards != nil {
		shards = strconv.FormatUint(*i.Shards, 10)
	}
	pairs := []output.Pair{
		{Key: "Workers", Value: strconv.Itoa(i.Workers)},
		{Key: "Hand", Value: fmt.Sprintf("%d of them for each tenant", i.Hand)},
		{Key: "Different hands", Value: shards},
	}
	if i.Stuck != nil {
		pairs = append(pairs, output.Pair{Key: "Stuck", Value: fmt.Sprintf("%s behind %d heavy tenants", oneIn(*i.Stuck), i.Heavy)})
	}
	if err := p.Describe(pairs); err != nil {
		return err
	}
	if err := p.Text(""); err != nil {
		return err
	}
	columns := []output.Column{{Name: "SHARED WITH ANOTHER"}, {Name: "CHANCE"}, {Name: "OR MORE"}, {Name: "TENANTS", Wide: i.Overlap[0].Tenants == nil}}
	var rows [][]string
	for _, s := range i.Overlap {
		tenants := output.None
		if s.Tenants != nil {
			tenants = fmt.Sprintf("%.4g", *s.Tenants)
		}
		rows = append(rows, []string{fmt.Sprintf("%d of %d", s.Workers, i.Hand), oneIn(s.Chance), oneIn(s.OrMore), tenants})
	}
	return p.Section(columns, rows)
}

// oneIn says a chance as people do when it is small.
func oneIn(chance float64) string {
	const small, countable = 0.01, 1e15
	switch odds := 1 / chance; {
	case chance == 0 || chance > small:
		return fmt.Sprintf("%.4g%%", chance*100)
	case odds < countable:
		return fmt.Sprintf("1 in %.0f", odds)
	default:
		return fmt.Sprintf("1 in %.4g", odds)
	}
}
