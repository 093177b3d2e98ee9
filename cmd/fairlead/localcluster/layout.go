package localcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// The roles of agents.
const (
	roleControl = "control"
	roleCell    = "cell"
	roleGateway = "gateway"
)

// agent is one agent, and where it listens on loopback.
type agent struct {
	Name   string `json:"name"`
	Role   string `json:"role"`
	Cell   string `json:"cell,omitempty"`
	API    int    `json:"api"`
	Raft   int    `json:"raft"`
	Gossip int    `json:"gossip"`
}

// layout is what a cluster consists of. It is kept in the cluster's folder: agents know each other by their ports.
type layout struct {
	Agents []agent `json:"agents"`
}

// layoutFile is the layout's name in the folder.
const layoutFile = "localcluster.json"

// layoutOf returns the layout of the folder, and makes one of the agents where there is none.
func layoutOf(dir string, agents []agent) (layout, error) {
	path := filepath.Join(dir, layoutFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return layout{}, err
	default:
		var l layout
		if err := json.Unmarshal(text, &l); err != nil || len(l.Agents) == 0 {
			return layout{}, fmt.Errorf("%s is not a local cluster's: %w", path, err)
		}
		if !slices.EqualFunc(l.Agents, agents, func(a, b agent) bool { return a.Name == b.Name && a.Role == b.Role && a.Cell == b.Cell }) {
			return layout{}, fmt.Errorf("%s is another cluster's: give another folder", path)
		}
		return l, nil
	}
	l := layout{Agents: slices.Clone(agents)}
	if err := l.choosePorts(); err != nil {
		return layout{}, err
	}
	if text, err = json.MarshalIndent(l, "", "  "); err != nil {
		return layout{}, err
	}
	return l, os.WriteFile(path, append(text, '\n'), 0o600)
}

// of returns the agents of a role.
func (l layout) of(role string) []agent {
	return slices.DeleteFunc(slices.Clone(l.Agents), func(a agent) bool { return a.Role != role })
}

// Ports are chosen below those that systems give to outgoing connections (32768 and up on Linux, 49152 elsewhere): an agent that was killed
// must find its own free when it comes back.
const (
	portMin   = 20_000
	portMax   = 32_000
	portTries = 2_000
)

// choosePorts gives each agent three ports that are free.
func (l layout) choosePorts() error {
	next := portMin + rand.IntN(portMax-portMin)
	taken := 0
	free := func() int {
		for ; taken < portTries; taken++ {
			if next++; next >= portMax {
				next = portMin
			}
			if isFree(next) {
				return next
			}
		}
		return 0
	}
	for i := range l.Agents {
		a := &l.Agents[i]
		if a.API, a.Raft, a.Gossip = free(), free(), free(); a.Gossip == 0 {
			return fmt.Errorf("no free ports between %d and %d on loopback", portMin, portMax)
		}
	}
	return nil
}

// isFree reports whether a port is free for both TCP and UDP.
func isFree(port int) bool {
	t, err := net.Listen("tcp", at(port)) //nolint:noctx // it takes no time
	if err != nil {
		return false
	}
	u, err := net.ListenPacket("udp", at(port)) //nolint:noctx // it takes no time
	if err == nil {
		err = u.Close()
	}
	return errors.Join(err, t.Close()) == nil
}

// at is a port on loopback.
func at(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
