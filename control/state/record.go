package state

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// number and text leave a zero value out.
func number(b []byte, num protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), n)
}

func text(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// fields calls set with the number of each field of a record's body and its value: n of a number, b of a text. It returns [ErrSnapshot]
// when the body is damaged or set does not know a field.
func fields(body []byte, set func(num int, n uint64, b []byte) bool) error {
	for len(body) > 0 {
		num, typ, size := protowire.ConsumeTag(body)
		if size < 0 {
			return damaged(size)
		}
		body = body[size:]
		var n uint64
		var b []byte
		switch typ { // of the two wire types that records use
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(body)
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(body)
		default:
			return fmt.Errorf("%w: field %d has wire type %d", ErrSnapshot, num, typ)
		}
		if size < 0 {
			return damaged(size)
		}
		body = body[size:]
		if !set(int(num), n, b) {
			return fmt.Errorf("%w: field %d of a record is of a later release", ErrSnapshot, num)
		}
	}
	return nil
}

func damaged(code int) error { return fmt.Errorf("%w: %w", ErrSnapshot, protowire.ParseError(code)) }

// reader takes records from a stream, which it reads in pieces.
type reader struct {
	from io.Reader
	buf  []byte // read and not taken yet
	err  error  // what reading ended with
}

// record returns the next record. Its body is valid until the next call.
func (r *reader) record() (num int, body []byte, err error) {
	const headBytesMax = 20 // a tag and a length of ten bytes each
	if err := r.fill(headBytesMax); err != nil {
		return 0, nil, err
	}
	number, typ, tag := protowire.ConsumeTag(r.buf)
	if tag < 0 {
		return 0, nil, r.short(tag)
	}
	if typ != protowire.BytesType {
		return 0, nil, fmt.Errorf("%w: a record has wire type %d", ErrSnapshot, typ)
	}
	length, size := protowire.ConsumeVarint(r.buf[tag:])
	if size < 0 {
		return 0, nil, r.short(size)
	}
	if length > recordBytesMax {
		return 0, nil, fmt.Errorf("%w: a record has %d bytes, of at most %d", ErrSnapshot, length, recordBytesMax)
	}
	head, all := tag+size, tag+size+int(length)
	if err := r.fill(all); err != nil {
		return 0, nil, err
	}
	if len(r.buf) < all {
		return 0, nil, fmt.Errorf("%w: it is cut off within a record", ErrSnapshot)
	}
	body = r.buf[head:all]
	r.buf = r.buf[all:]
	return int(number), body, nil
}

// end returns an error unless the stream ends here.
func (r *reader) end() error {
	if err := r.fill(1); err != nil {
		return err
	}
	if len(r.buf) > 0 {
		return fmt.Errorf("%w: there is more after its end", ErrSnapshot)
	}
	return nil
}

// fill reads until n bytes are there or the stream ends.
func (r *reader) fill(n int) error {
	for len(r.buf) < n && r.err == nil {
		if cap(r.buf) < n { // a fresh piece: whoever holds the last record's body keeps the old one
			r.buf = append(make([]byte, 0, max(writeBytes, n)), r.buf...)
		}
		var got int
		got, r.err = r.from.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+got]
	}
	if r.err != nil && !errors.Is(r.err, io.EOF) {
		return fmt.Errorf("read the snapshot: %w", r.err)
	}
	return nil
}

// short explains a head that cannot be read: the stream ended, or the bytes are none.
func (r *reader) short(code int) error {
	if len(r.buf) == 0 {
		return fmt.Errorf("%w: it ends before its end", ErrSnapshot)
	}
	return damaged(code)
}
