package consensus

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

const (
	snapshotDirName  = "snapshots" // raft's own name below the group's directory
	snapshotMagic    = "FLSNAP01"
	headerBytesMax   = 1 << 20
	snapshotMetaFile = "meta.json"
)

// errClosing ends a snapshot that is being written while the group closes.
var errClosing = errors.New("group is closing")

// snapshotHeader repeats, inside the checksummed file, what raft keeps beside it without a checksum. A flipped digit of the
// index there would make raft skip or repeat entries.
type snapshotHeader struct {
	Index              uint64
	Term               uint64
	Configuration      raft.Configuration
	ConfigurationIndex uint64
}

// snapshotStore wraps raft's file store, which syncs files and directory and keeps a CRC64 of the state. It adds the
// header, verifies it, and refuses to fall back to an older snapshot when the newest is damaged: the entries between
// the two are gone, so the older one would be silently wrong.
type snapshotStore struct {
	inner    *raft.FileSnapshotStore
	dir      string
	closing  atomic.Bool
	lastSize atomic.Int64
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

func openSnapshotStore(dir string, retain int, logger raftLogger) (*snapshotStore, error) {
	if err := removeUnfinished(filepath.Join(dir, snapshotDirName)); err != nil {
		return nil, err
	}
	inner, err := raft.NewFileSnapshotStoreWithLogger(dir, retain, logger)
	if err != nil {
		return nil, err
	}
	return &snapshotStore{inner: inner, dir: filepath.Join(dir, snapshotDirName)}, nil
}

// removeUnfinished deletes what a crash left of snapshots that were being written. Raft leaves them for ever.
func removeUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() && strings.HasSuffix(entry.Name(), tmpSuffix) {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// newest returns the newest snapshot after reading and verifying all of it, or nil when there is none.
func (s *snapshotStore) newest() (*raft.SnapshotMeta, error) {
	name, err := s.newestName()
	if name == "" || err != nil {
		return nil, err
	}
	listed, err := s.inner.List()
	if err != nil {
		return nil, err
	}
	if len(listed) == 0 || listed[0].ID != name {
		return nil, fmt.Errorf("%w: snapshot %s has no readable %s", ErrCorrupt, name, snapshotMetaFile)
	}
	meta, state, err := s.Open(name)
	if err != nil {
		return nil, err
	}
	s.lastSize.Store(meta.Size)
	return meta, state.Close()
}

// newestName finds the newest snapshot by the directories' names alone: raft's list passes over those whose metadata it
// cannot read. An unreadable directory that is not the newest is what a crash left of one being removed.
func (s *snapshotStore) newestName() (string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return "", err
	}
	type order struct{ term, index, at uint64 }
	var newest string
	var best order
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		var o order
		if n, err := fmt.Sscanf(entry.Name(), "%d-%d-%d", &o.term, &o.index, &o.at); n != 3 || err != nil {
			return "", fmt.Errorf("%w: %s/%s is not a snapshot's name", ErrCorrupt, snapshotDirName, entry.Name())
		}
		later := o.term > best.term || (o.term == best.term && (o.index > best.index || (o.index == best.index && o.at > best.at)))
		if newest == "" || later {
			newest, best = entry.Name(), o
		}
	}
	return newest, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, transport raft.Transport,
) (raft.SnapshotSink, error) {
	inner, err := s.inner.Create(version, index, term, configuration, configurationIndex, transport)
	if err != nil {
		return nil, err
	}
	sink := &snapshotSink{SnapshotSink: inner, store: s}
	header, err := encodeHeader(snapshotHeader{index, term, configuration, configurationIndex})
	if err == nil {
		_, err = sink.Write(header)
	}
	if err != nil {
		return nil, errors.Join(err, inner.Cancel())
	}
	return sink, nil
}

func encodeHeader(header snapshotHeader) ([]byte, error) {
	body, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	return appendFramed(nil, snapshotMagic, body), nil
}

// List implements raft.SnapshotStore.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	listed, err := s.inner.List()
	if err != nil || len(listed) == 0 {
		return listed, err
	}
	// One only: raft would fall back to the next when it cannot restore the first.
	return listed[:1], nil
}

// Open implements raft.SnapshotStore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, state, err := s.inner.Open(id)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: snapshot %s: %w", ErrCorrupt, id, err)
	}
	header, size, err := decodeHeader(state)
	if err == nil {
		err = header.matches(meta)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: snapshot %s: %w", ErrCorrupt, id, err), state.Close())
	}
	// A leader tells a follower how much will come: what is left to read here. The follower puts a header of its own before it.
	meta.Size -= size
	return meta, state, nil
}

// decodeHeader reads a header and how many bytes it takes.
func decodeHeader(r io.Reader) (header snapshotHeader, size int64, err error) {
	body, err := readFramed(r, snapshotMagic)
	if err != nil {
		return snapshotHeader{}, 0, err
	}
	return header, framedBytes(body), json.Unmarshal(body, &header)
}

// appendFramed writes a body with a mark of what it is, its length and its checksum.
func appendFramed(raw []byte, magic string, body []byte) []byte {
	raw = append(raw, magic...)
	raw = binary.LittleEndian.AppendUint32(raw, uint32(len(body))) //nolint:gosec // a header, at most headerBytesMax
	raw = append(raw, body...)
	return binary.LittleEndian.AppendUint32(raw, crc32.Checksum(body, castagnoli()))
}

// framedBytes is what appendFramed adds for a body.
func framedBytes(body []byte) int64 { return int64(len(snapshotMagic) + 4 + len(body) + 4) }

func readFramed(r io.Reader, magic string) ([]byte, error) {
	prefix := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, prefix); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(prefix[len(magic):])
	if !bytes.HasPrefix(prefix, []byte(magic)) || size > headerBytesMax {
		return nil, errors.New("it does not start with a header")
	}
	body := make([]byte, size+4)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(body[size:]) != crc32.Checksum(body[:size], castagnoli()) {
		return nil, errors.New("the header does not match its checksum")
	}
	return body[:size], nil
}

// matches compares the header with what raft read from its own file.
func (h snapshotHeader) matches(meta *raft.SnapshotMeta) error {
	mine, err := json.Marshal(h)
	if err != nil {
		return err
	}
	theirs, err := json.Marshal(snapshotHeader{meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex})
	if err != nil {
		return err
	}
	if !bytes.Equal(mine, theirs) {
		return fmt.Errorf("%s says %s, the state says %s", snapshotMetaFile, theirs, mine)
	}
	return nil
}

// snapshotSink stops a write when the group closes and learns the snapshot's size.
type snapshotSink struct {
	raft.SnapshotSink
	store *snapshotStore
	size  int64
}

// Write implements raft.SnapshotSink.
func (s *snapshotSink) Write(data []byte) (int, error) {
	if s.store.closing.Load() {
		return 0, errClosing
	}
	n, err := s.SnapshotSink.Write(data)
	s.size += int64(n)
	return n, err
}

// Close implements raft.SnapshotSink.
func (s *snapshotSink) Close() error {
	err := s.SnapshotSink.Close()
	if err == nil {
		s.store.lastSize.Store(s.size)
	}
	return err
}
