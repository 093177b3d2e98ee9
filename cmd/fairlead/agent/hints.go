package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/dataplane/gossip"
)

const (
	// hintEvery is how often an agent tells the others how busy it is.
	hintEvery = 5 * time.Second
	// leaveTimeout bounds how long an agent waits for its good-bye to spread.
	leaveTimeout = 2 * time.Second
)

// startGossip begins to talk to the others. What it hears decides nothing.
func (n *node) startGossip() error {
	a := n.cfg.Agent
	keys := n.store.GossipKeys()
	if len(keys) == 0 {
		return fmt.Errorf("%s has no gossip.keys: take the folder that fairlead cluster prepare made, or join", a.TLSPath())
	}
	var err error
	n.gossip, err = gossip.Open(gossip.Config{
		Cluster: n.id.ClusterID, Name: a.Name, Role: a.Role, Cell: a.Cell, APIAddress: a.APIAddress(), ListenAddress: a.GossipListen,
		AdvertiseAddress: a.GossipAddress(), Keys: keys, Seeds: n.seeds, Logger: n.logger,
	})
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// seeds returns where gossip begins, as the configuration has it now.
func (n *node) seeds() []string { return n.running.Load().Seeds() }

// hint tells how busy the agent is until ctx ends.
func (n *node) hint(ctx context.Context) {
	tick := time.NewTicker(hintEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.gossip.SetLoad(n.role.load())
		case <-ctx.Done():
			return
		}
	}
}

func (n *node) leaveGossip() error {
	if err := n.gossip.Leave(leaveTimeout); err != nil {
		n.logger.Warn("gossip was not told that this agent leaves", "error", err)
	}
	return n.gossip.Close()
}
