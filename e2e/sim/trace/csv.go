package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// row is a record while it is read.
type row struct {
	Job

	traits Traits
}

// column is a column of the project's own forms.
type column struct {
	name     string
	required bool
	set      func(*row, string) error
	get      func([]byte, *Job) []byte
}

// columns returns the columns in the order in which they are written.
func columns() []column { return append(requiredColumns(), optionalColumns()...) }

func requiredColumns() []column {
	return []column{
		{"arrival_ms", true, func(r *row, s string) (err error) {
			r.Arrival, err = milliseconds(s)
			return err
		}, func(b []byte, j *Job) []byte { return appendMilliseconds(b, j.Arrival) }},
		{"tenant", true, func(r *row, s string) error {
			r.traits.Tenant = s
			return cell.CheckID("tenant", s)
		}, func(b []byte, j *Job) []byte { return append(b, j.Tenant...) }},
		{"service_ms", true, func(r *row, s string) (err error) {
			if r.Service, err = milliseconds(s); err == nil && r.Service == 0 {
				err = wrong("give how long it ran, above 0", "is 0")
			}
			return err
		}, func(b []byte, j *Job) []byte { return appendMilliseconds(b, j.Service) }},
	}
}

func optionalColumns() []column {
	return []column{
		{"job", false, func(r *row, s string) error {
			n, err := number(s, 0, 1<<53)
			r.ID = int(n)
			return err
		}, func(b []byte, j *Job) []byte { return strconv.AppendInt(b, int64(j.ID), 10) }},
		{"organization", false, func(r *row, s string) error {
			r.traits.Organization = s
			return cell.CheckID("organization", s)
		}, func(b []byte, j *Job) []byte { return append(b, j.Organization...) }},
		{"class", false, func(r *row, s string) (err error) {
			r.traits.Class, err = cell.ParseClass("class", s)
			return err
		}, func(b []byte, j *Job) []byte { return append(b, j.Class.String()...) }},
		{"operation", false, func(r *row, s string) (err error) {
			r.traits.Operation, err = cell.ParseOperation("operation", s)
			return err
		}, func(b []byte, j *Job) []byte { return append(b, j.Operation...) }},
		{"cohort", false, func(r *row, s string) error {
			r.traits.Cohort = s
			return cell.CheckID("cohort", s)
		}, func(b []byte, j *Job) []byte { return append(b, j.Cohort...) }},
		{"cost", false, func(r *row, s string) (err error) {
			r.Cost, err = cost(s)
			return err
		}, func(b []byte, j *Job) []byte { return appendUnless0(b, int64(j.Cost)) }},
		{"actual", false, func(r *row, s string) (err error) {
			r.Actual, err = cost(s)
			return err
		}, func(b []byte, j *Job) []byte { return appendUnless0(b, int64(j.Actual)) }},
		{"priority", false, func(r *row, s string) error {
			n, err := number(s, -1<<31, 1<<31-1)
			r.traits.Priority = int32(n)
			return err
		}, func(b []byte, j *Job) []byte { return appendUnless0(b, int64(j.Priority)) }},
		{"preemptible", false, func(r *row, s string) error {
			if s != "true" && s != "false" {
				return wrong("write true or false", "is %.40q", s)
			}
			r.traits.Preemptible = s == "true"
			return nil
		}, func(b []byte, j *Job) []byte { return strconv.AppendBool(b, j.Preemptible) }},
		{"deadline_ms", false, func(r *row, s string) (err error) {
			r.Deadline, err = milliseconds(s)
			return err
		}, func(b []byte, j *Job) []byte {
			if j.Deadline == 0 {
				return b
			}
			return appendMilliseconds(b, j.Deadline)
		}},
		{"keys", false, func(r *row, s string) (err error) {
			r.traits.Keys, err = keys(s)
			return err
		}, func(b []byte, j *Job) []byte { return append(b, formatKeys(j.Keys)...) }},
	}
}

func appendUnless0(b []byte, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(b, n, 10)
}

// blank returns a record with the defaults.
func blank(id int) row {
	return row{Job: Job{ID: id}, traits: Traits{Class: cell.ClassBatch, Operation: "work"}}
}

// job completes a record.
func (r *row) job(c *Catalogue) (Job, error) {
	if r.traits.Cohort == "" {
		r.traits.Cohort = r.traits.Tenant
	}
	if r.Deadline > 0 && r.Deadline <= r.Arrival {
		return Job{}, wrong("give a time after the arrival, or none", "has its deadline before it comes")
	}
	r.Traits = c.Traits(r.traits)
	return r.Job, nil
}

func readCSV(in io.Reader, t *Trace) error {
	reader := csv.NewReader(in)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if err != nil {
		return csvError(err, FormCSV)
	}
	cols, err := parseHeader(header, reader)
	if err != nil {
		return err
	}
	names := slices.Clone(header)
	var catalogue Catalogue
	for n := 0; ; n++ {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return csvError(err, FormCSV)
		}
		r := blank(n)
		for i, text := range fields {
			if text == "" && !cols[i].required {
				continue
			}
			if err := cols[i].set(&r, text); err != nil {
				line, col := reader.FieldPos(i)
				return at(FormCSV, line, col, names[i], err)
			}
		}
		j, err := r.job(&catalogue)
		if err != nil {
			line, _ := reader.FieldPos(0)
			return at(FormCSV, line, 0, "", err)
		}
		if err := t.add(j); err != nil {
			return err
		}
	}
}

// parseHeader returns the columns that a header names.
func parseHeader(header []string, reader *csv.Reader) ([]column, error) {
	all := columns()
	out := make([]column, len(header))
	seen := map[string]bool{}
	for i, name := range header {
		_, col := reader.FieldPos(i)
		k := slices.IndexFunc(all, func(c column) bool { return c.name == name })
		if k < 0 {
			return nil, at(FormCSV, 1, col, "", wrong("use "+columnNames(all), "%.40q is no column", name))
		}
		if seen[name] {
			return nil, at(FormCSV, 1, col, name, wrong("name each column once", "comes twice"))
		}
		seen[name] = true
		out[i] = all[k]
	}
	for _, c := range all {
		if c.required && !seen[c.name] {
			return nil, at(FormCSV, 1, 0, "", wrong("name it in the first line, which is "+columnNames(all), "the column %s is missing", c.name))
		}
	}
	return out, nil
}

func columnNames(all []column) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

// csvError places what the CSV reader does not understand.
func csvError(err error, form Form) error {
	var p *csv.ParseError
	switch {
	case errors.As(err, &p):
		return &SyntaxError{Form: form, Line: p.Line, Column: p.Column, Problem: p.Err.Error(), Remedy: "each line has the header's fields"}
	case errors.Is(err, io.EOF):
		return &SyntaxError{Form: form, Line: 1, Problem: "the trace is empty", Remedy: "begin with a line that names the columns"}
	default:
		return fmt.Errorf("reading the trace: %w", err)
	}
}

// WriteCSV writes jobs in the project's CSV form, which Read reads back to the same.
func WriteCSV(w io.Writer, jobs []Job) error {
	out := bufio.NewWriterSize(w, 1<<16)
	all := columns()
	var line []byte
	for i, c := range all {
		if i > 0 {
			line = append(line, ',')
		}
		line = append(line, c.name...)
	}
	line = append(line, '\n')
	for i := range jobs {
		for k, c := range all {
			if k > 0 {
				line = append(line, ',')
			}
			line = c.get(line, &jobs[i])
		}
		line = append(line, '\n')
		if len(line) > 1<<15 {
			if _, err := out.Write(line); err != nil {
				return err
			}
			line = line[:0]
		}
	}
	if _, err := out.Write(line); err != nil {
		return err
	}
	return out.Flush()
}
