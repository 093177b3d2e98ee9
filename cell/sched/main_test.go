package sched

import (
	"flag"
	"os"
	"testing"
)

// seed makes the usual cases the same on every machine, so that nobody is stopped by one that nobody has met before. -rapid.seed has new ones.
const seed = "20261130"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(seed); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
