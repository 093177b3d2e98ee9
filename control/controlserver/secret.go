package controlserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

const (
	secretPrefix = "flk_" // lets a scanner of repositories find a key that was committed
	secretBytes  = 32     // 256 bits: nobody guesses it, so that a plain SHA-256 is enough to keep
	secretMask   = "[secret]"
)

// Secret is an API key's secret. However it is printed or logged, it shows as [secret]; Reveal is the only way to its text.
type Secret struct{ text string }

// NewSecret returns a fresh secret of 256 random bits.
func NewSecret() Secret {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // ends the process rather than fail
	return Secret{secretPrefix + base64.RawURLEncoding.EncodeToString(b[:])}
}

// ParseSecret returns the secret with this text. It returns a *[cell.FieldError], which does not quote it, when it has not the form that
// [NewSecret] makes.
func ParseSecret(field, s string) (Secret, error) {
	text, ok := strings.CutPrefix(s, secretPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(b) != secretBytes || len(text) != base64.RawURLEncoding.EncodedLen(secretBytes) { // line breaks decode to nothing
		return Secret{}, &cell.FieldError{
			Field: field, Problem: "is not a secret", Remedy: "give flk_ and 43 characters, as it was shown when the key was created",
		}
	}
	return Secret{s}, nil
}

// Reveal returns the text, to be shown once.
func (s Secret) Reveal() string { return s.text }

// Hash returns what is stored of the secret.
func (s Secret) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(s.text)) }

// Format implements [fmt.Formatter] for every verb.
func (Secret) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprint(f, secretMask) // a Formatter has nowhere to report to
}

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(secretMask) }

// MarshalText implements [encoding.TextMarshaler], for JSON logs.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretMask), nil }
