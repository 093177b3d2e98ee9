package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/dataplane/client"
)

// healthPath answers 200 while an agent serves.
const healthPath = "/-/health"

// healthBytesMax bounds what of an answer is shown: it is a word.
const healthBytesMax = 200

func (a *app) healthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "health", Short: "Ask whether an agent serves; the exit code is the answer",
		Long: `Health asks an agent whether it serves: the exit code is 0 when it does and 3 when it does not or nobody answers, which is what a container's
health check wants. No API key is needed. Without --addr it asks the agent that is configured here: its port on this machine.

With --tls-dir, which the configuration of an agent has already, the agent has to be of the same cluster, whatever its host is called; else
its certificate has to be good for the host, by --ca-file or the system's authorities.`,
		Example: `  fairlead health
  fairlead health --addr https://control-1:7700 --tls-dir /data/tls
  fairlead health --addr https://api.example.com --ca-file ca.crt`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd)
			if err != nil {
				return err
			}
			url, hc, done, err := healthClient(l)
			if err != nil {
				return err
			}
			defer done()
			ctx, cancel := context.WithTimeout(cmd.Context(), l.Config.Client.RequestTimeout)
			defer cancel()
			if err := probe(ctx, hc, url); err != nil {
				return unhealthy(url, err)
			}
			return a.printer(l).Text("ok")
		},
	}
	cmd.Flags().String("tls-dir", "", "`directory` of the certificate of an agent of the same cluster")
	bind(cmd.Flags(), map[string]string{"tls-dir": "agent.tls-dir"})
	must(cmd.MarkFlagDirname("tls-dir"))
	return cmd
}

// healthClient returns where to ask and how.
func healthClient(l *config.Loaded) (url string, hc connect.HTTPClient, done func(), err error) {
	g := l.Config.Agent
	url = baseURL(l.Config.Client.Addr)
	own := l.Source("addr") == "" && g.Role != "" // what is configured here is an agent
	if own {
		_, port, err := net.SplitHostPort(g.Listen)
		if err != nil {
			return "", nil, nil, l.Check(g.Validate())
		}
		url = "https://" + net.JoinHostPort("127.0.0.1", port)
	}
	if !own && l.Source("agent.tls-dir") == "" || strings.HasPrefix(url, "http://") {
		conn, err := client.Dial(client.Config{Addr: url, CAFile: l.Config.Client.CAFile})
		if err != nil {
			return "", nil, nil, &failure.Call{Doing: "use the address " + url, Addr: url, Err: err}
		}
		return url, conn.HTTP, conn.Close, nil
	}
	store, err := identity.Load(g.TLSPath())
	if err != nil {
		return "", nil, nil, err
	}
	expect := identity.Expect{}
	if own {
		id := store.Identity()
		expect = identity.Expect{Role: id.Role, Cell: id.Cell, Name: id.Name}
	}
	conf := store.ClientTLS(expect)
	conf.GetClientCertificate = nil // anybody may ask; who shows a certificate has to be one that the agent serves, and a cell's own is not
	secure, err := client.NewHTTPClient(url, client.ProtocolAuto, conf)
	if err != nil {
		return "", nil, nil, &failure.Call{Doing: "use the address " + url, Addr: url, Err: err}
	}
	return url, secure, secure.CloseIdleConnections, nil
}

// unhealthy says that an agent does not serve, or does not answer.
func unhealthy(url string, err error) error {
	if answer, ok := errors.AsType[*unhealthyError](err); ok {
		return &failure.Problem{Code: failure.Unreachable, What: "the agent at " + url + " does not serve", Why: answer.Error(), Remedy: "see its log", Err: err}
	}
	return &failure.Call{Doing: "ask for the agent's health", Addr: url, Err: err}
}

// unhealthyError is an agent's answer that it does not serve.
type unhealthyError struct {
	status int
	text   string
}

func (e *unhealthyError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("it answers %d %s", e.status, e.text))
}

// probe returns nil when the agent at url serves. It returns an [*unhealthyError] when it says that it does not.
func probe(ctx context.Context, hc connect.HTTPClient, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+healthPath, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, healthBytesMax))
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	if resp.StatusCode != http.StatusOK {
		return &unhealthyError{status: resp.StatusCode, text: strings.TrimSpace(string(text))}
	}
	return nil
}
