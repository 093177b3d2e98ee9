package migrate

import "strings"

// What a hold's reason begins with that control itself gives. The first two heal: when what they are for is over, control resumes.
const (
	HeldLag         = "lag: "
	HeldUnreachable = "unreachable: "
	HeldFences      = "pause: "
	HeldAttempts    = "attempts: "
	HeldDigest      = "digest: "
	HeldBroken      = "copy: "
)

// healing reports whether a hold ends by itself.
func healing(held string) bool {
	return strings.HasPrefix(held, HeldLag) || strings.HasPrefix(held, HeldUnreachable)
}
