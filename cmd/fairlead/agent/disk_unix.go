//go:build unix

package agent

import "syscall"

// diskFree returns a function that tells how many bytes are free for this user where dir is.
func diskFree(dir string) func() (int64, error) {
	return func() (int64, error) {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			return 0, err
		}
		return int64(fs.Bavail) * int64(fs.Bsize), nil //nolint:unconvert // sizes differ between systems; no disk has 2^63 bytes
	}
}
