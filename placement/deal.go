package placement

import (
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"

	"github.com/fairlead/fairlead/cell"
)

// Deal returns a hand of worker groups: bit i for group i+1, as many as hand says, of at most [cell.WorkerGroupsMax] groups. All of them when
// the hand is as large; 0, which is no hand, when either is not positive. Equal arguments give equal hands, for ever: seeds are hashed with
// FNV-1a and drawn from with PCG, neither of which may change. Every hand is equally likely over the seeds.
func Deal(seed string, groups, hand int) uint64 {
	groups = min(groups, cell.WorkerGroupsMax)
	if groups < 1 || hand < 1 {
		return 0
	}
	if hand >= groups {
		return 1<<groups - 1
	}
	h := fnv.New128a()
	h.Write([]byte(seed))
	sum := h.Sum(nil)
	source := rand.NewPCG(binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:]))
	// Each step draws from one card more than the one before, and takes the new card when it draws what it holds already: R. W. Floyd's way to
	// draw a set, in Bentley, "Programming Pearls: A Sample of Brilliance", 1987. Its sets are uniform when its draws are.
	var set uint64
	for j := groups - hand; j < groups; j++ {
		card := uint64(1) << below(source, uint64(j)+1)
		if set&card != 0 {
			card = 1 << j
		}
		set |= card
	}
	return set
}

// HandSeed returns the seed of a tenant's hand in a cell: a tenant that moves is dealt anew, so that two tenants that shared groups in one cell
// hardly share them in the next.
func HandSeed(tenant cell.TenantID, id cell.ID) string { return string(tenant) + "\n" + string(id) }

// below draws a number below n, uniformly. It is written out because hands must stay as they are: the way in which the library's draws use
// their source is not promised.
func below(source *rand.PCG, n uint64) uint64 {
	for {
		hi, lo := bits.Mul64(source.Uint64(), n)
		if lo >= -n%n { // else some results would be met once more than others
			return hi
		}
	}
}
