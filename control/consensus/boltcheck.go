package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// The layout of a bbolt file, version 2, in the machine's byte order.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltPageHeader = 16 // id u64, flags u16, count u16, overflow u32
	boltMetaBytes  = 64 // magic, version, page size, flags u32; root, sequence, free list, high-water mark, txid, sum u64
	boltElement    = 16
	boltBucket     = 16 // root page u64, sequence u64
	boltBranch     = 1
	boltLeaf       = 2
	boltPageMin    = 1 << 9
	boltPageMax    = 1 << 16
	boltFileMax    = 64 << 20
)

// checkBolt walks every page that the file's newest transaction reaches and returns an error when the library could trip over
// one: it has no checksums except on its two meta pages, and on a damaged page it panics, some of it in goroutines of its
// own, or reads past its mapping, or counts to four thousand million. It returns what each bucket holds; whether
// these values are right, checksums of ours must tell.
//
// A damaged meta page is refused although the library would use the other one, which is the state one transaction earlier:
// a vote could be lost. A crash cannot cause it, the meta data lies within one sector.
func checkBolt(path string) (buckets map[string]map[string][]byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > boltFileMax {
		return nil, fmt.Errorf("%w: %d bytes in a file that holds a few votes", ErrCorrupt, info.Size())
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	w := boltWalk{file: file, seen: make(map[uint64]bool), buckets: make(map[string]map[string][]byte)}
	root, err := w.meta()
	if err == nil {
		err = w.page(root, "", keyRange{})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return w.buckets, nil
}

type boltWalk struct {
	file     []byte
	pageSize uint64
	end      uint64 // high-water mark: pages from here on were never used
	seen     map[uint64]bool
	buckets  map[string]map[string][]byte
}

// keyRange is where a page's keys must lie: from low, below high. Nil is open.
type keyRange struct{ low, high []byte }

// meta validates both meta pages and returns the root page of the newer one.
func (w *boltWalk) meta() (root uint64, err error) {
	order := binary.NativeEndian
	if len(w.file) < boltPageHeader+boltMetaBytes {
		return 0, errors.New("shorter than a page")
	}
	w.pageSize = uint64(order.Uint32(w.file[boltPageHeader+8:]))
	if w.pageSize < boltPageMin || w.pageSize > boltPageMax || uint64(len(w.file)) < 4*w.pageSize {
		return 0, fmt.Errorf("page size %d in a file of %d bytes", w.pageSize, len(w.file))
	}
	var newest uint64
	for i := range uint64(2) {
		page := w.file[i*w.pageSize:]
		meta := page[boltPageHeader : boltPageHeader+boltMetaBytes]
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:boltMetaBytes-8])
		if order.Uint32(meta) != boltMagic || order.Uint32(meta[4:]) != boltVersion || sum.Sum64() != order.Uint64(meta[56:]) {
			return 0, fmt.Errorf("meta page %d does not match its checksum", i)
		}
		if uint64(order.Uint32(meta[8:])) != w.pageSize {
			return 0, errors.New("the meta pages differ in page size")
		}
		if txid := order.Uint64(meta[48:]); i == 0 || txid > newest {
			newest, root, w.end = txid, order.Uint64(meta[16:]), order.Uint64(meta[40:])
		}
	}
	if w.end > uint64(len(w.file))/w.pageSize {
		return 0, fmt.Errorf("%d pages are in use, the file has %d", w.end, uint64(len(w.file))/w.pageSize)
	}
	return root, nil
}

// page walks the page with the id and what is below it.
func (w *boltWalk) page(id uint64, bucket string, keys keyRange) error {
	if id < 2 || id >= w.end || w.seen[id] {
		return fmt.Errorf("page %d is outside the file or referenced twice", id)
	}
	page := w.file[id*w.pageSize:]
	if got := binary.NativeEndian.Uint64(page); got != id {
		return fmt.Errorf("page %d says that it is page %d", id, got)
	}
	overflow := uint64(binary.NativeEndian.Uint32(page[12:]))
	if id+overflow >= w.end {
		return fmt.Errorf("page %d runs past the file", id)
	}
	for i := id; i <= id+overflow; i++ {
		if w.seen[i] {
			return fmt.Errorf("page %d is referenced twice", i)
		}
		w.seen[i] = true
	}
	return w.node(page[:(overflow+1)*w.pageSize], fmt.Sprintf("page %d", id), bucket, keys)
}

// node walks one branch or leaf, which may also lie inside a value.
func (w *boltWalk) node(node []byte, name, bucket string, keys keyRange) error {
	order := binary.NativeEndian
	if len(node) < boltPageHeader {
		return fmt.Errorf("%s is %d bytes", name, len(node))
	}
	flags, count := order.Uint16(node[8:]), int(order.Uint16(node[10:]))
	if boltPageHeader+count*boltElement > len(node) || (flags == boltBranch && count == 0) {
		return fmt.Errorf("%s has %d elements", name, count)
	}
	elements := make([]boltItem, count)
	for i := range elements {
		item, err := readItem(node, boltPageHeader+i*boltElement, flags)
		if err != nil {
			return fmt.Errorf("%s element %d: %w", name, i, err)
		}
		low := keys.low
		if i > 0 {
			low = elements[i-1].key
		}
		if c := bytes.Compare(item.key, low); c < 0 || (i > 0 && c == 0) || (keys.high != nil && bytes.Compare(item.key, keys.high) >= 0) {
			return fmt.Errorf("%s element %d: key out of order", name, i)
		}
		elements[i] = item
	}
	for i, item := range elements {
		below := keyRange{low: item.key, high: keys.high}
		if i+1 < count {
			below.high = elements[i+1].key
		}
		if err := w.item(item, flags, bucket, below); err != nil {
			return err
		}
	}
	return nil
}

// boltItem is one element of a branch (child) or of a leaf (value).
type boltItem struct {
	key, value []byte
	child      uint64
	isBucket   bool
}

func readItem(node []byte, at int, flags uint16) (boltItem, error) {
	order := binary.NativeEndian
	element := node[at : at+boltElement]
	cut := func(from, size uint64) ([]byte, error) {
		if from+size > uint64(len(node)) {
			return nil, errors.New("runs past its page")
		}
		return node[from : from+size], nil
	}
	var item boltItem
	var err error
	switch flags {
	case boltBranch:
		item.child = order.Uint64(element[8:])
		item.key, err = cut(uint64(at)+uint64(order.Uint32(element)), uint64(order.Uint32(element[4:])))
	case boltLeaf:
		kind := order.Uint32(element)
		pos, size := uint64(at)+uint64(order.Uint32(element[4:])), uint64(order.Uint32(element[8:]))
		item.isBucket = kind == 1
		if kind > 1 {
			return item, fmt.Errorf("unknown kind %d", kind)
		}
		if item.key, err = cut(pos, size); err == nil {
			item.value, err = cut(pos+size, uint64(order.Uint32(element[12:])))
		}
	default:
		err = fmt.Errorf("unknown page type %#x", flags)
	}
	if err == nil && len(item.key) == 0 {
		err = errors.New("empty key")
	}
	return item, err
}

func (w *boltWalk) item(item boltItem, flags uint16, bucket string, below keyRange) error {
	switch {
	case flags == boltBranch:
		return w.page(item.child, bucket, below)
	case !item.isBucket:
		if bucket == "" {
			return fmt.Errorf("%q is outside the buckets", item.key)
		}
		w.buckets[bucket][string(item.key)] = item.value
		return nil
	case bucket != "" || len(item.value) < boltBucket:
		return fmt.Errorf("bucket %q is nested or cut off", item.key)
	}
	name := string(item.key)
	w.buckets[name] = make(map[string][]byte)
	if root := binary.NativeEndian.Uint64(item.value); root != 0 {
		return w.page(root, name, keyRange{})
	}
	return w.node(item.value[boltBucket:], fmt.Sprintf("bucket %q", name), name, keyRange{})
}
