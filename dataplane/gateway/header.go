package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// hopByHop are the headers of one connection, which do not go on. Te is one of them and is handled apart.
func hopByHop() []string {
	return []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding",
		"Upgrade", "Expect",
	}
}

// dropHops removes what belongs to the connection that h came over, and every header between agents.
func dropHops(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop() {
		h.Del(name)
	}
	for name := range h {
		if len(name) >= len(headerPrefix) && strings.EqualFold(name[:len(headerPrefix)], headerPrefix) {
			delete(h, name)
		}
	}
}

// outward returns the headers with which r goes on: its own without the key, without what belongs to its connection, and without any that
// only agents may send; and who the door has found its caller to be.
func outward(r *http.Request, caller cell.Caller) (http.Header, error) {
	h := r.Header.Clone()
	trailers := strings.Contains(strings.ToLower(strings.Join(h["Te"], ",")), "trailers")
	dropHops(h)
	h.Del("Authorization")
	h.Del("Cookie")
	if trailers {
		h.Set("Te", "trailers") // gRPC asks for it
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // so that none is made up
	}
	if caller.Key == "" {
		return h, nil
	}
	text, err := encodeCaller(caller)
	if err != nil {
		return nil, err
	}
	h.Set(HeaderCaller, text)
	return h, nil
}

// timeoutOf returns how long the caller waits, by the header of its protocol. It returns false when it does not say, or in a way that is
// not understood: the agent that serves it refuses it then.
func timeoutOf(h http.Header) (time.Duration, bool) {
	const digitsMax = 10
	text, unit := h.Get("Connect-Timeout-Ms"), time.Millisecond
	if t := h.Get("Grpc-Timeout"); t != "" {
		units := map[byte]time.Duration{
			'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
		}
		text, unit = t[:len(t)-1], units[t[len(t)-1]]
	}
	if text == "" || len(text) > digitsMax || unit == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, false
	}
	const most = 24 * time.Hour // beyond that it is as good as none, and would overflow
	if n > uint64(most/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
