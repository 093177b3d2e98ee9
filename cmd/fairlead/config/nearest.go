package config

// Nearest returns the valid word that s is most likely meant to be: the first of those with the fewest edits, when that is at most a
// third of the longer word's length, and at least one.
func Nearest(s string, valid []string) (string, bool) {
	const lengthMax = 200 // what is longer is no slip of the finger
	if s == "" || len(s) > lengthMax {
		return "", false
	}
	best, bestEdits := "", -1
	for _, v := range valid {
		edits := distance(s, v)
		if edits <= max(1, max(len(s), len(v))/3) && (bestEdits < 0 || edits < bestEdits) {
			best, bestEdits = v, edits
		}
	}
	return best, bestEdits >= 0
}

// distance is the optimal string alignment distance of two words in bytes: insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
