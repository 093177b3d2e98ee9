package controlserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

const (
	joinTokenPrefix = "flj_"
	joinTokenBytes  = 32

	joinTokenLifetime    = time.Hour
	joinTokenLifetimeMin = time.Minute
	joinTokenLifetimeMax = 24 * time.Hour
)

// joinToken is the authority's fingerprint, so that an agent cannot be lured to another cluster, and 256 random bits. Like a [Secret] it never
// shows; reveal is the only way to its text.
type joinToken struct{ text string }

func newJoinToken(authority [sha256.Size]byte) joinToken {
	b := make([]byte, sha256.Size+joinTokenBytes)
	copy(b, authority[:])
	_, _ = rand.Read(b[sha256.Size:]) // ends the process rather than fail
	return joinToken{joinTokenPrefix + base64.RawURLEncoding.EncodeToString(b)}
}

// parseJoinToken returns a *[cell.FieldError], which does not quote it, when s has not the form that newJoinToken makes.
func parseJoinToken(s string) (joinToken, error) {
	text, ok := strings.CutPrefix(s, joinTokenPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(b) != sha256.Size+joinTokenBytes {
		return joinToken{}, &cell.FieldError{
			Field: "token", Problem: "is not a join token", Remedy: "give flj_ and 86 characters, as fairlead cluster token showed it",
		}
	}
	return joinToken{s}, nil
}

func (t joinToken) reveal() string { return t.text }

// hash returns what is stored of the token.
func (t joinToken) hash() [sha256.Size]byte { return sha256.Sum256([]byte(t.text)) }

// Format implements [fmt.Formatter] for every verb.
func (joinToken) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprint(f, secretMask) // a Formatter has nowhere to report to
}

// LogValue implements [slog.LogValuer].
func (joinToken) LogValue() slog.Value { return slog.StringValue(secretMask) }
