package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

const (
	markName  = "mark"
	markMagic = "FLMARK01"
	markBytes = len(markMagic) + 3*8 + 4
)

// progress is the lower bound that a directory promises: what its log and its votes have reached at least.
type progress struct {
	LastIndex uint64 // last entry that was stored, and so perhaps acknowledged
	Term      uint64
	VoteTerm  uint64
}

// mark is the file that remembers the progress, beside the log and independent of it. A store that lost its end to damage
// looks like one that ends earlier; only something else can tell. It is overwritten in place after each write of the log
// has reached the disk, and is not synced: against a killed process the page cache is enough, and after a power cut an
// older mark is a weaker bound, never a wrong one. Its bytes lie within one sector.
type mark struct {
	file *os.File
	at   progress
}

// readMark returns os.ErrNotExist when there is none, and ErrCorrupt when it is damaged.
func readMark(dir string) (progress, error) {
	raw, err := os.ReadFile(filepath.Join(dir, markName))
	if err != nil {
		return progress{}, err
	}
	body := max(len(raw)-4, 0)
	if len(raw) != markBytes || !bytes.HasPrefix(raw, []byte(markMagic)) ||
		binary.LittleEndian.Uint32(raw[body:]) != crc32.Checksum(raw[:body], castagnoli()) {
		return progress{}, fmt.Errorf("%w: file %q does not match its checksum", ErrCorrupt, markName)
	}
	field := raw[len(markMagic):]
	return progress{
		LastIndex: binary.LittleEndian.Uint64(field[0:]),
		Term:      binary.LittleEndian.Uint64(field[8:]),
		VoteTerm:  binary.LittleEndian.Uint64(field[16:]),
	}, nil
}

func encodeMark(at progress) []byte {
	raw := append(make([]byte, 0, markBytes), markMagic...)
	raw = binary.LittleEndian.AppendUint64(raw, at.LastIndex)
	raw = binary.LittleEndian.AppendUint64(raw, at.Term)
	raw = binary.LittleEndian.AppendUint64(raw, at.VoteTerm)
	return binary.LittleEndian.AppendUint32(raw, crc32.Checksum(raw, castagnoli()))
}

// createMark writes the first mark so that it is there whole or not at all.
func createMark(dir string) error {
	path := filepath.Join(dir, markName)
	if err := writeSynced(path+tmpSuffix, encodeMark(progress{})); err != nil {
		return err
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func openMark(dir string) (*mark, error) {
	at, err := readMark(dir)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, markName), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return &mark{file: file, at: at}, nil
}

// set records the progress. It is called by one goroutine at a time.
func (m *mark) set(at progress) error {
	if at == m.at {
		return nil
	}
	if _, err := m.file.WriteAt(encodeMark(at), 0); err != nil {
		return err
	}
	m.at = at
	return nil
}

// sync makes the mark durable, which matters before the log is cut back: a mark above the new end would condemn it.
func (m *mark) sync() error { return m.file.Sync() }

func (m *mark) close() error { return errors.Join(m.file.Sync(), m.file.Close()) }

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
