package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// TokenPrefix begins every join token.
const TokenPrefix = "flj_"

const tokenSecretBytes = 32

// Token is a join token. It prints as a mask; [Token.Reveal] has the text.
type Token struct {
	text        string
	fingerprint [sha256.Size]byte
}

// ParseToken returns the token with this text. It returns a *[cell.FieldError] naming field, which does not quote it, when it is none.
func ParseToken(field, s string) (Token, error) {
	text, ok := strings.CutPrefix(s, TokenPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// Decoding skips line breaks: a token has one text, since its hash is of the text.
	if !ok || err != nil || len(b) != sha256.Size+tokenSecretBytes || base64.RawURLEncoding.EncodeToString(b) != text {
		return Token{}, &cell.FieldError{Field: field, Problem: "is not a join token", Remedy: "give flj_ and 86 characters, as fairlead cluster token printed it"}
	}
	return Token{text: s, fingerprint: [sha256.Size]byte(b)}, nil
}

// Reveal returns the text.
func (t Token) Reveal() string { return t.text }

// Fingerprint returns the SHA-256 of the authority's certificate that it pins.
func (t Token) Fingerprint() [sha256.Size]byte { return t.fingerprint }

// Format implements [fmt.Formatter] for every verb: it hides the token.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(join token)")) }
