package cellserver

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

func pageToken(seq uint64) string {
	return base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(nil, seq))
}

func parsePageToken(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	seq, n := binary.Uvarint(b)
	if err != nil || n != len(b) || seq == 0 {
		return 0, &cell.FieldError{Field: "page_token", Problem: "is not one of this list's", Remedy: "repeat next_page_token as it was, or begin without"}
	}
	return seq, nil
}

// listEnd is where a page of a tenant's jobs ended, newest first: at the job of a number. Two of a tenant's jobs can have one number, one of each class, when
// their lanes came from different cells. A page that ends between them is split there.
type listEnd struct {
	seq   uint64
	split bool       // only the class's job of that number was on the page
	class cell.Class // of the last job; 0 at the beginning
}

// classMark tells the class at the end of a token from a byte of its number.
const classMark = 0x40

// before is the number that the next page's jobs lie below; 0 for all.
func (e listEnd) before() uint64 {
	if e.split {
		return e.seq + 1
	}
	return e.seq
}

// listed reports whether a job of the next page was on one before.
func (e listEnd) listed(j *engine.Job) bool {
	return e.split && j.Seq == e.seq && j.Lane.ID.Class == e.class
}

func (e listEnd) token() string {
	if !e.split {
		return pageToken(e.seq)
	}
	return base64.RawURLEncoding.EncodeToString(append(binary.AppendUvarint(nil, e.seq), classMark|byte(e.class)))
}

// parseListEnd reads what token wrote. It returns a *cell.FieldError for anything else.
func parseListEnd(text string) (listEnd, error) {
	if b, err := base64.RawURLEncoding.DecodeString(text); err == nil && len(b) > 1 {
		class := cell.Class(b[len(b)-1] ^ classMark)
		if seq, n := binary.Uvarint(b[:len(b)-1]); n == len(b)-1 && seq != 0 && seq+1 != 0 && class.Valid() {
			return listEnd{seq: seq, split: true, class: class}, nil
		}
	}
	seq, err := parsePageToken(text)
	return listEnd{seq: seq}, err
}
