package consensus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

const segmentsDirName = "log"

// segmentLog is the log of entries: raft-wal's segment files, with what version 0.4.0 leaves open closed here.
//
//   - Its own store of metadata has no checksum, and whatever segment file that metadata does not name is deleted at the
//     next open. The metadata is kept among the votes instead, sealed, and a file newer than all it names is refused.
//   - It creates a missing last segment anew. It is refused when the mark says that it had entries.
//   - After entries were cut off the end, the segment they were in cannot be read after a restart (hashicorp/raft-wal#31).
//     It is read through instead of by the index that it lacks.
//   - A process that dies between filling a segment and naming the next one finds a full last segment at its next start,
//     and the library then refuses every write. The rotation is completed before the library looks.
//   - It rotates segments in the background, ignoring errors, and cutting the log meanwhile confuses it. Here a write
//     waits for the rotation that it caused and returns its error.
type segmentLog struct {
	*wal.WAL
	meta     *segmentMeta
	rotation *rotation
	mu       sync.Mutex // one of StoreLogs and DeleteRange at a time
}

// openSegments opens the log in dir.
func openSegments(dir string, segmentBytes int, votes raft.StableStore, at progress, logger raftLogger) (*segmentLog, error) {
	path := filepath.Join(dir, segmentsDirName)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	rotated := &rotation{done: make(chan error, 1)}
	files := segment.NewFiler(path, walfs.New())
	meta := &segmentMeta{votes: votes, files: files, segmentBytes: segmentBytes, at: at, rotation: rotated}
	filer := &segmentFiler{SegmentFiler: files, meta: meta, at: at, rotation: rotated}
	log, err := wal.Open(path, wal.WithMetaStore(meta), wal.WithSegmentFiler(filer), wal.WithSegmentSize(segmentBytes),
		wal.WithLogger(logger))
	if err != nil {
		return nil, segmentError(err)
	}
	return &segmentLog{WAL: log, meta: meta, rotation: rotated}, nil
}

// segmentError tells damage from trouble with the disk.
func segmentError(err error) error {
	var io *fs.PathError
	if errors.Is(err, ErrCorrupt) || (errors.As(err, &io) && !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// StoreLogs implements raft.LogStore.
func (l *segmentLog) StoreLogs(entries []*raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.WAL.StoreLogs(entries); err != nil {
		return err
	}
	if !l.rotation.pending {
		return nil
	}
	l.rotation.pending = false
	return <-l.rotation.done
}

// StoreLog implements raft.LogStore.
func (l *segmentLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// DeleteRange implements raft.LogStore.
func (l *segmentLog) DeleteRange(low, high uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.WAL.DeleteRange(low, high)
}

// GetLog implements raft.LogStore.
func (l *segmentLog) GetLog(index uint64, entry *raft.Log) error {
	err := l.WAL.GetLog(index, entry)
	if errors.Is(err, wal.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	return err
}

// rotation tells the write that filled a segment when the next one is there.
type rotation struct {
	pending bool       // guarded by segmentLog.mu: the library asks inside StoreLogs whether the segment is full
	done    chan error // capacity one
}

// begin is called inside the write that filled a segment, before the library starts to rotate.
func (r *rotation) begin() {
	r.pending = true
	select {
	case <-r.done: //nolint:errcheck // what an earlier segment came to: segments are made at other occasions too
	default:
	}
}

func (r *rotation) end(err error) {
	select {
	case r.done <- err:
	default:
	}
}

// segmentMeta keeps the list of segments among the votes.
type segmentMeta struct {
	votes        raft.StableStore
	files        types.SegmentFiler
	segmentBytes int
	at           progress
	rotation     *rotation
	loaded       types.PersistentState
}

var _ types.MetaStore = (*segmentMeta)(nil)

// Load implements types.MetaStore.
func (m *segmentMeta) Load(string) (types.PersistentState, error) {
	value, err := readValue(m.votes, keySegments)
	if err != nil || value == nil {
		return types.PersistentState{}, err
	}
	if err := json.Unmarshal(value, &m.loaded); err != nil {
		return types.PersistentState{}, fmt.Errorf("%w: list of segments: %w", ErrCorrupt, err)
	}
	return m.loaded, m.completeRotation()
}

// completeRotation names the segment that follows a full last one.
func (m *segmentMeta) completeRotation() error {
	count := len(m.loaded.Segments)
	if count == 0 || !m.loaded.Segments[count-1].SealTime.IsZero() {
		return nil
	}
	last := &m.loaded.Segments[count-1]
	tail, err := m.files.RecoverTail(*last)
	if errors.Is(err, os.ErrNotExist) {
		return nil // RecoverTail of the filer judges it
	}
	if err != nil {
		return err
	}
	end := tail.LastIndex()
	full, indexStart, err := tail.Sealed()
	if err == nil && full && end >= last.BaseIndex && !m.indexHolds(*last, indexStart, tail) {
		indexStart = 0 // Open of the filer reads through it
	}
	if err := errors.Join(err, tail.Close()); err != nil || !full {
		return err
	}
	if end < last.BaseIndex {
		return m.dropTorn(*last)
	}
	now := time.Now()
	last.SealTime, last.MaxIndex, last.IndexStart = now, end, indexStart
	m.loaded.Segments = append(m.loaded.Segments, types.SegmentInfo{
		ID: m.loaded.NextSegmentID, BaseIndex: end + 1, MinIndex: end + 1, SizeLimit: uint32(m.segmentBytes),
		Codec: last.Codec, CreateTime: now,
	})
	m.loaded.NextSegmentID++
	return m.CommitState(m.loaded)
}

// indexHolds reports whether the index of a full segment leads to every entry in it. The library takes a segment for full as
// soon as it finds the head of an index, which is also what the torn end of the write looks like that was to fill it.
func (m *segmentMeta) indexHolds(info types.SegmentInfo, indexStart uint64, tail types.SegmentWriter) bool {
	info.SealTime, info.IndexStart = time.Now(), indexStart
	sealed, err := m.files.Open(info)
	if err != nil {
		return false
	}
	holds := true
	for index := info.BaseIndex; holds && index <= tail.LastIndex(); index++ {
		holds = sameEntry(index, sealed, tail)
	}
	return sealed.Close() == nil && holds
}

func sameEntry(index uint64, a, b types.SegmentReader) bool {
	x, err := a.GetLog(index)
	if err != nil {
		return false
	}
	defer x.Close() //nolint:errcheck // gives memory back
	y, err := b.GetLog(index)
	if err != nil {
		return false
	}
	defer y.Close() //nolint:errcheck // gives memory back
	return bytes.Equal(x.Bs, y.Bs)
}

// dropTorn removes a last segment whose first write was to fill it and was cut off: the library would find it both empty and
// full. It is made anew.
func (m *segmentMeta) dropTorn(info types.SegmentInfo) error {
	if m.at.LastIndex >= info.BaseIndex {
		return fmt.Errorf("%w: the segment from entry %d holds none, entry %d was stored", ErrCorrupt, info.BaseIndex, m.at.LastIndex)
	}
	return m.files.Delete(info.BaseIndex, info.ID)
}

// CommitState implements types.MetaStore.
func (m *segmentMeta) CommitState(state types.PersistentState) error {
	value, err := json.Marshal(state)
	if err == nil {
		err = m.votes.Set([]byte(keySegments), sealValue([]byte(keySegments), value))
	}
	if err != nil {
		m.rotation.end(err)
	}
	return err
}

// GetStable implements types.MetaStore. Votes are not kept through the log.
func (m *segmentMeta) GetStable([]byte) ([]byte, error) { return nil, errors.ErrUnsupported }

// SetStable implements types.MetaStore.
func (m *segmentMeta) SetStable([]byte, []byte) error { return errors.ErrUnsupported }

// Close implements io.Closer. The votes are closed by their owner.
func (m *segmentMeta) Close() error { return nil }

// segmentFiler checks what the library takes for granted about the files it finds.
type segmentFiler struct {
	types.SegmentFiler
	meta     *segmentMeta
	at       progress
	rotation *rotation
}

// List implements types.SegmentFiler. The library deletes what is listed and not named in its metadata. A crash leaves such
// files when it comes between a compaction's two steps, but a file is never made before its number is durable.
func (f *segmentFiler) List() (map[uint64]uint64, error) {
	listed, err := f.SegmentFiler.List()
	if err != nil {
		return nil, err
	}
	for id, base := range listed {
		if id >= f.meta.loaded.NextSegmentID {
			return nil, fmt.Errorf("%w: segment %d, from entry %d, is newer than the list of segments", ErrCorrupt, id, base)
		}
	}
	return listed, nil
}

// RecoverTail implements types.SegmentFiler.
func (f *segmentFiler) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	tail, err := f.SegmentFiler.RecoverTail(info)
	if errors.Is(err, os.ErrNotExist) && f.at.LastIndex >= info.BaseIndex {
		return nil, fmt.Errorf("%w: the segment from entry %d is missing, entry %d was stored", ErrCorrupt, info.BaseIndex, f.at.LastIndex)
	}
	if err != nil {
		return nil, err
	}
	return sealWatcher{SegmentWriter: tail, rotation: f.rotation}, nil
}

// Create implements types.SegmentFiler. It is the last step of a rotation.
func (f *segmentFiler) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	tail, err := f.SegmentFiler.Create(info)
	f.rotation.end(err)
	if err != nil {
		return nil, err
	}
	return sealWatcher{SegmentWriter: tail, rotation: f.rotation}, nil
}

// Open implements types.SegmentFiler.
func (f *segmentFiler) Open(info types.SegmentInfo) (types.SegmentReader, error) {
	if info.IndexStart == 0 {
		// Cut off before it was full: it has no index, and its entries are found by reading through it.
		return f.SegmentFiler.RecoverTail(info)
	}
	return f.SegmentFiler.Open(info)
}

// sealWatcher sees when the library finds the segment full, and so is about to rotate.
type sealWatcher struct {
	types.SegmentWriter
	rotation *rotation
}

// Sealed implements types.SegmentWriter.
func (w sealWatcher) Sealed() (bool, uint64, error) {
	sealed, indexStart, err := w.SegmentWriter.Sealed()
	if sealed {
		w.rotation.begin()
	}
	return sealed, indexStart, err
}
