package gateway

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
)

const (
	bearer             = "bearer "
	secretMask         = "[secret]"
	authorizationBytes = 512 // LimitAuthorizationSize: a key has 47 bytes, so that more than this is none
)

// Secret is an API key's secret. However it is printed or logged, it shows as [secret].
type Secret string

// Format implements [fmt.Formatter] for every verb.
func (Secret) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprint(s, secretMask) // a Formatter has nowhere to report to
}

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(secretMask) }

// MarshalText implements [encoding.TextMarshaler], for JSON logs.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretMask), nil }

// Hash returns what a [Directory] knows the secret by.
func (s Secret) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(s)) }

// secretOf returns the secret in an Authorization header, or the refusal.
func secretOf(header string) (Secret, error) {
	switch {
	case header == "":
		return "", refuseKey("the request carries no API key: send Authorization: Bearer KEY")
	case len(header) > authorizationBytes:
		return "", refuseKey(fmt.Sprintf("the Authorization header has %d bytes, of at most %d (%s): send Authorization: Bearer KEY",
			len(header), authorizationBytes, LimitAuthorizationSize))
	case len(header) <= len(bearer) || !strings.EqualFold(header[:len(bearer)], bearer):
		return "", refuseKey("the Authorization header holds no bearer key: send Authorization: Bearer KEY")
	}
	return Secret(strings.TrimSpace(header[len(bearer):])), nil
}
