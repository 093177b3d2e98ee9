package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// object is a record in the JSONL form. The numbers that the CSV form checks are texts here, so that the same checks serve both.
type object struct {
	ArrivalMS    json.Number `json:"arrival_ms"`
	Tenant       string      `json:"tenant"`
	ServiceMS    json.Number `json:"service_ms"`
	Job          json.Number `json:"job,omitempty"`
	Organization string      `json:"organization,omitempty"`
	Class        string      `json:"class,omitempty"`
	Operation    string      `json:"operation,omitempty"`
	Cohort       string      `json:"cohort,omitempty"`
	Cost         json.Number `json:"cost,omitempty"`
	Actual       json.Number `json:"actual,omitempty"`
	Priority     json.Number `json:"priority,omitempty"`
	Preemptible  bool        `json:"preemptible,omitempty"`
	DeadlineMS   json.Number `json:"deadline_ms,omitempty"`
	Keys         []key       `json:"keys,omitempty"`
}

type key struct {
	Key string `json:"key"`
	Max int64  `json:"max"`
}

// texts returns the members that are columns of the CSV form, in the order of columns.
func (o *object) texts() [14]string {
	return [14]string{
		o.ArrivalMS.String(), o.Tenant, o.ServiceMS.String(), o.Job.String(), o.Organization, o.Class, o.Operation, o.Cohort,
		o.Cost.String(), o.Actual.String(), o.Priority.String(), fmt.Sprint(o.Preemptible), o.DeadlineMS.String(), "",
	}
}

func readJSONL(in io.Reader, t *Trace) error {
	all := columns()
	var catalogue Catalogue
	return lines(in, FormJSONL, func(line int, text string) error {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		o, err := parseObject(line, text)
		if err != nil {
			return err
		}
		r := blank(len(t.Jobs))
		for i, s := range o.texts() {
			if s == "" && !all[i].required {
				continue
			}
			if err := all[i].set(&r, s); err != nil {
				return at(FormJSONL, line, columnOf(text, all[i].name), all[i].name, err)
			}
		}
		for _, k := range o.Keys {
			r.traits.Keys = append(r.traits.Keys, cell.ConcurrencyKey(k))
		}
		if err := checkKeys(r.traits.Keys); err != nil {
			return at(FormJSONL, line, columnOf(text, "keys"), "keys", err)
		}
		j, err := r.job(&catalogue)
		if err != nil {
			return at(FormJSONL, line, 0, "", err)
		}
		return t.add(j)
	})
}

func parseObject(line int, text string) (object, error) {
	var o object
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&o)
	if err == nil && d.More() {
		return o, &SyntaxError{
			Form: FormJSONL, Line: line, Column: int(d.InputOffset()) + 1, Problem: "there is more after the object", Remedy: "write one per line",
		}
	}
	if err == nil {
		return o, nil
	}
	e := &SyntaxError{Form: FormJSONL, Line: line, Problem: strings.TrimPrefix(err.Error(), "json: "), Remedy: "write one object per line"}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		e.Column = int(syntax.Offset)
	case errors.As(err, &kind):
		e.Column, e.Field = int(kind.Offset), kind.Field
		e.Problem, e.Remedy = "is a "+kind.Value, "give a "+kind.Type.String()
	case strings.Contains(err.Error(), "unknown field"):
		if _, name, ok := strings.Cut(err.Error(), "\""); ok {
			e.Column = columnOf(text, strings.TrimSuffix(name, "\""))
		}
		e.Remedy = "use " + columnNames(columns())
	}
	return o, e
}

// columnOf returns where a member of an object begins, from 1; 0 when it is absent.
func columnOf(text, name string) int { return strings.Index(text, `"`+name+`"`) + 1 }

// WriteJSONL writes jobs in the project's JSONL form, which Read reads back to the same.
func WriteJSONL(w io.Writer, jobs []Job) error {
	out := bufio.NewWriterSize(w, 1<<16)
	encoder := json.NewEncoder(out)
	all := columns()
	for i := range jobs {
		j := &jobs[i]
		var text [14]json.Number
		for k, c := range all {
			text[k] = json.Number(c.get(nil, j))
		}
		o := object{
			ArrivalMS: text[0], Tenant: j.Tenant, ServiceMS: text[2], Job: text[3], Organization: j.Organization, Class: j.Class.String(),
			Operation: string(j.Operation), Cohort: j.Cohort, Cost: text[8], Actual: text[9], Priority: text[10], Preemptible: j.Preemptible,
			DeadlineMS: text[12],
		}
		for _, k := range j.Keys {
			o.Keys = append(o.Keys, key(k))
		}
		if err := encoder.Encode(o); err != nil {
			return err
		}
	}
	return out.Flush()
}
