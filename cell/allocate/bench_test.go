package allocate_test

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/allocate"
)

func BenchmarkAllocate(b *testing.B) {
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("claims=%d", n), func(b *testing.B) {
			claims := make([]allocate.Claim, n)
			for i := range claims {
				claims[i] = allocate.Claim{
					Name: fmt.Sprint(i), Demand: cell.Rate(i%997) * unit, Reservation: cell.Rate(i%13) * unit, Weight: cell.Weight(1000 + i%7),
				}
			}
			for b.Loop() {
				if _, err := allocate.Allocate(min(cell.Rate(n)*100*unit, cell.RateMax), claims, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
