package command

import "google.golang.org/protobuf/encoding/protowire"

// A part is a field whose content is fields.

// appendPart leaves a part without fields out.
func appendPart(b []byte, num protowire.Number, body []byte) []byte {
	if len(body) == 0 {
		return b
	}
	return appendBytes(b, num, body)
}

// setPart reads the fields of a part into to by set. It reports whether it knows all of them: what does not parse is as unknown as a field.
func setPart[T any](to *T, f field, set func(*T, field) bool) bool {
	known := true
	err := fields(f.b, func(f field) error {
		known = set(to, f) && known
		return nil
	})
	return err == nil && known
}

// addPart reads a part and adds it to what to points to.
func addPart[T any](to *[]T, f field, set func(*T, field) bool) bool {
	var part T
	known := setPart(&part, f, set)
	*to = append(*to, part)
	return known
}

func appendUnsigned[N ~uint64](b []byte, num protowire.Number, n N) []byte {
	if n == 0 {
		return b
	}
	return appendVarint(b, num, uint64(n))
}

func appendFlag(b []byte, num protowire.Number, set bool) []byte {
	if !set {
		return b
	}
	return appendVarint(b, num, 1)
}

func appendCount(b []byte, num protowire.Number, n *int) []byte {
	if n == nil {
		return b
	}
	return appendVarint(b, num, uint64(*n))
}
