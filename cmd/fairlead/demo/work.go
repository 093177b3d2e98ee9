package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
)

// workerInstructions tell a worker what to do.
type workerInstructions struct {
	Addr    string `json:"addr"`
	Token   string `json:"token"`
	Name    string `json:"name"`
	Slots   int    `json:"slots"`
	Folder  string `json:"folder,omitempty"`
	Program string `json:"program,omitempty"`
}

// sighting is what a worker tells as it happens: a job started, or ended.
type sighting struct {
	N       int   `json:"n"`
	StartUS int64 `json:"start_us"`
	EndUS   int64 `json:"end_us,omitempty"`
}

// Work is a worker process. It reads its instructions from in, writes a line of JSON to out whenever a job starts or ends, and returns when
// in ends, when it is told to, or with ctx.
func Work(ctx context.Context, in io.Reader, out, log io.Writer) error {
	var ins workerInstructions
	ctx, err := attached(ctx, in, &ins)
	if err != nil {
		return err
	}
	c := &crew{ins: ins, out: json.NewEncoder(out)}
	if ins.Folder != "" {
		if c.root, err = os.OpenRoot(ins.Folder); err != nil {
			return fmt.Errorf("the folder: %w", err)
		}
		defer c.root.Close() //nolint:errcheck // nothing was written
	}
	reg := worker.NewRegistry()
	for op, do := range map[string]doing{operationWork: sleep, operationFile: c.file} {
		if err := reg.Add(op, c.handler(do)); err != nil {
			return err
		}
	}
	w, err := worker.New(worker.Config{
		Client: client.Config{Addr: ins.Addr, Token: client.Token(ins.Token)},
		Name:   ins.Name, Slots: ins.Slots, DrainTimeout: noDrain, StopGrace: stopGrace / 2,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, reg)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// noDrain: when a worker of the demo is told to end, its jobs are over or given up.
const noDrain = -1

// crew is what the handlers of a worker share.
type crew struct {
	ins  workerInstructions
	root *os.Root

	mu  sync.Mutex
	out *json.Encoder // guarded by mu
}

// tell is a sighting's way to the parent. A parent that is gone hears nothing, and the worker ends for that anyway.
func (c *crew) tell(s sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(s)
}

// doing is what is done for a job. It returns what there is to show for it.
type doing func(ctx context.Context, task *worker.Task, o order) (string, error)

// handler wraps what is to be done for a job into when it was done.
func (c *crew) handler(do doing) worker.HandlerFunc {
	return func(ctx context.Context, task *worker.Task) (client.Payload, error) {
		start := time.Now()
		var o order
		if err := json.Unmarshal(task.Payload.Body(), &o); err != nil {
			return client.Payload{}, worker.Fatal(fmt.Errorf("the payload: %w", err))
		}
		c.tell(sighting{N: o.N, StartUS: start.UnixMicro()})
		output, err := do(ctx, task, o)
		end := time.Now()
		c.tell(sighting{N: o.N, StartUS: start.UnixMicro(), EndUS: end.UnixMicro()})
		if err != nil {
			return client.Payload{}, err
		}
		return client.JSON(receipt{N: o.N, StartUS: start.UnixMicro(), EndUS: end.UnixMicro(), Sum: o.sum(), Output: beginning(output)}), nil
	}
}

// sleep takes the time that the job is to take, as a call to another service does.
func sleep(ctx context.Context, _ *worker.Task, o order) (string, error) {
	t := time.NewTimer(time.Duration(o.ServiceUS) * time.Microsecond)
	defer t.Stop()
	select {
	case <-t.C:
		return "", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// file works on a file: with the program, or by counting.
func (c *crew) file(ctx context.Context, task *worker.Task, o order) (string, error) {
	f, err := c.open(o.Path)
	if err != nil {
		return "", worker.Fatal(err)
	}
	if c.ins.Program != "" {
		if err := f.Close(); err != nil {
			return "", err
		}
		return c.program(ctx, task, o)
	}
	out, err := count(ctx, f)
	return out, errors.Join(err, f.Close())
}

// open opens a file of the folder: a regular one, which no symbolic link leads out of the folder to.
func (c *crew) open(at string) (*os.File, error) {
	info, err := c.root.Lstat(at)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file any more", at)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, cause(err))
	}
	f, err := c.root.Open(at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, cause(err))
	}
	return f, nil
}

// program runs the user's command with the file as its standard input. The shell opens it, so that a file of any size takes no memory here;
// that it can be opened, and is where it should be, has been looked at. Whoever could put another file there in between owns the folder.
func (c *crew) program(ctx context.Context, task *worker.Task, o order) (string, error) {
	path, err := filepath.Abs(filepath.Join(c.ins.Folder, filepath.FromSlash(o.Path)))
	if err != nil {
		return "", fmt.Errorf("the folder: %w", err)
	}
	run, err := worker.Exec(worker.ExecConfig{
		Shell: `exec < "$FAIRLEAD_FILE" || exit` + "\n" + c.ins.Program,
		Env:   []string{"FAIRLEAD_FILE=" + path},
	})
	if err != nil {
		return "", err
	}
	result, err := run(ctx, task)
	return string(result.Body()), err
}

// countChunk is how much is read between looks at whether to stop.
const countChunk = 64 << 10

// count returns the numbers of lines and bytes.
func count(ctx context.Context, f io.Reader) (string, error) {
	var lines, bytes int64
	for buf := make([]byte, countChunk); ctx.Err() == nil; {
		n, err := f.Read(buf)
		bytes += int64(n)
		for _, b := range buf[:n] {
			if b == '\n' {
				lines++
			}
		}
		if errors.Is(err, io.EOF) {
			return fmt.Sprintf("%d lines, %d bytes", lines, bytes), nil
		}
		if err != nil {
			return "", fmt.Errorf("reading: %w", cause(err))
		}
	}
	return "", context.Cause(ctx)
}

// outputMax is how many bytes of a program's output the result keeps.
const outputMax = 120

// beginning returns the first line of a program's output, or as much of it as is kept.
func beginning(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > outputMax {
		s = s[:outputMax]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
