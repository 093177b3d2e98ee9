package state

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// EpochsPerRestore is added to every epoch when the state is replaced by one that was saved earlier: more than any cell can have been told of since.
const EpochsPerRestore = 1 << 32

// Cluster is the cluster's record.
type Cluster struct {
	ID      string
	Created cell.Instant
	// FeatureLevel is what every agent may rely on the others to understand.
	FeatureLevel int
	// Restores is how often the state was replaced by one that was saved earlier.
	Restores int64
}

// Cluster returns the cluster's record, if it was made.
func (v View) Cluster() (Cluster, bool) { return v.head.cluster, v.head.cluster.ID != "" }

func (s *State) createCluster(c command.CreateCluster) Result {
	if old := s.head.cluster; old.ID != "" {
		if old.ID == c.ID { // an id is random: nobody else has made it
			return Result{Cluster: old, Repeated: true}
		}
		return Result{Refused: &ExistsError{KindCluster, old.ID}}
	}
	s.head.cluster = Cluster{ID: c.ID, Created: s.head.clock, FeatureLevel: command.FeatureLevelFirst}
	return Result{Cluster: s.head.cluster}
}

func (s *State) setFeatureLevel(c command.SetFeatureLevel) Result {
	was := s.head.cluster.FeatureLevel
	switch {
	case s.head.cluster.ID == "":
		return Result{Refused: &NotFoundError{Kind: KindCluster}}
	case c.Level < was:
		return Result{Refused: &cell.FieldError{
			Field: "level", Problem: fmt.Sprintf("is %d, below the present %d", c.Level, was), Remedy: "there is no way back: restore a snapshot instead",
		}}
	}
	s.head.cluster.FeatureLevel = c.Level
	return Result{Cluster: s.head.cluster, Repeated: c.Level == was}
}

// restored makes everything that was given out before older than everything from now on. It looks at every tenant: it is rare.
func (s *State) restored() Result {
	if s.head.cluster.ID == "" {
		return Result{Refused: &NotFoundError{Kind: KindCluster}}
	}
	v := s.View()
	txn := s.db.Txn(true)
	for t := range v.Tenants("") {
		t.Policy.Epoch += EpochsPerRestore
		must(txn.Insert(tableTenants, &t))
	}
	for o := range v.Organizations("") {
		o.Policy.Epoch += EpochsPerRestore
		must(txn.Insert(tableOrganizations, &o))
	}
	for a := range v.Assignments("") {
		a.Epoch += EpochsPerRestore
		must(txn.Insert(tableAssignments, &a))
	}
	for m := range v.LiveMigrations() { // it goes on, or is seen not to fit what the cells did since
		for i := range m.Lanes {
			m.Lanes[i].Epoch += EpochsPerRestore
		}
		must(txn.Insert(tableMigrations, &m))
	}
	// Whoever has a token that was made since is refused anyway; that one of before is not used twice cannot be known any more.
	_, err := txn.DeleteAll(tableTokens, byID)
	must(err)
	txn.Commit()
	s.head.tokens = 0
	s.head.cluster.Restores++
	return Result{Cluster: s.head.cluster}
}

func appendCluster(b []byte, c Cluster) []byte {
	b = text(b, 1, c.ID)
	b = number(b, 2, uint64(c.Created))
	b = number(b, 3, uint64(c.FeatureLevel))
	return number(b, 4, uint64(c.Restores))
}

func (s *State) restoreCluster(body []byte) error {
	var c Cluster
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			c.ID = string(b)
		case 2:
			c.Created = cell.Instant(n)
		case 3:
			c.FeatureLevel = int(n)
			return n <= uint64(command.FeatureLevelMax()) // as a field of a later release
		case 4:
			c.Restores = int64(n)
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if c.ID == "" || s.head.cluster.ID != "" {
		return fmt.Errorf("%w: the cluster is there twice or has no id", ErrSnapshot)
	}
	s.head.cluster = c
	return nil
}

// part appends a field whose content is fields, unless it has none.
func part(b []byte, num protowire.Number, body []byte) []byte {
	if len(body) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), body)
}
