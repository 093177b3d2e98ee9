package consensus

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// sealVersion is the first byte of a stored entry's Extensions; the entry's CRC32C follows, little-endian. The checksum
// sits there and not around the data so that sealing copies nothing. It covers everything that raft or the state machine
// acts upon; AppendedAt, which raft keeps for its metrics, is not stored.
const sealVersion = 1

const sealBytes = 1 + 4

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func entrySum(entry *raft.Log) uint32 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[0:], entry.Index)
	binary.LittleEndian.PutUint64(head[8:], entry.Term)
	head[16] = byte(entry.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli()), castagnoli(), entry.Data)
}

// sealEntry returns the entry as it is stored. It shares the data with the one it was given.
func sealEntry(entry *raft.Log) *raft.Log {
	seal := make([]byte, sealBytes)
	seal[0] = sealVersion
	binary.LittleEndian.PutUint32(seal[1:], entrySum(entry))
	return &raft.Log{Index: entry.Index, Term: entry.Term, Type: entry.Type, Data: entry.Data, Extensions: seal}
}

// unsealEntry verifies what the store returned for index and takes the seal off.
func unsealEntry(index uint64, entry *raft.Log) error {
	switch {
	case entry.Index != index:
		return fmt.Errorf("%w: entry %d reads as entry %d", ErrCorrupt, index, entry.Index)
	case len(entry.Extensions) != sealBytes || entry.Extensions[0] != sealVersion:
		return fmt.Errorf("%w: entry %d has no checksum", ErrCorrupt, index)
	case binary.LittleEndian.Uint32(entry.Extensions[1:]) != entrySum(entry):
		return fmt.Errorf("%w: entry %d (term %d, %d bytes) does not match its checksum", ErrCorrupt, index, entry.Term, len(entry.Data))
	}
	entry.Extensions = nil
	entry.AppendedAt = time.Time{}
	return nil
}

// sealValue and unsealValue do the same for the small values of the vote store; the sum covers the key too.
func sealValue(key, value []byte) []byte {
	return binary.LittleEndian.AppendUint32(append([]byte{}, value...), valueSum(key, value))
}

func unsealValue(key, sealed []byte) ([]byte, error) {
	at := len(sealed) - 4
	if at < 0 || binary.LittleEndian.Uint32(sealed[at:]) != valueSum(key, sealed[:at]) {
		return nil, fmt.Errorf("%w: the stored value of %q does not match its checksum", ErrCorrupt, key)
	}
	return sealed[:at], nil
}

func valueSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli()), castagnoli(), value)
}
