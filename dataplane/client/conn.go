package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
)

// Bounds of a connection. They are generous enough for a slow link and short enough that a dead server is noticed before a lease is lost.
const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	pingAfter        = 15 * time.Second // HTTP/2: silence before a ping
	pingTimeout      = 5 * time.Second  // HTTP/2: silence after it, before the connection is dropped

	// idleConnsMax lets as many HTTP/1.1 callers reuse their connections; more of them open and close theirs.
	idleConnsMax = 256
	// readBytesMax bounds one answer: a full Lease of large payloads fits; a larger one is refused with resource_exhausted.
	readBytesMax = 256 << 20
	// compressBytesMin is the request size from which gzip pays on a real network. It never does on loopback.
	compressBytesMin = 8 << 10
)

// Protocol is the version of HTTP spoken to a server.
type Protocol uint8

// The protocols.
const (
	// ProtocolAuto is h2c for plain HTTP to loopback, HTTP/1.1 for plain HTTP elsewhere, and what TLS negotiates for https.
	ProtocolAuto Protocol = iota
	// ProtocolHTTP1 is HTTP/1.1 always.
	ProtocolHTTP1
	// ProtocolHTTP2 is HTTP/2 always: without TLS for http addresses.
	ProtocolHTTP2
)

func (p Protocol) String() string {
	switch p {
	case ProtocolAuto:
		return "auto"
	case ProtocolHTTP1:
		return "http1"
	case ProtocolHTTP2:
		return "http2"
	default:
		return fmt.Sprintf("protocol(%d)", uint8(p))
	}
}

// Token is an API key. It prints as asterisks in every format; convert it to a string to get at it.
type Token string

const tokenMask = "****"

// Format writes asterisks whatever the verb.
func (Token) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, tokenMask) // a fmt.State has no failure to report to
}

// String returns asterisks.
func (Token) String() string { return tokenMask }

// MarshalText returns asterisks, for JSON and structured logs.
func (Token) MarshalText() ([]byte, error) { return []byte(tokenMask), nil }

// Conn is what the generated clients of every service are made from:
//
//	fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, conn.Options...)
//
// It is safe for concurrent use.
type Conn struct {
	HTTP    connect.HTTPClient // adds the token and the cell
	URL     string             // scheme and host, without a slash at the end
	Options []connect.ClientOption

	idle func()
}

// Close closes the connections that are idle. A Conn with a [Config.HTTPClient] of the caller's leaves them open.
func (c *Conn) Close() { c.idle() }

// Dial returns the way to the server of cfg, of which it reads only the fields about the connection. It connects on first use.
// It returns an *[Error] of code invalid_argument when the address or the cell is not one, when a file of authorities cannot be read, or
// when it would send the token over plain HTTP to another machine without [Config.AllowPlain].
func Dial(cfg Config) (*Conn, error) {
	u, err := parseAddr(cfg.Addr)
	if err != nil {
		return nil, err
	}
	local := isLoopback(u.Hostname())
	if u.Scheme == "http" && !local && cfg.Token != "" && !cfg.AllowPlain {
		return nil, badField("addr", fmt.Sprintf("%s is plain http to another machine, where the token could be read on the way", u),
			"use https, or allow plain http if the network is trusted")
	}
	if cfg.Cell != "" {
		if err := cell.CheckID("cell", cfg.Cell); err != nil {
			return nil, badField("cell", fmt.Sprintf("%.140q is not the name of a cell", cfg.Cell), "give it as fairlead cell list shows it")
		}
	}
	c := &Conn{URL: u.String(), idle: func() {}}
	hc := cfg.HTTPClient
	if hc == nil {
		config, err := cfg.tls()
		if err != nil {
			return nil, err
		}
		hc = newHTTPClient(u, cfg.Protocol, config)
		c.idle = hc.CloseIdleConnections
	}
	c.HTTP = newBearer(hc, cfg.Token, cfg.Cell)
	c.Options = connOptions(cfg.CompressBytesMin, local)
	return c, nil
}

// tls returns how servers are verified; nil for the system's way.
func (cfg Config) tls() (*tls.Config, error) {
	if cfg.RootCAs == nil && cfg.CAFile == "" {
		return cfg.TLS, nil
	}
	config, roots := &tls.Config{MinVersion: tls.VersionTLS12}, x509.NewCertPool()
	if cfg.TLS != nil {
		config = cfg.TLS.Clone()
	}
	if cfg.RootCAs != nil {
		roots = cfg.RootCAs.Clone()
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, badField("ca_file", fmt.Sprintf("cannot be read (%v)", err), "give the file of the cluster's authority, ca.crt")
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, badField("ca_file", fmt.Sprintf("%q holds no certificate", cfg.CAFile), "give the file of the cluster's authority, ca.crt")
		}
	}
	config.RootCAs = roots
	return config, nil
}

func connOptions(compressMin int, local bool) []connect.ClientOption {
	opts := []connect.ClientOption{connect.WithReadMaxBytes(readBytesMax)}
	if compressMin == 0 && !local {
		compressMin = compressBytesMin
	}
	if compressMin <= 0 {
		return append(opts, connect.WithAcceptCompression("gzip", nil, nil))
	}
	return append(opts, connect.WithSendGzip(), connect.WithCompressMinBytes(compressMin))
}

// NewHTTPClient returns the http.Client that suits addr, a URL or a host and port as in [Config.Addr]: HTTP/2 without TLS for plain HTTP
// on loopback, TLS with either version for https. It follows no redirect and has no time-out of its own, since long polls are bounded
// by their contexts. tlsConfig may be nil. It returns an *[Error] when addr is not an address.
func NewHTTPClient(addr string, protocol Protocol, tlsConfig *tls.Config) (*http.Client, error) {
	u, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	return newHTTPClient(u, protocol, tlsConfig), nil
}

func newHTTPClient(u *url.URL, protocol Protocol, tlsConfig *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           dialer.DialContext,
			TLSClientConfig:       tlsConfig,
			TLSHandshakeTimeout:   handshakeTimeout,
			ExpectContinueTimeout: time.Second,
			MaxIdleConns:          idleConnsMax,
			MaxIdleConnsPerHost:   idleConnsMax,
			IdleConnTimeout:       idleTimeout,
			DisableCompression:    true, // connect does its own
			Protocols:             protocols(u, protocol),
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
		// A followed redirect would take the token along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func protocols(u *url.URL, protocol Protocol) *http.Protocols {
	var p http.Protocols
	plain := u.Scheme == "http"
	switch protocol {
	case ProtocolHTTP1:
		p.SetHTTP1(true)
	case ProtocolHTTP2:
		p.SetUnencryptedHTTP2(plain)
		p.SetHTTP2(!plain)
	case ProtocolAuto:
		fallthrough
	default:
		h2c := plain && isLoopback(u.Hostname())
		p.SetUnencryptedHTTP2(h2c)
		p.SetHTTP1(!h2c)
		p.SetHTTP2(!plain)
	}
	return &p
}

// parseAddr reads a URL of scheme and host, or a host and port, which means http on loopback and https elsewhere.
func parseAddr(addr string) (*url.URL, error) {
	const remedy = "give it as https://host:port, or http://127.0.0.1:port"
	if addr == "" {
		return nil, badField("addr", "is empty", remedy)
	}
	s := addr
	if !strings.Contains(s, "://") {
		s = "https://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return nil, badField("addr", fmt.Sprintf("%.100q is not an address", addr), remedy)
	}
	if !strings.Contains(addr, "://") && isLoopback(u.Hostname()) {
		u.Scheme = "http"
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, badField("addr", fmt.Sprintf("has scheme %.20q", u.Scheme), remedy)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, badField("addr", "has a user, query or fragment", remedy)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// headerCell is where a gateway looks for [Config.Cell].
const headerCell = "Fairlead-Cell"

// bearer adds the token and the cell to each request. It is no http.RoundTripper, which would have to copy the request: the generated
// clients make theirs afresh for each call.
type bearer struct {
	next  *http.Client
	token []string // nil for none
	cell  []string // nil for none
}

func newBearer(next *http.Client, token Token, cellName string) connect.HTTPClient {
	if token == "" && cellName == "" {
		return next
	}
	b := &bearer{next: next}
	if token != "" {
		b.token = []string{"Bearer " + string(token)}
	}
	if cellName != "" {
		b.cell = []string{cellName}
	}
	return b
}

func (b *bearer) Do(req *http.Request) (*http.Response, error) {
	if b.token != nil {
		req.Header["Authorization"] = b.token
	}
	if b.cell != nil {
		req.Header[headerCell] = b.cell
	}
	return b.next.Do(req)
}
