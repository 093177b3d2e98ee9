package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// The flags of a run. The defaults are what the published figures were made with.
var (
	flagRounds  = flag.Int("speed.rounds", 5, "how often everything is measured")
	flagTime    = flag.Duration("speed.time", 2*time.Second, "how long each side of a comparison is measured in each round")
	flagOnly    = flag.String("speed.only", "", "measure only what matches this regular expression")
	flagProfile = flag.String("speed.profile", "", "write CPU profiles of the servers to this directory")
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverDirEnv); dir != "" {
		root := context.Background() //nolint:forbidigo // this is where the process begins
		if err := serve(root, dir); err != nil {
			fmt.Fprintln(os.Stderr, "bench server:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
