package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Form is a way to write a trace down.
type Form string

// The forms. FormAuto tells them by the first bytes.
const (
	FormAuto   Form = ""
	FormCSV    Form = "csv"
	FormJSONL  Form = "jsonl"
	FormSWF    Form = "swf"
	FormTokens Form = "tokens"
)

// ParseForm returns the form named s. It returns a *cell.FieldError for any other word.
func ParseForm(field, s string) (Form, error) {
	forms := []Form{FormCSV, FormJSONL, FormSWF, FormTokens}
	if f := Form(s); slices.Contains(forms, f) {
		return f, nil
	}
	return "", &cell.FieldError{
		Field: field, Problem: fmt.Sprintf("%.40q is no form of a trace", s), Remedy: "use csv, jsonl, swf or tokens, or leave it out",
	}
}

// JobsMax bounds the jobs of a trace: at about 100 bytes each, more than a gigabyte of memory.
const JobsMax = 20_000_000

// lineBytesMax bounds a line of a trace: a line is one job.
const lineBytesMax = 1 << 20

// Options say how to fill in what a form leaves out. The zero value takes every default.
type Options struct {
	Form Form
	// Seed and Tenants are for token traces, which have no tenants: job by job, tenant k of as many is drawn with a chance proportional to
	// 1/k. Default 20 tenants.
	Seed    uint64
	Tenants int
	// Rates are how long tokens take.
	Rates TokenRates
}

// TokenRates are how long a request runs in a token trace, which has no run times. Defaults: 100 us for each token of the context, 20 ms
// for each that is generated.
type TokenRates struct{ Context, Generated time.Duration }

// tenantsDefault and tenantsMax are Options.Tenants'.
const (
	tenantsDefault = 20
	tenantsMax     = 1_000_000
)

// Trace is what was read.
type Trace struct {
	Form Form
	// Jobs in the order of their coming.
	Jobs []Job
	// Unit is what costs are counted in.
	Unit string
	// Slots is the number that the offered load keeps busy four fifths of the time: see SlotsFor.
	Slots int
	// Notes state in words the rules by which what the form leaves out was filled in.
	Notes []string
}

// Units of cost.
const (
	UnitSlotTime       = cell.UnitSlotSeconds
	UnitProcessorHours = "processor_hours"
	UnitTokens         = "tokens"
)

// Read reads a trace. It returns a *SyntaxError for the first thing that it does not understand, a *cell.FieldError for an option, and a
// *cell.LimitError for a trace of more than JobsMax jobs.
func Read(r io.Reader, o Options) (*Trace, error) {
	if o.Tenants < 0 || o.Tenants > tenantsMax {
		return nil, &cell.FieldError{
			Field: "tenants", Problem: fmt.Sprintf("is %d, outside 1 to %d", o.Tenants, tenantsMax), Remedy: "give among how many to deal the jobs out",
		}
	}
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("unpacking the trace: %w", err)
		}
		in = bufio.NewReaderSize(unpacked, 1<<16)
	}
	form := o.Form
	if form == FormAuto {
		form = tell(in)
	}
	t := &Trace{Form: form, Unit: UnitSlotTime}
	var err error
	switch form {
	case FormJSONL:
		err = readJSONL(in, t)
	case FormSWF:
		err = readSWF(in, t)
	case FormTokens:
		err = readTokens(in, t, o)
	case FormCSV:
		err = readCSV(in, t)
	case FormAuto:
		panic("trace: a form that is none")
	default:
		_, err = ParseForm("form", string(form))
	}
	if err != nil {
		return nil, err
	}
	if len(t.Jobs) == 0 {
		return nil, &SyntaxError{Form: form, Line: 1, Problem: "there is no job in the trace", Remedy: "check that it is the right file"}
	}
	Sort(t.Jobs)
	t.Slots = SlotsFor(t.Jobs)
	return t, checkIDs(form, t.Jobs)
}

// tell returns the form that the first bytes look like.
func tell(in *bufio.Reader) Form {
	start, _ := in.Peek(256)
	text := strings.TrimSpace(string(start))
	switch {
	case strings.HasPrefix(text, "{"):
		return FormJSONL
	case strings.HasPrefix(text, ";"):
		return FormSWF
	case strings.HasPrefix(text, tokensHeader[0]+","):
		return FormTokens
	}
	line, _, _ := strings.Cut(text, "\n")
	if !strings.Contains(line, ",") && len(strings.Fields(line)) == swfColumns {
		return FormSWF
	}
	return FormCSV
}

// SlotsFor returns how many slots the jobs' service keeps busy four fifths of the time from the first arrival to the last; at least one.
func SlotsFor(jobs []Job) int {
	var service float64
	first, last, longest := time.Duration(math.MaxInt64), time.Duration(0), time.Duration(1)
	for i := range jobs {
		j := &jobs[i]
		service += float64(j.Service)
		first, last, longest = min(first, j.Arrival), max(last, j.Arrival), max(longest, j.Service)
	}
	span := max(last-first, longest) // all at once: none can end before the longest
	return max(1, int(min(math.Ceil(service*5/4/float64(span)), float64(len(jobs)))))
}

// add appends a job, unless there are too many.
func (t *Trace) add(j Job) error {
	if len(t.Jobs) >= JobsMax {
		return &cell.LimitError{
			Limit: "trace_jobs_max", Scope: cell.ScopeCell, Value: JobsMax + 1, Bound: JobsMax, Remedy: "cut the trace into parts",
		}
	}
	t.Jobs = append(t.Jobs, j)
	return nil
}

// note adds a rule in words.
func (t *Trace) note(format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
}

// checkIDs refuses jobs of the same number.
func checkIDs(form Form, jobs []Job) error {
	ids := make([]int, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}
	slices.Sort(ids)
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			return &SyntaxError{
				Form: form, Line: 1, Field: "job", Problem: fmt.Sprintf("two jobs have the number %d", ids[i]), Remedy: "number each once",
			}
		}
	}
	return nil
}

// lines calls do with each line of a trace, without its end, and its number.
func lines(in io.Reader, form Form, do func(line int, text string) error) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 0, 1<<16), lineBytesMax)
	n := 0
	for scanner.Scan() {
		n++
		if err := do(n, scanner.Text()); err != nil {
			return err
		}
	}
	err := scanner.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return &SyntaxError{
			Form: form, Line: n + 1, Problem: fmt.Sprintf("the line has more than %d bytes", lineBytesMax), Remedy: "a line is one job",
		}
	}
	if err != nil {
		return fmt.Errorf("reading the trace after line %d: %w", n, err)
	}
	return nil
}
