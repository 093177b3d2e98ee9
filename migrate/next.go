package migrate

import "github.com/fairlead/fairlead/cell"

// Next returns what is to be done now. It is a function of what the record and the cells are, not of what was done before: after a crash, a lost or a repeated
// call the same is asked again. It never returns nothing: a Wait says what for.
func Next(r Record, o Observed, now cell.Instant, cfg Config) []Effect {
	return []Effect{Wait{For: "nothing"}}
}

// Gates returns what is proved or not of what the present state's next step needs: control's, then those of the cells.
func Gates(r Record, o Observed, cfg Config) []Gate { return nil }
