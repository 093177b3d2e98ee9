//go:build !unix

package consensus

import (
	"os"
	"path/filepath"
)

// lockDir relies on the store's own lock where there is no flock; only the first creation of a directory by two
// processes at once is unguarded then.
func lockDir(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
}
