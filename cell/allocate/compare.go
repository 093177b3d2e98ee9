package allocate

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// HardSplit is what fixed quotas would give, for comparison: every claim an equal part of the capacity, or what it demands and its limit
// allows if that is less. What one does not use no other gets. It returns the errors of Allocate.
func HardSplit(capacity cell.Rate, claims []Claim) ([]cell.Rate, error) {
	plain := bare(claims)
	if err := check(capacity, plain, nil); err != nil {
		return nil, err
	}
	shares := make([]cell.Rate, len(claims))
	for i, n := range newTree(capacity, plain, nil).claims {
		shares[i] = min(capacity/cell.Rate(len(claims)), cell.Rate(n.demand))
	}
	return shares, nil
}

// MaxMin is what equal shares would give, for comparison: the same weight for all, no reservation, no organization; what one does not use the
// others divide. It returns the errors of Allocate.
func MaxMin(capacity cell.Rate, claims []Claim) ([]cell.Rate, error) {
	p, err := Allocate(capacity, bare(claims), nil)
	if err != nil {
		return nil, err
	}
	shares := make([]cell.Rate, len(claims))
	for i, s := range p.Claims {
		shares[i] = s.Final
	}
	return shares, nil
}

// bare is the claims with nothing but demands and limits.
func bare(claims []Claim) []Claim {
	plain := slices.Clone(claims)
	for i := range plain {
		plain[i].Organization, plain[i].Reservation, plain[i].Weight = "", 0, cell.WeightDefault
	}
	return plain
}
