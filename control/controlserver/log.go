package controlserver

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/control/consensus"
)

// Log is control's replicated log.
type Log interface {
	// Propose returns what the machine's Apply returned for data. Its errors wrap [consensus.ErrNotApplied] or [consensus.ErrUnknown].
	Propose(ctx context.Context, data []byte) (any, error)
}

// GroupLog returns the log of a raft group whose state machine is the server's [Machine].
func GroupLog(g *consensus.Group) Log { return groupLog{g} }

type groupLog struct{ group *consensus.Group }

// Propose implements [Log].
func (l groupLog) Propose(ctx context.Context, data []byte) (any, error) {
	if err := ctx.Err(); err != nil { // it would be proposed all the same
		return nil, errors.Join(consensus.ErrNotApplied, err)
	}
	result, _, err := l.group.Propose(data).Wait(ctx)
	return result, err
}
