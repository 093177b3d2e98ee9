package leader

import (
	"github.com/fairlead/fairlead/cell/engine"
)

// Stage asks for an empty lane to be filled from another cell. What its tenant is promised has to fit beside the cell's other promises, as with a
// Policy.
type Stage struct {
	Fact   engine.StageFact
	Result engine.Result
}

// Track asks for a lane's changes to be numbered so that they can be exported, or not any more.
type Track struct {
	Fact   engine.TrackFact
	Result engine.Result
}

// Mode asks for a lane's next mode.
type Mode struct {
	Fact   engine.ModeFact
	Result engine.Result
}

// Import asks for what another cell exported to be applied to a lane.
type Import struct {
	Fact   engine.ImportFact
	Result engine.Result
}

// Wipe asks for records of a lane to be removed that is not the cell's.
type Wipe struct {
	Fact   engine.WipeFact
	Result engine.Result
}

// Prove asks for nothing but to be answered by the log.
type Prove struct {
	Fact   engine.ProveFact
	Result engine.Result
}
