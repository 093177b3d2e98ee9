package engine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// Token fences one attempt: an outcome or an extension counts only while it repeats the token that the job stores.
type Token struct {
	Epoch   cell.Epoch // of the lane at the grant
	Attempt int32
	Nonce   uint64 // chosen by the leader, so that a token cannot be guessed from the counts
}

// String returns the form that workers repeat: epoch, attempt and nonce in hexadecimal.
func (t Token) String() string {
	b := make([]byte, 0, 40)
	b = strconv.AppendUint(b, uint64(t.Epoch), 16)
	b = append(b, '.')
	b = strconv.AppendUint(b, uint64(uint32(t.Attempt)), 16)
	b = append(b, '.')
	b = strconv.AppendUint(b, t.Nonce, 16)
	return string(b)
}

// ParseToken returns the token whose form is s. It returns a *cell.FieldError when s has another form.
func ParseToken(field, s string) (Token, error) {
	epoch, rest, ok1 := strings.Cut(s, ".")
	attempt, nonce, ok2 := strings.Cut(rest, ".")
	if !ok1 || !ok2 {
		return Token{}, notAToken(field, s)
	}
	e, err1 := strconv.ParseUint(epoch, 16, 64)
	a, err2 := strconv.ParseUint(attempt, 16, 31)
	n, err3 := strconv.ParseUint(nonce, 16, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return Token{}, notAToken(field, s)
	}
	return Token{Epoch: cell.Epoch(e), Attempt: int32(a), Nonce: n}, nil
}

func notAToken(field, s string) error {
	return &cell.FieldError{
		Field: field, Problem: fmt.Sprintf("%.60q is not a lease's token", s), Remedy: "repeat the token of the lease as it was",
	}
}
