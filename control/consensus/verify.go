package consensus

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"
)

// contents is what a verified directory holds.
type contents struct {
	firstIndex, lastIndex, lastTerm uint64
	snapshotIndex, snapshotTerm     uint64
	disagrees                       bool // the entry at snapshotIndex is of another term than the snapshot
	currentTerm, voteTerm           uint64
	replayBytes                     int64
	replay                          []raft.Log // from firstIndex, as long as they fit; see guard.keep
}

// replayKeepBytes bounds the entries that verification keeps in memory for the replay that follows. What does not fit is
// read again.
const replayKeepBytes = 256 << 20

// verifyStore reads every entry and every vote and checks what raft takes for granted: checksums, no hole, terms that do not
// fall, and a log that continues the newest snapshot.
func verifyStore(log raft.LogStore, votes raft.StableStore, newest *raft.SnapshotMeta) (contents, error) {
	var c contents
	if newest != nil {
		c.snapshotIndex, c.snapshotTerm = newest.Index, newest.Term
	}
	var err error
	if c.firstIndex, err = log.FirstIndex(); err != nil {
		return c, err
	}
	if c.lastIndex, err = log.LastIndex(); err != nil {
		return c, err
	}
	if c.lastIndex > 0 && c.firstIndex > c.snapshotIndex+1 {
		return c, fmt.Errorf("%w: the log begins at entry %d, but the newest snapshot ends at %d", ErrCorrupt, c.firstIndex, c.snapshotIndex)
	}
	if err := c.readEntries(log); err != nil {
		return c, err
	}
	if c.currentTerm, err = readNumber(votes, keyCurrentTerm); err != nil {
		return c, err
	}
	if c.voteTerm, err = readNumber(votes, keyLastVoteTerm); err != nil {
		return c, err
	}
	if _, err := readValue(votes, keyLastVoteCand); err != nil {
		return c, err
	}
	if seen := max(c.lastTerm, c.snapshotTerm); c.currentTerm < seen {
		return c, fmt.Errorf("%w: the current term is %d, but the log has entries of term %d", ErrCorrupt, c.currentTerm, seen)
	}
	return c, nil
}

func (c *contents) readEntries(log raft.LogStore) error {
	if c.lastIndex == 0 {
		return nil
	}
	var kept int64
	for index := c.firstIndex; index <= c.lastIndex; index++ {
		var entry raft.Log
		if err := log.GetLog(index, &entry); err != nil {
			return fmt.Errorf("%w: entry %d of %d to %d: %w", ErrCorrupt, index, c.firstIndex, c.lastIndex, err)
		}
		if err := unsealEntry(index, &entry); err != nil {
			return err
		}
		if entry.Term < c.lastTerm {
			return fmt.Errorf("%w: entry %d has term %d after term %d", ErrCorrupt, index, entry.Term, c.lastTerm)
		}
		c.lastTerm = entry.Term
		c.disagrees = c.disagrees || (index == c.snapshotIndex && entry.Term != c.snapshotTerm)
		if kept += entryBytes(&entry); kept <= replayKeepBytes {
			c.replay = append(c.replay, entry)
		}
		if index > c.snapshotIndex {
			c.replayBytes += entryBytes(&entry)
		}
	}
	return nil
}

// overruled reports whether the log is not one that the newest snapshot continues in.
func (c contents) overruled() bool {
	return c.lastIndex > 0 && c.snapshotIndex > 0 && (c.lastIndex < c.snapshotIndex || c.disagrees)
}

// reaches compares the contents with the mark.
func (c contents) reaches(at progress) error {
	switch end := max(c.lastIndex, c.snapshotIndex); {
	case end < at.LastIndex:
		return fmt.Errorf("%w: the log ends at entry %d, but entry %d was stored", ErrCorrupt, end, at.LastIndex)
	case c.currentTerm < at.Term:
		return fmt.Errorf("%w: the current term is %d, but %d was stored", ErrCorrupt, c.currentTerm, at.Term)
	case c.voteTerm < at.VoteTerm:
		return fmt.Errorf("%w: the last vote is of term %d, but one of term %d was stored", ErrCorrupt, c.voteTerm, at.VoteTerm)
	}
	return nil
}

func readValue(s raft.StableStore, key string) ([]byte, error) {
	sealed, err := s.Get([]byte(key))
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return unsealValue([]byte(key), sealed)
}

func readNumber(s raft.StableStore, key string) (uint64, error) {
	value, err := readValue(s, key)
	if value == nil || err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: the stored value of %q is %d bytes, not 8", ErrCorrupt, key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}
