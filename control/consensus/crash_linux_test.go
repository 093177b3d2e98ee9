package consensus

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestFullDiskEndsTheProcess fills a small file system. What was acknowledged is there when there is room again.
func TestFullDiskEndsTheProcess(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	acked := make(map[uint64]bool)
	// A large file eats most of the room, so that the log meets the end in whatever it is doing.
	if err := os.WriteFile(dir+"/ballast", make([]byte, 600<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, wait := startChild(t, dir, 0, acked)
	var exit *exec.ExitError
	if err := wait(); !errors.As(err, &exit) || exit.ExitCode() != ExitStorage {
		t.Fatalf("the child ended with %v, want exit code %d", err, ExitStorage)
	}
	if len(acked) == 0 {
		t.Fatal("the child acknowledged nothing")
	}
	if err := os.Remove(dir + "/ballast"); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d acknowledged, %d applied", len(acked), checkLedger(t, dir, acked, 1<<32))
}
