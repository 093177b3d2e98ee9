package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// probeTimeout bounds one probe; ProbeSilence, if that is shorter than two of them.
	probeTimeout = time.Second
	// probeLinger is how long an upstream is probed after its last request: the next one finds the leader known.
	probeLinger = 10 * time.Second
	// followersEvery is at which of the probes of a leader the others are asked too, as long as it is in no doubt.
	followersEvery = 5
	// unansweredMin is how many probes in a row must have failed, however long the silence: when this process was stopped for a while, one
	// has at its return.
	unansweredMin = 2
	// statusBytesMax bounds what a probe's answer may have.
	statusBytesMax = 16 << 10
)

// The causes of a request's end that its replica did not make.
var (
	errSuperseded = errors.New("gateway: another agent leads in a later term")
	errMute       = errors.New("gateway: the agent does not answer probes")
)

// probeLocked starts probing, unless it goes on.
func (u *upstream) probeLocked(ctx context.Context) {
	if u.probing {
		return
	}
	u.probing = true
	for _, r := range u.replicas { // what was seen long ago says nothing
		r.silentSince, r.unanswered = time.Time{}, 0
	}
	u.f.spawn(ctx, u.watch)
}

// watch probes the replicas until the upstream has not been used for a while, or the forwarder is closed.
func (u *upstream) watch(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(u.f.cfg.ProbeEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		for _, r := range u.due(n) {
			probes.Go(func() { u.probe(ctx, r) })
		}
		select {
		case <-u.f.done:
			u.mu.Lock()
			u.probing = false
			u.mu.Unlock()
			return
		case <-tick.C:
		}
		if !u.judge(time.Now()) {
			return
		}
	}
}

// due returns whom to ask in the n-th round: who leads, and the others now and then, or when that is in doubt.
func (u *upstream) due(n int) []*replica {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.syncLocked()
	l := u.replicaLocked(u.leader)
	doubt := l == nil || !l.status.Leader || l.unanswered > 0 || u.counts.parked > 0 || n%followersEvery == 0
	var out []*replica
	for _, r := range u.replicas {
		if r.asking || !doubt && r != l && len(r.flights) == 0 {
			continue
		}
		r.asking = true
		if r.silentSince.IsZero() {
			r.silentSince = now
		}
		out = append(out, r)
	}
	return out
}

// probe asks r whether it leads.
func (u *upstream) probe(ctx context.Context, r *replica) {
	ctx, cancel := context.WithTimeout(ctx, min(probeTimeout, u.f.cfg.ProbeSilence/unansweredMin))
	defer cancel()
	status, err := ask(ctx, r)
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	r.asking = false
	if err != nil {
		r.unanswered++
		return
	}
	r.status, r.statusAt, r.silentSince, r.unanswered = status, now, time.Time{}, 0
	r.failures, r.shutTill = 0, time.Time{}
	u.followLocked(r)
}

func ask(ctx context.Context, r *replica) (LeaderStatus, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "https", Host: r.Address, Path: PathLeader}).String(), http.NoBody)
	if err != nil {
		return LeaderStatus{}, fmt.Errorf("gateway: %w", err)
	}
	resp, err := r.probes.RoundTrip(req)
	if err != nil {
		return LeaderStatus{}, fmt.Errorf("gateway: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	data, err := io.ReadAll(io.LimitReader(resp.Body, statusBytesMax))
	if err != nil {
		return LeaderStatus{}, fmt.Errorf("gateway: %w", err)
	}
	var s LeaderStatus
	if resp.StatusCode != http.StatusOK {
		return LeaderStatus{}, fmt.Errorf("gateway: %s answered a probe with %s", r.Name, resp.Status)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return LeaderStatus{}, fmt.Errorf("gateway: %w", err)
	}
	if s.Name != r.Name {
		return LeaderStatus{}, fmt.Errorf("gateway: at %s is %.40q and not %s", r.Address, s.Name, r.Name)
	}
	return s, nil
}

// followLocked takes in what r has just said of itself.
func (u *upstream) followLocked(r *replica) {
	s := r.status
	if !s.Leader {
		if u.leader != r.Name {
			return
		}
		u.leader = ""
		if h := u.replicaLocked(s.LeaderName); h != nil && h != r {
			u.leader = s.LeaderName
			u.wakeLocked()
		}
		return
	}
	for fl := range r.flights {
		if fl.term == 0 { // it began before the replica was first asked
			fl.term = s.Term
		}
	}
	if r.gone || s.Term < u.term {
		return // a leader that does not know that it is deposed
	}
	if u.leader != r.Name || u.term != s.Term {
		u.leader, u.term = r.Name, s.Term
		u.wakeLocked()
	}
}

// wakeLocked lets the requests that wait look again.
func (u *upstream) wakeLocked() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// silentLocked reports whether r has left probes unanswered for so long that it counts as hung or dead.
func (u *upstream) silentLocked(r *replica, now time.Time) bool {
	return !r.silentSince.IsZero() && r.unanswered >= unansweredMin && now.Sub(r.silentSince) >= u.f.cfg.ProbeSilence
}

// judge gives up the requests of replicas that are hung or deposed. It returns false when probing is to end, because nobody needs it.
func (u *upstream) judge(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.replicas {
		if u.silentLocked(r, now) {
			if u.leader == r.Name {
				u.leader = ""
				u.wakeLocked()
			}
			for fl := range r.flights {
				fl.cancel(errMute)
			}
			continue
		}
		u.supersedeLocked(r, now)
	}
	if u.counts.inFlight > 0 || now.Sub(u.used) < probeLinger {
		return true
	}
	u.probing = false
	return false
}

// supersedeLocked gives up the requests that r took while it led, once another leads in a later term. One that is deposed and well answers
// them itself, and knows better what came of them: it has until the next round.
func (u *upstream) supersedeLocked(r *replica, now time.Time) {
	l := u.replicaLocked(u.leader)
	if l == nil || l == r || !l.status.Leader || now.Sub(l.statusAt) > u.f.cfg.ProbeSilence {
		return
	}
	for fl := range r.flights {
		switch {
		case fl.term >= l.status.Term:
		case fl.doomed:
			fl.cancel(errSuperseded)
		default:
			fl.doomed = true
		}
	}
}
