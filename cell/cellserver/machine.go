package cellserver

import (
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

// Apply applies one entry of the log. It panics on bytes that this version does not understand: going on without them would be another
// history than that of the other replicas.
//
// An entry that is not the one in flight was another leader's, or came to be applied after all when it had been given up: then this server was
// deposed and has not been told yet. It ends every call, and answers none until it is told to lead again: what its leader knows is no longer so.
func (s *Server) Apply(index uint64, data []byte) any {
	entry, own, err := s.decode(data)
	if err != nil {
		panic(fmt.Sprintf("cellserver: entry %d: %v", index, err))
	}
	var done []*leader.Call
	s.mu.Lock()
	leased := s.wiped(entry)
	a := s.state.Apply(index, entry)
	s.strayed(leased)
	s.measure(entry, &a)
	switch {
	case s.lead == nil:
	case own && s.lead.InFlight():
		var refused error
		if done, refused = s.lead.Applied(s.now(), a); refused != nil {
			s.cfg.Logger.Error("the state refused what was sealed on it; the scheduler is made anew", "error", refused)
			s.stale = errRefused // and not the reason, which is that of one fact and no answer to any other call
		}
	default:
		done = s.depose()
	}
	for _, j := range a.Ended {
		s.waiters.end(j.Lane.ID, j.ID)
	}
	turned := s.turn(a.Lanes)
	s.mu.Unlock()
	finish(done)
	for _, l := range turned {
		s.cfg.Logger.Info("a lane has another mode", "lane", l.id.String(), "mode", l.mode.String(), "epoch", uint64(l.epoch),
			"migration", string(l.move.Migration), "attempt", l.move.Attempt, "index", index)
	}
	return nil
}

// turned is a lane as it is after its mode changed, for the log's readers.
type turned struct {
	id    cell.Lane
	mode  cell.Mode
	epoch cell.Epoch
	move  cell.Move
}

// turn does what is to be done beside the state when lanes have other modes: whoever waits for something of a lane that is not open any more is told at
// once. The caller holds mu.
func (s *Server) turn(lanes []cell.Lane) []turned {
	var all []turned
	for _, id := range lanes {
		l := s.state.Lane(id)
		all = append(all, turned{id: id, mode: l.Mode, epoch: l.Epoch, move: l.Move})
		s.charges.begin(l)
		if l.Mode != cell.ModeOpen {
			s.waiters.endLane(id)
		}
		if elsewhere(l) {
			s.own.end(id.Tenant)
		}
		s.survey.want(id)
	}
	return all
}

// Restore replaces the state by a snapshot. A server that leads is deposed by it as by another leader's entry.
func (s *Server) Restore(r io.Reader) error {
	state, err := engine.Restore(s.cfg.Leader.Limits, r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.state = state
	s.measureAll()
	var done []*leader.Call
	if s.lead != nil {
		done = s.depose()
	}
	s.mu.Unlock()
	finish(done)
	return nil
}

// CheckSnapshot returns why Restore would refuse a snapshot. It changes nothing.
func (s *Server) CheckSnapshot(r io.Reader) error {
	_, err := engine.Restore(s.cfg.Leader.Limits, r)
	return err
}

// Snapshot marks the state as it is, to be written while Apply goes on.
func (s *Server) Snapshot() (*Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	walk, err := s.state.BeginSnapshot()
	if err != nil {
		return nil, err
	}
	return &Snapshot{server: s, walk: walk}, nil
}

// Snapshot is a marked state. WriteTo or Release ends it.
type Snapshot struct {
	server *Server
	walk   *engine.Snapshot
}

// WriteTo writes the state as it was when it was marked, holding the cell's lock only piece by piece.
func (n *Snapshot) WriteTo(w io.Writer) (int64, error) {
	var written int64
	var buf []byte
	for {
		n.server.mu.Lock()
		piece, err := n.walk.Next(buf[:0])
		n.server.mu.Unlock()
		buf = piece
		m, writeErr := w.Write(piece)
		written += int64(m)
		switch {
		case writeErr != nil:
			return written, writeErr
		case errors.Is(err, io.EOF):
			return written, nil
		case err != nil:
			return written, err
		}
	}
}

// Release gives the snapshot up, written or not.
func (n *Snapshot) Release() {
	n.server.mu.Lock()
	defer n.server.mu.Unlock()
	n.walk.Close()
}
