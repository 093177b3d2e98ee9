package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// ErrFormat is wrapped by every error about bytes of a log entry or a snapshot that this version cannot read. Nothing was applied.
var ErrFormat = errors.New("format not understood")

// The wire format of entries and snapshots is records of fields in a fixed order: integers as varints, text and bytes with their length
// before them. A record stands behind its kind and its length. A later version may only append fields to a record: a reader that comes to
// a record's end early takes zero for the rest, and skips what it does not know at the end of one. What must not be
// skipped gets a new kind of record, which older versions refuse.

type writer struct {
	b    []byte
	part []byte // room for what b gets with its length before it
}

func (w *writer) uint(v uint64)            { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)              { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) instant(v cell.Instant)   { w.int(int64(v)) }
func (w *writer) duration(v time.Duration) { w.int(int64(v)) }
func (w *writer) fixed(v []byte)           { w.b = append(w.b, v...) }
func (w *writer) bytes(v []byte)           { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) text(v string)            { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) bool(v bool)              { w.b = append(w.b, b2u(v)) }
func (w *writer) fixed64(v uint64)         { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

func b2u(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// recordHeadBytes is the size of what stands before a record: its kind, a byte, and its length.
const recordHeadBytes = 5

// begin starts a record and returns what end wants.
func (w *writer) begin(kind byte) int {
	w.b = append(w.b, kind, 0, 0, 0, 0)
	return len(w.b)
}

// end writes the length of the record that began at.
func (w *writer) end(at int) {
	binary.LittleEndian.PutUint32(w.b[at-4:], uint32(len(w.b)-at)) // an entry and a record are far below 4 GiB
}

// reader takes fields off b. The first fault sticks in err, and everything after it reads as zero. At the end of b it reads zero without a
// fault: see the format.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", what, ErrFormat)
	}
	r.b = nil
}

// present fails at the end of b, for what no record may leave out.
func (r *reader) present() {
	if len(r.b) == 0 {
		r.fail("the bytes are cut off")
	}
}

func (r *reader) uint() uint64 {
	if len(r.b) == 0 {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("a number is cut off or too long")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	if len(r.b) == 0 {
		return 0
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("a number is cut off or too long")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int32() int32 {
	v := r.int()
	if int64(int32(v)) != v {
		r.fail("a number is out of its range")
		return 0
	}
	return int32(v)
}

func (r *reader) byte() uint8 {
	v := r.uint()
	if v > 255 {
		r.fail("a number is out of its range")
		return 0
	}
	return uint8(v)
}

func (r *reader) instant() cell.Instant   { return cell.Instant(r.int()) }
func (r *reader) duration() time.Duration { return time.Duration(r.int()) }

func (r *reader) bool() bool {
	switch r.byte() {
	case 0:
		return false
	case 1:
		return true
	default:
		r.fail("a truth value is neither 0 nor 1")
		return false
	}
}

func (r *reader) fixed(dst []byte) {
	if len(r.b) == 0 {
		return
	}
	if len(r.b) < len(dst) {
		r.fail("bytes are cut off")
		return
	}
	copy(dst, r.b)
	r.b = r.b[len(dst):]
}

func (r *reader) fixed64() uint64 {
	var b [8]byte
	r.fixed(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// view returns the next bytes without copying them.
func (r *reader) view() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail("bytes are cut off")
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

// bytes returns a copy, so that what is kept does not hold on to the whole entry.
func (r *reader) bytes() []byte {
	v := r.view()
	if len(v) == 0 {
		return nil
	}
	return append([]byte(nil), v...)
}

func (r *reader) text() string { return string(r.view()) }

// record returns the next record's kind and body; false at the end of b or at a fault.
func (r *reader) record() (byte, []byte, bool) {
	if len(r.b) == 0 || r.err != nil {
		return 0, nil, false
	}
	if len(r.b) < recordHeadBytes {
		r.fail("a record is cut off")
		return 0, nil, false
	}
	kind, n := r.b[0], binary.LittleEndian.Uint32(r.b[1:])
	r.b = r.b[recordHeadBytes:]
	if uint64(n) > uint64(len(r.b)) {
		r.fail("a record is cut off")
		return 0, nil, false
	}
	body := r.b[:n]
	r.b = r.b[n:]
	return kind, body, true
}
