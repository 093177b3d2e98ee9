package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The bounds of a batch. The API takes 500 jobs and 4 MiB in a request; a line has room for the largest payload as base64.
const (
	batchJobsMax  = 500
	batchBytesMax = 3 << 20
	lineBytesMax  = 2 << 20
)

// batch sends the lines of a file, 500 jobs a call.
type batch struct {
	a        *app
	template *fairleadv1.JobSpec
	session  *session // nil for a dry run
	list     *output.List[*fairleadv1.SubmitResult]
	printer  *output.Printer
	keys     string // what every key that is made begins with

	specs []*fairleadv1.JobSpec
	lines []int
	bytes int

	accepted, refused int
	progress          bool         // a line of progress stands on the terminal
	first             int          // the first line that was refused
	code              failure.Code // its exit code
}

// submitBatchFile submits every line of f's file, with what template has where a line has nothing.
func (a *app) submitBatchFile(ctx context.Context, l *config.Loaded, f *submitFlags, template *fairleadv1.JobSpec) error {
	from, err := a.openBatch(ctx, f.batchFile)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // only read
	p := a.printer(l)
	b := &batch{a: a, template: template, printer: p, keys: newKey(), list: output.NewList(p, resultView())}
	if !f.dryRun {
		if b.session, err = a.dial(l, roleTenant); err != nil {
			return err
		}
	}
	err = b.readLines(ctx, from)
	b.endProgress()
	if err != nil {
		return err
	}
	if f.dryRun {
		a.sayf("Nothing is sent (--dry-run): %d jobs can be, %d lines cannot.", b.accepted, b.refused)
	} else {
		if err := b.list.Close(); err != nil {
			return err
		}
		a.sayf("%d jobs are accepted, %d lines are refused.", b.accepted, b.refused)
	}
	if b.refused == 0 {
		return nil
	}
	return &failure.Problem{
		Code: b.code, What: fmt.Sprintf("%d of %d lines are refused", b.refused, b.refused+b.accepted),
		Remedy: "correct those lines, whose numbers are above, and submit them alone",
	}
}

func (a *app) openBatch(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stoppable(ctx, a.in)), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, &failure.Problem{Code: failure.Usage, What: "the batch cannot be read", Why: err.Error(), Remedy: "name another file", Err: err}
	}
	return file, nil
}

func (b *batch) readLines(ctx context.Context, from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), lineBytesMax)
	number := 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		spec, err := b.spec(line, number)
		if err != nil {
			b.refuse(number, failure.Usage, err.Error())
			continue
		}
		if err := b.add(ctx, spec, number); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		if ctx.Err() != nil {
			return &failure.Problem{
				Code: failure.Interrupted, What: "interrupted", Err: err,
				Why: fmt.Sprintf("%d jobs are accepted; %d more lines were read and not sent", b.accepted, len(b.specs)),
			}
		}
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("line %d has more than %d bytes", number+1, lineBytesMax)
		}
		return &failure.Problem{
			Code: failure.Usage, What: "the batch cannot be read on", Why: err.Error(),
			Remedy: fmt.Sprintf("%d jobs are accepted, %d wait to be sent: submit the lines after them", b.accepted, len(b.specs)), Err: err,
		}
	}
	return b.send(ctx)
}

// spec returns the job of one line: the template with what the line says.
func (b *batch) spec(line []byte, number int) (*fairleadv1.JobSpec, error) {
	own, err := parseSpec(line)
	if err != nil {
		return nil, err
	}
	spec := proto.CloneOf(b.template)
	if own.GetNotBefore() != nil || own.GetDelay() != nil { // only one of the two may stand
		spec.NotBefore, spec.Delay = nil, nil
	}
	if len(own.GetConcurrencyKeys()) > 0 { // they would be added to the others
		spec.ConcurrencyKeys = nil
	}
	proto.Merge(spec, own)
	if spec.GetIdempotencyKey() == "" {
		spec.IdempotencyKey = fmt.Sprintf("%s-%d", b.keys, number)
	}
	return spec, checkSpec(spec, lineFields)
}

func (b *batch) add(ctx context.Context, spec *fairleadv1.JobSpec, number int) error {
	size := proto.Size(spec)
	if len(b.specs) == batchJobsMax || b.bytes+size > batchBytesMax {
		if err := b.send(ctx); err != nil {
			return err
		}
	}
	b.specs, b.lines, b.bytes = append(b.specs, spec), append(b.lines, number), b.bytes+size
	return nil
}

// send submits what is collected and writes the accepted ones.
func (b *batch) send(ctx context.Context) error {
	specs, lines := b.specs, b.lines
	b.specs, b.lines, b.bytes = nil, nil, 0
	if len(specs) == 0 {
		return nil
	}
	if b.session == nil {
		return b.show(specs)
	}
	doing := fmt.Sprintf("submit the lines %d to %d", lines[0], lines[len(lines)-1])
	resp, err := call(ctx, b.session, doing, b.session.jobs.SubmitBatch, &fairleadv1.SubmitBatchRequest{Jobs: specs})
	if err != nil {
		if c, ok := errors.AsType[*failure.Call](err); ok && mayBeDone(c) {
			c.Remedy = fmt.Sprintf("%d jobs before them are accepted; these may or may not be: only with an idempotencyKey in each line is it safe to repeat them",
				b.accepted)
		}
		return err
	}
	if len(resp.GetResults()) != len(specs) {
		return fmt.Errorf("the server answered %d results for %d jobs", len(resp.GetResults()), len(specs))
	}
	var accepted []*fairleadv1.SubmitResult
	for i, r := range resp.GetResults() {
		if r.GetRejection() == nil {
			accepted = append(accepted, r)
			continue
		}
		b.refuse(lines[i], failure.OfRejection(r.GetRejection()), r.GetRejection().GetMessage())
	}
	b.accepted += len(accepted)
	b.showProgress()
	if len(accepted) == 0 {
		return nil
	}
	return b.list.Add(accepted...)
}

// showProgress rewrites a line of standard error, unless the ids that go to the same terminal are progress enough.
func (b *batch) showProgress() {
	if b.a.talks && !b.a.screen {
		fmt.Fprintf(b.a.err, "\r\x1b[K%d jobs are accepted, %d lines are refused", b.accepted, b.refused)
		b.progress = true
	}
}

// endProgress makes room for a line of talk.
func (b *batch) endProgress() {
	if b.progress {
		fmt.Fprint(b.a.err, "\r\x1b[K")
		b.progress = false
	}
}

// show writes what would be sent, a job a line.
func (b *batch) show(specs []*fairleadv1.JobSpec) error {
	b.accepted += len(specs)
	for _, spec := range specs {
		if err := b.printer.Line(spec); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) refuse(line int, code failure.Code, why string) {
	// The lines of a call are refused after malformed ones that stand behind them.
	if b.refused == 0 || line < b.first {
		b.first, b.code = line, code
	}
	b.refused++
	b.endProgress()
	b.a.sayf("line %d: %s", line, output.Safe(why))
}

func resultView() output.View[*fairleadv1.SubmitResult] {
	return output.View[*fairleadv1.SubmitResult]{
		Columns: []output.Column{{Name: "JOB"}, {Name: "STATE"}, {Name: "DUPLICATE"}},
		Row: func(r *fairleadv1.SubmitResult) []string {
			return []string{output.Safe(r.GetJobId()), stateText(r.GetState()), yesNo(r.GetDuplicate())}
		},
		Name: (*fairleadv1.SubmitResult).GetJobId,
	}
}
