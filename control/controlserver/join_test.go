package controlserver

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// The first key is made once, by a control agent's certificate; whoever asked and did not hear may ask again.
func TestBootstrapOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) { // which has bootstrapped
		ask := func(role command.Role, b byte) (*fairleadv1.BootstrapResponse, error) {
			return c.Registry().Bootstrap(asPeer(t.Context(), role, "control-1", ""), &fairleadv1.BootstrapRequest{AdminKeyHash: bytes.Repeat([]byte{b}, 32)})
		}
		again, err := ask(command.RoleControl, 7)
		if err != nil || !again.GetCreated() || again.GetClusterId() != "cluster-x" {
			t.Errorf("%v, %v", again, err)
		}
		before := c.machine.View().Index()
		other, err := ask(command.RoleControl, 8)
		if err != nil || other.GetCreated() || c.machine.View().Index() != before {
			t.Errorf("%v, %v", other, err)
		}
		if _, err := ask(command.RoleCell, 7); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Error(err)
		}
		if caller, ok := c.Lookup([32]byte(bytes.Repeat([]byte{7}, 32))); !ok || !caller.May(cell.PermissionAdmin) || !caller.May(cell.PermissionOperate) {
			t.Errorf("%+v, %v", caller, ok)
		}
		g, err := c.Cluster().GetCluster(c.ctx, &fairleadv1.GetClusterRequest{})
		if err != nil || g.GetClusterId() != "cluster-x" || g.GetFeatureLevel() != 1 || g.GetFeatureLevelMax() != 1 || g.GetLeader() != "control-1" {
			t.Errorf("%v, %v", g, err)
		}
	})
}

// The voters that the log lacks are added.
func TestBootstrapAddsVoters(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		if err := c.addVoters(t.Context(), []*fairleadv1.Peer{
			{Name: "control-1", RaftAddress: "c1:1"}, {Name: "control-2", RaftAddress: "c2:1"},
		}); err != nil {
			t.Fatal(err)
		}
		if p := c.group.members()["control-2"]; !p.Voter || p.Address != "c2:1" || len(c.group.members()) != 2 {
			t.Errorf("%v", c.group.members())
		}
	})
}

func (c *cluster) token(role command.Role, id, name string) string {
	c.t.Helper()
	a, err := c.Cluster().CreateJoinToken(c.ctx, &fairleadv1.CreateJoinTokenRequest{Role: roleMessage(role), Cell: id, Name: name})
	if err != nil {
		c.t.Fatal(err)
	}
	if life := time.Until(a.GetExpireTime().AsTime()); life != time.Hour {
		c.t.Errorf("lives for %v", life)
	}
	return a.GetToken()
}

// A token gives one certificate, of the role and cell that it is bound to, and nothing shows it.
func TestJoin(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cellWith("east", 100, nil)
		token := c.token(command.RoleCell, "east", "")
		if p, err := parseJoinToken(token); err != nil || fmt.Sprintf("%v %+v %s", p, p, p) != "[secret] [secret] [secret]" || p.LogValue().String() != "[secret]" {
			t.Errorf("%v", err)
		}
		join := func(token, name string, csr string) (*fairleadv1.JoinResponse, error) {
			return c.Registry().Join(t.Context(), &fairleadv1.JoinRequest{Token: token, Name: name, Csr: []byte(csr)})
		}
		if _, err := join(token, "east-b", ""); rejection.From(err).GetField() != "csr" { // costs no token
			t.Error(err)
		}
		a, err := join(token, "east-b", "csr")
		if err != nil || string(a.GetCertificate()) != "certificate of cell east-b east" || a.GetClusterId() != "cluster-x" || len(a.GetGossipKeys()) != 1 {
			t.Errorf("%v, %v", a, err)
		}
		for name, c2 := range map[string]struct {
			token, name    string
			code           connect.Code
			reason, before string
		}{
			"used":      {token: token, name: "east-c", code: connect.CodePermissionDenied, reason: "JOIN_TOKEN_INVALID"},
			"unknown":   {token: newJoinToken([32]byte{}).reveal(), name: "x", code: connect.CodePermissionDenied, reason: "JOIN_TOKEN_INVALID"},
			"another's": {token: c.token(command.RoleGateway, "", "g1"), name: "g2", code: connect.CodePermissionDenied, reason: "JOIN_TOKEN_INVALID"},
			"no token":  {token: "flj_x", name: "x", code: connect.CodeInvalidArgument, reason: "BAD_FIELD"},
			"no name":   {token: c.token(command.RoleGateway, "", ""), code: connect.CodeInvalidArgument, reason: "BAD_FIELD"},
			"of one that runs": {
				token: c.token(command.RoleCell, "east", ""), name: "east-a", code: connect.CodeFailedPrecondition, reason: "AGENT_ALIVE",
			},
			"of something else": {
				token: c.token(command.RoleGateway, "", ""), name: "east-a", code: connect.CodeAlreadyExists, reason: "ALREADY_EXISTS",
			},
		} {
			_, err := join(c2.token, c2.name, "csr")
			if connect.CodeOf(err) != c2.code || rejection.From(err).GetReason() != c2.reason || strings.Contains(err.Error(), c2.token) && c2.token != "" {
				t.Errorf("%s: %v", name, err)
			}
		}
		late := c.token(command.RoleGateway, "", "")
		<-time.After(time.Hour)
		if _, err := join(late, "g3", "csr"); rejection.From(err).GetReason() != "JOIN_TOKEN_INVALID" {
			t.Error(err)
		}
		// The agent that runs has not been heard of for an hour: another may take its place.
		if _, err := join(c.token(command.RoleCell, "east", ""), "east-a", "csr"); err != nil {
			t.Error(err)
		}
	})
}

// Of two that use a token at once one gets a certificate.
func TestJoinRace(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		token := c.token(command.RoleGateway, "", "")
		var (
			mu  sync.Mutex
			won int
			wg  sync.WaitGroup
		)
		for i := range 10 {
			wg.Go(func() {
				_, err := c.Registry().Join(t.Context(), &fairleadv1.JoinRequest{Token: token, Name: fmt.Sprint("g", i), Csr: []byte("csr")})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if rejection.From(err).GetReason() != "JOIN_TOKEN_INVALID" {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d got a certificate", won)
		}
	})
}

func TestJoinTokenRefusals(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		gateway := fairleadv1.AgentRole_AGENT_ROLE_GATEWAY
		for name, x := range map[string]struct {
			req    *fairleadv1.CreateJoinTokenRequest
			field  string
			reason string
		}{
			"short":        {&fairleadv1.CreateJoinTokenRequest{Role: gateway, Lifetime: durationpb.New(time.Second)}, "lifetime", "BAD_FIELD"},
			"long":         {&fairleadv1.CreateJoinTokenRequest{Role: gateway, Lifetime: durationpb.New(25 * time.Hour)}, "lifetime", "BAD_FIELD"},
			"no role":      {&fairleadv1.CreateJoinTokenRequest{}, "role", "BAD_FIELD"},
			"no cell":      {&fairleadv1.CreateJoinTokenRequest{Role: fairleadv1.AgentRole_AGENT_ROLE_CELL}, "cell", "BAD_FIELD"},
			"unknown cell": {&fairleadv1.CreateJoinTokenRequest{Role: fairleadv1.AgentRole_AGENT_ROLE_CELL, Cell: "x"}, "cell", "NOT_FOUND"},
			"cell":         {&fairleadv1.CreateJoinTokenRequest{Role: gateway, Cell: "x"}, "cell", "NOT_FOUND"},
		} {
			_, err := c.Cluster().CreateJoinToken(c.ctx, x.req)
			if r := rejection.From(err); r.GetReason() != x.reason || r.GetField() != x.field {
				t.Errorf("%s: %v", name, err)
			}
		}
		c.cfg.Certifier = nil
		if _, err := c.Cluster().CreateJoinToken(c.ctx, &fairleadv1.CreateJoinTokenRequest{Role: gateway}); rejection.From(err).GetReason() != "NO_AUTHORITY" {
			t.Error(err)
		}
		if _, err := c.Registry().Join(t.Context(), &fairleadv1.JoinRequest{
			Token: newJoinToken([32]byte{}).reveal(), Name: "g", Csr: []byte("x"),
		}); rejection.From(err).GetReason() != "NO_AUTHORITY" {
			t.Error(err)
		}
	})
}

// An agent registers itself only, and again only costs an entry when something has changed.
func TestRegister(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		agent := func(change func(*fairleadv1.Agent)) *fairleadv1.RegisterRequest {
			a := &fairleadv1.Agent{Name: "g", Role: fairleadv1.AgentRole_AGENT_ROLE_GATEWAY, ApiAddress: "g:1", Version: "v1", FeatureLevelMax: 1}
			change(a)
			return &fairleadv1.RegisterRequest{Agent: a}
		}
		ctx := asPeer(t.Context(), command.RoleGateway, "g", "")
		a, err := c.Registry().Register(ctx, agent(func(*fairleadv1.Agent) {}))
		if err != nil || a.GetFeatureLevel() != 1 {
			t.Errorf("%v, %v", a, err)
		}
		index := c.machine.View().Index()
		for range 3 {
			if _, err := c.Registry().Register(ctx, agent(func(*fairleadv1.Agent) {})); err != nil {
				t.Error(err)
			}
		}
		if got := c.machine.View().Index(); got != index {
			t.Errorf("%d entries for nothing", got-index)
		}
		if _, err := c.Registry().Register(ctx, agent(func(a *fairleadv1.Agent) { a.ApiAddress = "g:2" })); err != nil {
			t.Error(err)
		}
		if got, _ := c.machine.View().Agent("g"); got.APIAddress != "g:2" {
			t.Errorf("%+v", got)
		}
		for name, change := range map[string]func(*fairleadv1.Agent){
			"name": func(a *fairleadv1.Agent) { a.Name = "h" },
			"role": func(a *fairleadv1.Agent) { a.Role = fairleadv1.AgentRole_AGENT_ROLE_CONTROL },
			"cell": func(a *fairleadv1.Agent) { a.Cell = "east" },
		} {
			if _, err := c.Registry().Register(ctx, agent(change)); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.Registry().Register(t.Context(), agent(func(*fairleadv1.Agent) {})); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Error(err)
		}
		c.register(command.RoleControl, "control-1", "")
		a, err = c.Registry().Register(ctx, agent(func(*fairleadv1.Agent) {}))
		if err != nil || len(a.GetControl()) != 1 || a.GetControl()[0].GetApiAddress() != "control-1:443" {
			t.Errorf("%v, %v", a, err)
		}
	})
}

// The level rises only as far as everybody understands that was heard of lately.
func TestFeatureLevel(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.register(command.RoleControl, "control-1", "")
		r, err := c.reigning()
		if err != nil {
			t.Fatal(err)
		}
		if level, least := c.levelOfAll(r); level != command.FeatureLevelMax() || least != "control-1" {
			t.Errorf("%d of %s", level, least)
		}
		if a, err := c.Cluster().SetFeatureLevel(c.ctx, &fairleadv1.SetFeatureLevelRequest{Level: 1}); err != nil || a.GetLevel() != 1 {
			t.Errorf("%v, %v", a, err)
		}
		for _, level := range []int32{0, -1, 2, 100} {
			if _, err := c.Cluster().SetFeatureLevel(c.ctx, &fairleadv1.SetFeatureLevelRequest{Level: level}); rejection.From(err).GetField() != "level" {
				t.Errorf("%d: %v", level, err)
			}
		}
	})
}
