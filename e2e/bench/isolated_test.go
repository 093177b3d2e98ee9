package bench

import (
	"os"
	"slices"
	"testing"
)

// isolated runs f with a TB whose temporary directories and clean-ups end with it, in a test as in a benchmark.
func isolated(tb testing.TB, f func(testing.TB)) {
	tb.Helper()
	i := &isolatedTB{TB: tb}
	defer i.end()
	f(i)
}

// isolatedTB is a testing.TB that ends before the one it is part of.
type isolatedTB struct {
	testing.TB
	cleanups []func()
}

// Cleanup implements testing.TB.
func (i *isolatedTB) Cleanup(f func()) { i.cleanups = append(i.cleanups, f) }

// TempDir implements testing.TB. State directories are large: none outlives the round that it was for.
func (i *isolatedTB) TempDir() string {
	dir, err := os.MkdirTemp(i.TB.TempDir(), "")
	if err != nil {
		i.Fatal(err)
	}
	i.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			i.Error(err)
		}
	})
	return dir
}

func (i *isolatedTB) end() {
	for _, f := range slices.Backward(i.cleanups) {
		f()
	}
}
