package trace

import (
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Columns of the Standard Workload Format, from 0.
const (
	swfColumns   = 18
	swfSubmit    = 1
	swfRun       = 3
	swfAllocated = 4
	swfRequested = 7
	swfUser      = 11
	swfGroup     = 12
)

func readSWF(in io.Reader, t *Trace) error {
	var catalogue Catalogue
	instant, unknown := 0, 0
	err := lines(in, FormSWF, func(line int, text string) error {
		if comment := strings.IndexByte(text, ';'); comment >= 0 {
			text = text[:comment]
		}
		if strings.TrimSpace(text) == "" {
			return nil
		}
		v, err := swfNumbers(line, text)
		if err != nil {
			return err
		}
		if v[swfRun] < 0 {
			unknown++
			return nil
		}
		if v[swfRun] == 0 {
			instant++
		}
		processors := v[swfAllocated]
		if processors < 1 {
			processors = max(1, v[swfRequested])
		}
		service := time.Duration(max(1, v[swfRun])) * time.Second
		traits := Traits{Tenant: "user-" + strconv.FormatInt(v[swfUser], 10), Class: cell.ClassBatch, Operation: "work"}
		if processors == 1 {
			traits.Class = cell.ClassInteractive
		}
		if v[swfGroup] >= 0 {
			traits.Organization = "group-" + strconv.FormatInt(v[swfGroup], 10)
		}
		traits.Cohort = traits.Tenant
		hours := service.Hours() * float64(processors) * cell.Unit
		return t.add(Job{
			Traits: catalogue.Traits(traits), ID: len(t.Jobs), Arrival: time.Duration(v[swfSubmit]) * time.Second, Service: service,
			Actual: cell.Cost(min(math.Round(hours), float64(cell.CostMax))),
		})
	})
	t.Unit = UnitProcessorHours
	t.note("tenants are users, organizations are groups; jobs of one processor are interactive, others batch")
	t.note("a job takes one slot for its run time; it costs its run time x processors in processor-hours, which it does not declare")
	if instant > 0 {
		t.note("%d jobs that ran for less than a second count as one second", instant)
	}
	if unknown > 0 {
		t.note("%d jobs without a run time are left out", unknown)
	}
	return err
}

// swfNumbers returns the numbers of a line.
func swfNumbers(line int, text string) ([swfColumns]int64, error) {
	var out [swfColumns]int64
	rest, column := text, 1
	for i := range out {
		trimmed := strings.TrimLeft(rest, " \t\r")
		column += len(rest) - len(trimmed)
		end := strings.IndexAny(trimmed, " \t\r")
		if end < 0 {
			end = len(trimmed)
		}
		field := trimmed[:end]
		if field == "" {
			return out, at(FormSWF, line, column, "", wrong("give -1 for what is not known", "has %d fields, of %d", i, swfColumns))
		}
		n, err := swfNumber(i, field)
		if err != nil {
			return out, at(FormSWF, line, column, "field "+strconv.Itoa(i+1), err)
		}
		out[i] = n
		rest, column = trimmed[end:], column+end
	}
	if extra := strings.TrimLeft(rest, " \t\r"); extra != "" {
		column += len(rest) - len(extra)
		return out, at(FormSWF, line, column, "", wrong("check that it is a Standard Workload Format trace", "has more than %d fields", swfColumns))
	}
	return out, nil
}

func swfNumber(i int, field string) (int64, error) {
	const most = int64(TimeMax / time.Second)
	switch i {
	case swfSubmit:
		return number(field, 0, most)
	case swfRun, swfAllocated, swfRequested, swfUser, swfGroup:
		return number(field, -1, most)
	default: // not looked at, and in some traces with decimals
		f, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, wrong("give -1 for what is not known", "%.40q is no number", field)
		}
		return int64(f), nil
	}
}
