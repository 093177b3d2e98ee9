package controlserver

import (
	"encoding/base64"
	"fmt"
	"iter"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

const (
	pageSizeDefault = 100
	pageSizeMax     = 500
)

// A page token is the list it belongs to and the id that the page before ended with, so that a page goes on where the last one ended
// however much comes and goes in between. It is opaque to callers, who must not build on its form.

func pageToken(list, last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\n" + last))
}

// pageAfter returns the id after which a page begins. It returns a *[cell.FieldError] for a token that is not of this list.
func pageAfter(list, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	of, last, ok := strings.Cut(string(text), "\n")
	if err != nil || !ok || of != list {
		return "", &cell.FieldError{
			Field: "page_token", Problem: fmt.Sprintf("%.60q is not a token of this list", token),
			Remedy: "give next_page_token of the page before, with the other fields unchanged, or none to begin",
		}
	}
	return last, nil
}

func pageSize(n int32) (int, error) {
	if n < 0 || n > pageSizeMax {
		return 0, &cell.FieldError{
			Field: "page_size", Problem: fmt.Sprintf("is %d, outside 0 to %d", n, pageSizeMax), Remedy: "give 1 to 500, or 0 for 100",
		}
	}
	if n == 0 {
		return pageSizeDefault, nil
	}
	return int(n), nil
}

// page returns the first n rows in the API's form, and the token of the next page when there are more.
func page[R, M any](list string, n int, rows iter.Seq[R], id func(R) string, message func(R) M) (out []M, next string) {
	last := ""
	for r := range rows {
		if len(out) == n {
			return out, pageToken(list, last)
		}
		out = append(out, message(r))
		last = id(r)
	}
	return out, ""
}
