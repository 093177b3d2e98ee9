package tree

import "fmt"

// Tier is what a job was granted from, and says which accounts pay for it. The numbers are part of the log's format.
type Tier uint8

// The tiers, in the order in which they are asked.
const (
	// TierNone is of a job that no account pays for: it ran on the tenant's own worker.
	TierNone Tier = 0
	// TierReserved is the tenant's own reservation.
	TierReserved Tier = 1
	// TierOrganization is the part of its organization's reservation that no tenant has as its own.
	TierOrganization Tier = 2
	// TierCredit is the tenant's credit.
	TierCredit Tier = 3
	// TierShared is what is spare, by weight.
	TierShared Tier = 4
)

func (t Tier) String() string {
	switch t {
	case TierNone:
		return "none"
	case TierReserved:
		return "reserved"
	case TierOrganization:
		return "organization"
	case TierCredit:
		return "credit"
	case TierShared:
		return "shared"
	default:
		return fmt.Sprintf("tier(%d)", uint8(t))
	}
}
