package plan

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/placement"
)

// Flights is jobs under way at a rate, by how long each takes, as programs see it.
type Flights struct {
	// Offered is how many start a second, if nothing holds them back.
	Offered Micro `json:"offered"`
	// Cap is how many may be under way; 0 is no bound.
	Cap   int64    `json:"cap,omitempty"`
	Items []Flight `json:"items"`
}

// Flight is jobs that each take a time.
type Flight struct {
	// Time is a duration as 5s or 50ms.
	Time string `json:"time"`
	// InFlight is how many are under way if nothing holds them back.
	InFlight Micro `json:"inFlight"`
	// Held is how many are under way under the cap, and Started how many start a second.
	Held    Micro `json:"held"`
	Started Micro `json:"started"`
}

// NewFlights works it out for each of the times. It returns a *[cell.FieldError] when a time is not above 0, or the cap is outside 0 to a million.
func NewFlights(offered Micro, times []time.Duration, running int64) (Flights, error) {
	const most = int64(microMax) / cell.Unit
	if running < 0 || running > most {
		return Flights{}, &cell.FieldError{Field: "cap", Problem: fmt.Sprintf("is %d, outside 0 to %d", running, most), Remedy: "0 is no bound"}
	}
	f := Flights{Offered: offered, Cap: running}
	for _, each := range times {
		if each <= 0 {
			return Flights{}, &cell.FieldError{Field: "time", Problem: fmt.Sprintf("is %v, not above 0", each), Remedy: "give how long a job takes"}
		}
		x := Flight{Time: each.String(), InFlight: Micro(placement.InFlight(int64(offered), each)), Started: offered}
		x.Held = x.InFlight
		if running > 0 {
			x.Held = min(x.Held, Micro(running*cell.Unit))
			x.Started = min(offered, Micro(placement.Ceiling(running, each)))
		}
		f.Items = append(f.Items, x)
	}
	return f, nil
}

// Print writes it for people.
func (f Flights) Print(p *output.Printer) error {
	columns := []output.Column{{Name: "TIME"}, {Name: "IN FLIGHT"}, {Name: fmt.Sprintf("UNDER A CAP OF %d", f.Cap), Wide: f.Cap == 0}, {Name: "STARTS/S"}}
	var rows [][]string
	for _, x := range f.Items {
		started := x.Started.Short()
		if x.Started < f.Offered {
			started += " of " + f.Offered.Short()
		}
		rows = append(rows, []string{x.Time, x.InFlight.Short(), x.Held.Short(), started})
	}
	return p.Section(columns, rows)
}
