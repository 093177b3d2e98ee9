package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The policies, as the server knows them.
const (
	policyFIFO     = "fifo"
	policyFairlead = "fairlead"
)

// policies lists the policies in the order in which they run.
func policies() []string { return []string{policyFIFO, policyFairlead} }

// Run runs the demo, which is shown on screen while it goes on. It returns ctx's cause when that ends before, and in every case only once its
// processes are gone and, unless c.Keep is set, its state directory is. c must be valid.
func Run(ctx context.Context, c Config, screen Screen) (*Report, error) {
	var w *workload
	var skipped Skipped
	if c.Folder == "" {
		w = plan(c)
	} else {
		var err error
		if w, skipped, err = scan(c); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := newBoard(title(c, w), w, c.Slots)
	stop := screen.start(b, cancel)
	d := &demo{config: c, workload: w, board: b}
	outcomes, err := d.run(ctx)
	if context.Cause(ctx) != nil { // whatever went wrong then went wrong because of it
		err = context.Cause(ctx)
	}
	if shown := stop(); err == nil {
		err = shown
	}
	if err != nil {
		return nil, err
	}
	r := &Report{config: c, workload: w, skipped: skipped, outcomes: outcomes}
	if c.Keep {
		r.Kept = d.scratch
	}
	return r, nil
}

// demo is one run of the demo.
type demo struct {
	config   Config
	workload *workload
	board    *board
	scratch  string
}

// run runs the workload under each policy, and returns what came of each job by policy.
func (d *demo) run(ctx context.Context) (map[string][]outcome, error) {
	var err error
	if d.scratch, err = os.MkdirTemp("", "fairlead-demo-"); err != nil {
		return nil, fmt.Errorf("the state directory: %w", err)
	}
	outcomes := make(map[string][]outcome)
	for _, p := range policies() {
		if outcomes[p], err = d.policy(ctx, p); err != nil {
			break
		}
	}
	if !d.config.Keep {
		err = errors.Join(err, os.RemoveAll(d.scratch))
	}
	return outcomes, err
}

// policy runs the workload under one policy: with a server and workers of its own.
func (d *demo) policy(ctx context.Context, policy string) (_ []outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.board.advance(policy, phaseStarting, time.Now())
	defer func() {
		if err != nil {
			d.board.advance(policy, phaseStopped, time.Now())
		}
	}()
	s, err := d.startServer(ctx, policy)
	if err != nil {
		return nil, err
	}
	// Workers end before the server that they report to.
	crew := &children{abort: cancel}
	crew.watch(s.child)
	defer func() {
		s.http.CloseIdleConnections()           // a server that stops gives each a second
		if stopped := crew.stop(); err == nil { // else whatever they say came of it
			err = stopped
		}
	}()
	for i, slots := range d.config.workerSlots() {
		w, err := spawn(ctx, []string{"first worker", "second worker"}[i], WorkerCommand, workerInstructions{
			Addr: s.creds.Addr, Token: s.key("worker"), Name: fmt.Sprintf("demo-worker-%d", i+1), Slots: slots,
			Folder: d.workload.folder, Program: d.config.Program,
		})
		if err != nil {
			return nil, err
		}
		crew.watch(w)
		crew.listen(w, func(line []byte) {
			var seen sighting
			if json.Unmarshal(line, &seen) == nil {
				d.board.sighted(policy, seen)
			}
		})
	}
	if err := s.awaitSlots(ctx, d.config.Slots); err != nil {
		return nil, abortedBy(ctx, err)
	}
	d.board.advance(policy, phaseRunning, time.Now())
	outcomes, err := d.drive(ctx, policy, s)
	if err != nil {
		return nil, abortedBy(ctx, err)
	}
	d.board.advance(policy, phaseDone, time.Now())
	return outcomes, nil
}

// abortedBy is err, unless it came of the end of ctx: then that has the better reason.
func abortedBy(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// children are the processes of one policy's run.
type children struct {
	abort    context.CancelCauseFunc
	started  []*child
	stopping chan struct{}
	wg       sync.WaitGroup
}

// watch aborts the run when the child ends before it is told to.
func (c *children) watch(w *child) {
	if c.stopping == nil {
		c.stopping = make(chan struct{})
	}
	c.started = append(c.started, w)
	c.wg.Go(func() {
		select {
		case <-w.ended:
			c.abort(w.failure())
		case <-c.stopping:
		}
	})
}

// listen gives each line that the child prints to line, until it ends.
func (c *children) listen(w *child, line func([]byte)) {
	c.wg.Go(func() {
		for {
			text, err := w.stdout.ReadBytes('\n')
			if err != nil {
				return
			}
			line(text)
		}
	})
}

// stop ends the children, the last first.
func (c *children) stop() error {
	close(c.stopping)
	var errs []error
	for _, s := range slices.Backward(c.started) {
		errs = append(errs, s.stop())
	}
	c.wg.Wait()
	return errors.Join(errs...)
}

// server is a running server process.
type server struct {
	child *child
	creds config.Credentials
	http  *http.Client // shared by everybody: what differs is the key
}

// startServer starts a server and waits until it answers. The caller stops its child.
func (d *demo) startServer(ctx context.Context, policy string) (*server, error) {
	ins := serverInstructions{Dir: filepath.Join(d.scratch, policy), Policy: policy}
	if !d.config.Keep {
		ins.Scratch = d.scratch
	}
	for _, t := range d.workload.tenants {
		ins.Tenants = append(ins.Tenants, t.id)
	}
	c, err := spawn(ctx, policy+" server", ServerCommand, ins)
	if err != nil {
		return nil, err
	}
	s := &server{child: c}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return s, nil
}

// connect reads how to reach the server.
func (s *server) connect(ctx context.Context) error {
	type said struct {
		line []byte
		err  error
	}
	first := make(chan said, 1)
	go func() { // it ends with the child, for which the caller waits
		line, err := s.child.stdout.ReadBytes('\n')
		first <- said{line, err}
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case f := <-first:
		if f.err != nil {
			<-s.child.ended
			return s.child.failure()
		}
		if err := json.Unmarshal(f.line, &s.creds); err != nil {
			return fmt.Errorf("the server's first words: %w", err)
		}
	}
	var err error
	s.http, err = client.NewHTTPClient(s.creds.Addr, client.ProtocolAuto, nil)
	return err
}

// key is the secret of the key with a name.
func (s *server) key(name string) string {
	for _, k := range s.creds.Keys {
		if k.Name == name {
			return k.Secret
		}
	}
	panic("demo: the server has no key " + name)
}

// settings is how to call the server with a key.
func (s *server) settings(key string) client.Config {
	return client.Config{Addr: s.creds.Addr, Token: client.Token(s.key(key)), HTTPClient: s.http}
}

// The time that workers have to connect, and how often it is looked at.
const (
	connectTimeout = 30 * time.Second
	connectPoll    = 20 * time.Millisecond
)

// awaitSlots waits until workers with so many slots have asked for jobs: a run that began before would measure their start.
func (s *server) awaitSlots(ctx context.Context, slots int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errors.New("the workers did not connect in time"))
	defer cancel()
	conn, err := client.Dial(s.settings("admin"))
	if err != nil {
		return err
	}
	status := fairleadv1connect.NewStatusServiceClient(conn.HTTP, conn.URL, conn.Options...)
	for {
		answer, err := status.GetStatus(ctx, &fairleadv1.GetStatusRequest{LanesMax: 1})
		if err != nil {
			return abortedBy(ctx, fmt.Errorf("waiting for the workers: %w", err))
		}
		var have int64
		for _, w := range answer.GetWorkers() {
			have += w.GetSlots()
		}
		if have >= int64(slots) {
			return nil
		}
		if err := client.Pause(ctx, connectPoll); err != nil {
			return err
		}
	}
}
