package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

const (
	votesName = "votes.db"
	tmpSuffix = ".tmp"

	// lockTimeout bounds the wait for another process's lock; without it the library waits for ever.
	lockTimeout = time.Second
)

// What the vote store holds: raft's own names, the list of the log's segments, and the replica's ID.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
	keySegments     = "Segments"
	keyReplica      = "Replica"
)

// openVotes opens the store of votes after walking its pages and verifying what is on them: a damaged file is not even
// opened for writing.
func openVotes(dir string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(dir, votesName)
	buckets, err := checkBolt(path)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", votesName, err)
	}
	if len(buckets) != 2 || buckets["conf"] == nil || len(buckets["logs"]) > 0 {
		return nil, fmt.Errorf("%w: file %q is not a store of votes", ErrCorrupt, votesName)
	}
	known := []string{keyCurrentTerm, keyLastVoteTerm, keyLastVoteCand, keySegments, keyReplica}
	for key, sealed := range buckets["conf"] {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("%w: file %q holds an unknown %q", ErrCorrupt, votesName, key)
		}
		if _, err := unsealValue([]byte(key), sealed); err != nil {
			return nil, fmt.Errorf("file %q: %w", votesName, err)
		}
	}
	return openBolt(path)
}

func openBolt(path string) (*raftboltdb.BoltStore, error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout: lockTimeout,
			// The free list is found again by walking the pages at the next start. Kept on disk, it would be one more
			// thing that damage can make the library overwrite live pages by.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
			NoStatistics:   true,
		},
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrLocked, filepath.Dir(path))
	}
	return store, err
}

// createVotes makes an empty store that is there whole or not at all: the library cannot tell a file that a crash left half
// initialised from a damaged one.
func createVotes(dir string) error {
	path := filepath.Join(dir, votesName)
	if err := os.Remove(path + tmpSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	store, err := openBolt(path + tmpSuffix)
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func isNotFound(err error) bool { return errors.Is(err, raftboltdb.ErrKeyNotFound) }
