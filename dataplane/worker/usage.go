package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/cell"
)

// ErrNoAttempt is returned by [Use] when its context is not that of an attempt.
var ErrNoAttempt = errors.New("worker: the context is not that of an attempt")

// Use adds to what the attempt that ctx is of has used: amount of a resource, in its own unit and steps of a millionth. The resources are
// cpu_ms, tokens, memory_byte_ms, read_bytes, write_bytes, network_bytes and calls. It is reported with the attempt's outcome, whatever
// that is; what is told after the handler has returned is lost. A cell that charges by a resource learns from it what jobs cost.
//
// It returns a *[cell.FieldError] when resource is none of them, or amount or the sum is out of bounds, and [ErrNoAttempt]; then nothing
// is added. It may be called concurrently.
func Use(ctx context.Context, resource string, amount float64) error {
	u, ok := ctx.Value(usageKey{}).(*usage)
	if !ok {
		return ErrNoAttempt
	}
	return u.add(resource, amount)
}

type usageKey struct{}

// usage is what one attempt has used so far.
type usage struct {
	mu    sync.Mutex
	used  cell.Resources
	fault error // the first thing that was said and not understood, where nobody could be told
}

// attemptContext is a context with the usage of its attempt, in one piece of memory.
type attemptContext struct {
	context.Context //nolint:containedctx // it is one

	usage usage
}

// Value implements [context.Context].
func (c *attemptContext) Value(key any) any {
	if key == (usageKey{}) {
		return &c.usage
	}
	return c.Context.Value(key)
}

func (u *usage) add(resource string, amount float64) error {
	more, err := cell.ParseResources("resources", map[string]float64{resource: amount})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := u.used
	for i, n := range more {
		sum[i] += n // no overflow: both are at most ResourceMax
	}
	if err := sum.Check("resources"); err != nil {
		return err
	}
	u.used = sum
	return nil
}

// take returns what was used and what was not understood.
func (u *usage) take() (cell.Resources, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.used, u.fault
}

// tell adds what a program or a server has said: name=amount, with any of separators between. It keeps the first fault and goes on after
// it: what a job used is no reason to fail it.
func (u *usage) tell(text, separators string) {
	for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		name, number, ok := strings.Cut(pair, "=")
		amount, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !ok || err != nil {
			err = fmt.Errorf("%.100q is not a resource and an amount: write it as tokens=812", pair)
		} else {
			err = u.add(strings.TrimSpace(name), amount)
		}
		if err != nil {
			u.blame(err)
		}
	}
}

func (u *usage) blame(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fault == nil {
		u.fault = err
	}
}

// tellUsage is [usage.tell] for the attempt that ctx is of, if it is one's.
func tellUsage(ctx context.Context, text, separators string) {
	if u, ok := ctx.Value(usageKey{}).(*usage); ok {
		u.tell(text, separators)
	}
}

// usageBytesMax bounds what a program may write of what it used.
const usageBytesMax = 64 << 10

// usageFile is where a program of one attempt writes what it used.
type usageFile struct{ path string }

// newUsageFile makes an empty file that only the worker's user can read. Without one, which a full disk may be the reason of, the program
// runs all the same.
func newUsageFile() usageFile {
	f, err := os.CreateTemp("", "fairlead-usage-*")
	if err != nil {
		return usageFile{}
	}
	_ = f.Close() // nothing was written
	return usageFile{f.Name()}
}

func (f usageFile) env() []string {
	if f.path == "" {
		return nil
	}
	return []string{envUsageFile + "=" + f.path}
}

// finish takes in what the program wrote, and removes the file.
func (f usageFile) finish(ctx context.Context) {
	if f.path == "" {
		return
	}
	defer os.Remove(f.path) //nolint:errcheck // the program may have
	file, err := os.Open(f.path)
	if err != nil {
		return // the program removed it: it has nothing to say
	}
	defer file.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(file, usageBytesMax+1))
	if err == nil && len(text) > usageBytesMax {
		err = fmt.Errorf("%s has more than %d bytes", envUsageFile, usageBytesMax)
	}
	u, ok := ctx.Value(usageKey{}).(*usage)
	switch {
	case !ok:
	case err != nil:
		u.blame(err)
	default:
		u.tell(string(text), "\n")
	}
}
