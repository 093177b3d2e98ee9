package bench

import (
	"os"
	"syscall"
)

// datasync makes what was written to f durable, without its times.
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
