package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// Secret is a text that prints as a mask. It is read by a conversion to string.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(set)"
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// Client says which server to talk to, and as whom.
type Client struct {
	// Addr is the server's base URL, or its host and port, which means http on loopback and https elsewhere. Default
	// http://127.0.0.1:7700, or what the local dev credentials name.
	Addr string `mapstructure:"addr"`
	// Token is the API key. It goes before TokenFile; both go before the local dev credentials.
	Token Secret `mapstructure:"token"`
	// TokenFile is a file that holds the API key.
	TokenFile string `mapstructure:"token-file"`
	// As names the key of the local dev credentials to use. Default: the one that suits the command.
	As string `mapstructure:"as"`
	// AllowPlain lets the key go to another machine over plain HTTP.
	AllowPlain bool `mapstructure:"allow-plain"`
	// CAFile holds the certificates, in PEM, of the authorities that a server over https is trusted by; the system's when empty.
	CAFile string `mapstructure:"ca-file"`
	// RequestTimeout bounds each call that is not a wait. Default 30 s.
	RequestTimeout time.Duration `mapstructure:"request-timeout"`
	// Output is the format of answers. Default table.
	Output string `mapstructure:"output"`
}

// The defaults and bounds of a client.
const (
	DefaultAddr           = "http://127.0.0.1:7700"
	DefaultRequestTimeout = 30 * time.Second
	requestTimeoutMin     = time.Millisecond
	requestTimeoutMax     = time.Hour
)

// DefaultClient returns the defaults.
func DefaultClient() Client {
	return Client{Addr: DefaultAddr, RequestTimeout: DefaultRequestTimeout, Output: string(output.FormatTable)}
}

// Validate returns every fault.
func (c Client) Validate() []Fault {
	var faults []Fault
	if _, problem := ParseURL(c.Addr); problem != "" {
		faults = append(faults, faultf("addr", "give a URL such as "+DefaultAddr, "%.200q %s", c.Addr, problem))
	}
	if strings.ContainsFunc(string(c.Token), notOfToken) {
		faults = append(faults, faultf("token", "give it as fairlead key create printed it", "has a blank or a character that no key has"))
	}
	if c.RequestTimeout < requestTimeoutMin || c.RequestTimeout > requestTimeoutMax {
		faults = append(faults, faultf("request-timeout", "give a duration such as 30s", "is %v, outside %v to %v",
			c.RequestTimeout, requestTimeoutMin, requestTimeoutMax))
	}
	if !slices.Contains(output.Formats(), c.Output) {
		faults = append(faults, enumFault("output", c.Output, output.Formats()))
	}
	return faults
}

// notOfToken reports whether r cannot stand in an Authorization header's credentials.
func notOfToken(r rune) bool { return r <= ' ' || r > '~' }

// ParseURL returns s as a base URL for HTTP, or says what is wrong with it. A host and port alone mean http on loopback and https elsewhere.
func ParseURL(s string) (*url.URL, string) {
	if s != "" && !strings.Contains(s, "://") {
		u, problem := parseTarget("https://" + s)
		if problem == "" && Loopback(u.Hostname()) {
			s = "http://" + s
		} else {
			s = "https://" + s
		}
	}
	u, problem := parseTarget(s)
	if problem == "" && u.RawQuery != "" {
		return nil, "has a query"
	}
	return u, problem
}

// parseTarget is ParseURL for a URL that may have a query.
func parseTarget(s string) (*url.URL, string) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, "does not start with http:// or https://"
	case u.Hostname() == "":
		return nil, "names no host"
	case u.User != nil:
		return nil, "has a user or a password in it"
	case u.Fragment != "":
		return nil, "has a fragment"
	}
	return u, ""
}

// Loopback reports whether host, without a port, is this machine by its name or address alone: no name is looked up.
func Loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func enumFault(key, value string, valid []string) Fault {
	remedy := "use " + strings.Join(valid, ", ")
	if near, ok := Nearest(value, valid); ok {
		remedy = "did you mean " + near + "? Use " + strings.Join(valid, ", ")
	}
	return faultf(key, remedy, "is %.40q", value)
}
