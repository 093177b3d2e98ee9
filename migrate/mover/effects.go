package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

const (
	// roundMax is how long a lane is copied until it is asked again what is to be done. A copy that goes slowly fills a chunk in it: each is an entry that the
	// target syncs, which disturbs whoever shares its disk.
	roundMax = time.Second
	// idleCopy is between two looks for changes when the last has found none, and idleStream the same once the tenant is cut over, which may last for a day.
	idleCopy   = 100 * time.Millisecond
	idleStream = time.Second
	// digestDelay is between two questions for a digest that is not computed yet, or that is of another change than the other cell's.
	digestDelay = 50 * time.Millisecond
	// wipeDelay is between the parts of a wipe: the cell has others to serve.
	wipeDelay = 20 * time.Millisecond
	// reasonCursorLost is what a cell says that does not know any more what has changed after a cursor.
	reasonCursorLost = "CURSOR_LOST"
	// wipeRecords is how many records one part removes.
	wipeRecords = 1000
)

// do carries out an effect, and returns how long it is not to be repeated.
func (d *driver) do(ctx context.Context, r *migrate.Record, e migrate.Effect) (time.Duration, error) {
	switch e := e.(type) {
	case migrate.Look:
		return 0, d.look(ctx, r, e.Cell)
	case migrate.Prove:
		return 0, d.proveLog(ctx, r, e.Cell)
	case migrate.Stage:
		return 0, d.stage(ctx, r, e)
	case migrate.Track:
		return 0, d.track(ctx, r, e)
	case migrate.Copy:
		return d.copyLane(ctx, r, e)
	case migrate.SetMode:
		return 0, d.setMode(ctx, r, e)
	case migrate.Digest:
		return d.digest(ctx, r, e)
	case migrate.Wipe:
		return d.wipe(ctx, r, e)
	default:
		return 0, fmt.Errorf("mover: an effect %T that this release does not know", e)
	}
}

// call gives a call its bound.
func (d *driver) call(ctx context.Context, r *migrate.Record) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.callMax(r))
}

func (d *driver) proveLog(ctx context.Context, r *migrate.Record, id cell.ID) error {
	call, cancel := d.call(ctx, r)
	defer cancel()
	token := r.Generation
	m, err := d.client(id).ProveLane(call, &fairleadv1.ProveLaneRequest{Move: moveMessage(r.Move()), Tenant: string(r.Tenant), Token: token})
	if err != nil {
		return err
	}
	if m.GetToken() != token || m.GetIndex() == 0 {
		return errors.New("mover: the cell's log did not return the canary")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen.Cell(r, id).Proved = r.Attempt
	return nil
}

func (d *driver) stage(ctx context.Context, r *migrate.Record, e migrate.Stage) error {
	tenant, organization, err := d.cfg.Control.Promise(*r)
	if err != nil {
		return err
	}
	call, cancel := d.call(ctx, r)
	defer cancel()
	if _, err := d.client(r.Target).StageLane(call, &fairleadv1.StageLaneRequest{
		Move: moveMessage(r.Move()), Class: classMessage(e.Class), Epoch: uint64(e.Epoch), Tenant: tenant, Organization: organization,
	}); err != nil {
		return err
	}
	return d.look(ctx, r, r.Target)
}

func (d *driver) track(ctx context.Context, r *migrate.Record, e migrate.Track) error {
	call, cancel := d.call(ctx, r)
	defer cancel()
	if _, err := d.client(e.Cell).TrackLane(call, &fairleadv1.TrackLaneRequest{
		Move: moveMessage(r.Move()), Tenant: string(r.Tenant), Class: classMessage(e.Class), Off: e.Off,
	}); err != nil {
		return err
	}
	return d.look(ctx, r, e.Cell)
}

func (d *driver) setMode(ctx context.Context, r *migrate.Record, e migrate.SetMode) error {
	call, cancel := d.call(ctx, r)
	defer cancel()
	m, err := d.client(e.Cell).SetLaneMode(call, &fairleadv1.SetLaneModeRequest{
		Move: moveMessage(r.Move()), Tenant: string(r.Tenant), Class: classMessage(e.Class), Mode: modeMessage(e.Mode), Epoch: uint64(e.Epoch), Share: e.Share,
	})
	if err != nil {
		return errors.Join(err, d.look(ctx, r, e.Cell)) // how it stands, when it is not as it was thought to
	}
	if m.GetLane() == nil {
		return d.look(ctx, r, e.Cell)
	}
	d.mu.Lock() // a look would only say the same, and somebody may be waiting
	defer d.mu.Unlock()
	d.looks++
	d.lastLook[e.Cell] = d.looks
	d.seen.Cell(r, e.Cell).Lanes[e.Class.Index()] = laneSeen(m.GetLane())
	return nil
}

// digest has the cell go on with a lane's digest.
func (d *driver) digest(ctx context.Context, r *migrate.Record, e migrate.Digest) (time.Duration, error) {
	call, cancel := d.call(ctx, r)
	defer cancel()
	m, err := d.client(e.Cell).DigestLane(call, &fairleadv1.DigestLaneRequest{
		Move: moveMessage(r.Move()), Tenant: string(r.Tenant), Class: classMessage(e.Class),
	})
	if err != nil {
		return 0, err
	}
	d.takeDigest(r, e.Cell, e.Class, m)
	if urgent(r) {
		return 0, nil
	}
	return digestDelay, d.look(ctx, r, e.Cell) // with the rest of the lane, as of the same change
}

// takeDigest takes note of a lane's digest. That of a lane that is filled is as of where the last chunk has left it: nobody else fills it.
func (d *driver) takeDigest(r *migrate.Record, id cell.ID, class cell.Class, m *fairleadv1.DigestLaneResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &d.seen.Cell(r, id).Lanes[class.Index()]
	l.DigestDone = m.GetDone()
	if len(m.GetDigest()) != len(l.Digest) {
		l.DigestDone = min(l.DigestDone, migrate.Whole-1)
		return
	}
	l.Digest, l.DigestDone, l.DigestChange = [len(l.Digest)]byte(m.GetDigest()), migrate.Whole, m.GetChange()
	if filled(l) {
		l.DigestChange = l.Cursor.Change
		if l.Cursor.Seeded != migrate.SeededAll {
			l.DigestDone = 0
		}
	}
}

func (d *driver) wipe(ctx context.Context, r *migrate.Record, e migrate.Wipe) (time.Duration, error) {
	call, cancel := d.call(ctx, r)
	defer cancel()
	if _, err := d.client(e.Cell).WipeLane(call, &fairleadv1.WipeLaneRequest{
		Move: moveMessage(r.Move()), Tenant: string(r.Tenant), Class: classMessage(e.Class), RecordsMax: wipeRecords,
	}); err != nil {
		return 0, err
	}
	return wipeDelay, d.look(ctx, r, e.Cell)
}

// copyLane takes a lane a part of the way, or while it takes nothing all of it.
func (d *driver) copyLane(ctx context.Context, r *migrate.Record, e migrate.Copy) (time.Duration, error) {
	now := time.Now()
	d.mu.Lock()
	at := d.seen.Cell(r, e.To).Lanes[e.Class.Index()].Cursor
	throttle := d.throttleLocked(r, e.From, now)
	d.mu.Unlock()
	one := round{
		move: moveMessage(r.Move()), tenant: string(r.Tenant), class: classMessage(e.Class), from: d.client(e.From), to: d.client(e.To),
		cursor: cursorMessage(at.Seeded, at.Change), callMax: d.callMax(r), throttle: throttle, until: now.Add(roundMax), urgent: e.Urgent,
		chunked: func(c chunk, at *fairleadv1.LaneCursor) { d.copied(r, e, c, at) },
	}
	moved, err := one.copy(ctx)
	if err != nil {
		if rejection.From(err).GetReason() == reasonCursorLost {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.lanes[e.Class.Index()] = copying{from: e.From, attempt: r.Attempt, broken: e.From}
			return idleCopy, nil
		}
		return 0, errors.Join(err, d.look(ctx, r, e.From), d.look(ctx, r, e.To)) // how they are now
	}
	switch {
	case e.Urgent:
		call, cancel := d.call(ctx, r)
		defer cancel()
		m, err := one.to.DigestLane(call, &fairleadv1.DigestLaneRequest{Move: one.move, Tenant: one.tenant, Class: one.class})
		if err != nil {
			return 0, err
		}
		d.takeDigest(r, e.To, e.Class, m)
		return 0, nil
	case moved > 0:
		return 0, nil
	case r.State >= migrate.CutOver:
		return idleStream, nil
	default:
		return idleCopy, nil
	}
}
