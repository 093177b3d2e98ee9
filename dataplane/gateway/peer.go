package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/cell"
)

// The roles of agents, as their certificates name them.
const (
	RoleControl = "control"
	RoleCell    = "cell"
	RoleGateway = "gateway"
)

// The headers of what agents say to each other. None of them passes the door in either direction, but HeaderCell inwards.
const (
	// HeaderCell names the cell that a worker or an operator means.
	HeaderCell = "Fairlead-Cell"
	// HeaderCaller carries who the door found the caller to be.
	HeaderCaller = "Fairlead-Caller"
	// HeaderNotLeader says with the value 1 that nothing was done, because the agent does not lead.
	HeaderNotLeader = "Fairlead-Not-Leader"
	// HeaderLeader names the agent that leads, with HeaderNotLeader, where it is known.
	HeaderLeader = "Fairlead-Leader"

	headerPrefix = "Fairlead-"
)

// Peer is an agent, as its certificate shows it.
type Peer struct {
	ClusterID string
	Role      string
	Name      string
	Cell      string // of the role cell
}

// encodeCaller returns c as a header carries it.
func encodeCaller(c cell.Caller) (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("gateway: the caller %s: %w", c.Key, err)
	}
	return base64.RawURLEncoding.EncodeToString(data), nil
}

// decodeCaller reads what encodeCaller wrote.
func decodeCaller(header string) (cell.Caller, error) {
	data, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return cell.Caller{}, fmt.Errorf("gateway: the header %s: %w", HeaderCaller, err)
	}
	var c cell.Caller
	if err := json.Unmarshal(data, &c); err != nil {
		return cell.Caller{}, fmt.Errorf("gateway: the header %s: %w", HeaderCaller, err)
	}
	if c.Key == "" {
		return cell.Caller{}, fmt.Errorf("gateway: the header %s names no key", HeaderCaller)
	}
	return c, nil
}

// InsideConfig says who may come in from the other agents.
type InsideConfig struct {
	// Peer returns the agent whose certificate r was made with. It returns false when there is none. Required.
	Peer func(*http.Request) (Peer, bool)
	// Leads returns whether this agent leads its log, and the name of the one that does as far as it knows. Nil when whoever is asked leads.
	Leads func() (leads bool, leader string)
}
