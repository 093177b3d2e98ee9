package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// payloadShown is how many runes of a payload a description shows; -o wide and the machine's formats show all.
const payloadShown = 2000

func stateText(s fairleadv1.JobState) string { return output.Enum(s, "JOB_STATE_") }
func classText(c fairleadv1.Class) string    { return output.Enum(c, "CLASS_") }

// stateNames lists the states of a job in the order of a life.
func stateNames() []string {
	var names []string
	for n := range int32(len(fairleadv1.JobState_name)) {
		if n != 0 {
			names = append(names, stateText(fairleadv1.JobState(n)))
		}
	}
	return names
}

func (a *app) jobView() output.View[*fairleadv1.Job] {
	return output.View[*fairleadv1.Job]{
		Columns: []output.Column{
			{Name: "JOB"},
			{Name: "OPERATION"},
			{Name: "CLASS"},
			{Name: "STATE"},
			{Name: "ATTEMPT"},
			{Name: "AGE"},
			{Name: "FINISHED"},
			{Name: "PRIORITY", Wide: true},
			{Name: "COST", Wide: true},
			{Name: "NOT BEFORE", Wide: true},
			{Name: "WORKER", Wide: true},
			{Name: "KEY", Wide: true},
			{Name: "LABELS", Wide: true},
			{Name: "ERROR", Wide: true},
		},
		Row: func(j *fairleadv1.Job) []string {
			now := a.now()
			return []string{
				output.Safe(j.GetId()), output.Safe(j.GetOperation()), classText(j.GetClass()), stateText(j.GetState()), decimal(int64(j.GetAttempt())),
				output.Age(now, j.GetCreateTime()), output.Age(now, j.GetFinishTime()), decimal(int64(j.GetPriority())), decimal(j.GetCost()),
				output.Age(now, j.GetNotBefore()), output.Safe(j.GetWorker()), output.Safe(j.GetIdempotencyKey()), labelsText(j.GetLabels()),
				output.Cut(output.Safe(j.GetError()), 60),
			}
		},
		Name: (*fairleadv1.Job).GetId,
	}
}

func labelsText(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for name, value := range labels {
		pairs = append(pairs, name+"="+value)
	}
	slices.Sort(pairs)
	return output.Safe(strings.Join(pairs, ","))
}

func amountsText(amounts map[string]float64) string {
	return output.Safe((&amountsValue{m: amounts}).String())
}

// printJob describes one job for people, or writes it for programs.
func (a *app) printJob(p *output.Printer, j *fairleadv1.Job) error {
	if !p.Human() {
		return p.Object(j.GetId(), j)
	}
	attempts := decimal(int64(j.GetAttempt()))
	if j.GetFailedAttempts() > 0 || j.GetLostAttempts() > 0 {
		attempts += fmt.Sprintf(" (%d failed, %d lost)", j.GetFailedAttempts(), j.GetLostAttempts())
	}
	pairs := []output.Pair{
		{Key: "Job", Value: output.Safe(j.GetId())},
		{Key: "Operation", Value: output.Safe(j.GetOperation())},
		{Key: "Class", Value: classText(j.GetClass())},
		{Key: "State", Value: stateText(j.GetState())},
		{Key: "Attempts", Value: attempts},
		{Key: "Created", Value: a.when(j.GetCreateTime())},
		{Key: "Not before", Value: a.when(j.GetNotBefore())},
		{Key: "Deadline", Value: a.when(j.GetDeadline())},
		{Key: "Leased", Value: a.when(j.GetLeaseTime())},
		{Key: "Finished", Value: a.when(j.GetFinishTime())},
		{Key: "Worker", Value: output.Safe(j.GetWorker())},
		{Key: "Labels", Value: labelsText(j.GetLabels())},
		{Key: "Concurrency", Value: output.Safe((&concurrencyValue{j.GetConcurrencyKeys()}).String())},
		{Key: "Error", Value: strings.ReplaceAll(output.SafeText(strings.TrimSpace(j.GetError())), "\n", "\n\t")},
	}
	if p.Wide() {
		pairs = append(pairs, a.jobDetails(j)...)
	}
	pairs = append(pairs, output.Pair{Key: "Payload", Value: payloadText(j.GetPayload(), p.Wide())})
	result := payloadText(j.GetResult(), p.Wide())
	if j.GetResultExpired() {
		result = "(dropped: the tenant's results outgrew their bound)"
	}
	return p.Describe(append(pairs, output.Pair{Key: "Result", Value: result}))
}

func (a *app) jobDetails(j *fairleadv1.Job) []output.Pair {
	retry := output.None
	if r := j.GetRetry(); r != nil {
		retry = fmt.Sprintf("%d attempts, %s to %s apart", r.GetAttemptsMax(), output.ProtoDuration(r.GetDelayMin()), output.ProtoDuration(r.GetDelayMax()))
	}
	return []output.Pair{
		{Key: "Idempotency key", Value: output.Safe(j.GetIdempotencyKey())},
		{Key: "Priority", Value: strconv.Itoa(int(j.GetPriority())) + " s"},
		{Key: "Cost", Value: decimal(j.GetCost())},
		{Key: "Charged", Value: decimal(j.GetChargedCost())},
		{Key: "Resources", Value: amountsText(j.GetResources())},
		{Key: "Used", Value: amountsText(j.GetUsedResources())},
		{Key: "Preemptible", Value: yesNo(j.GetPreemptible())},
		{Key: "Time-out", Value: output.ProtoDuration(j.GetExecutionTimeout())},
		{Key: "Retry", Value: retry},
		{Key: "Retention", Value: output.ProtoDuration(j.GetRetention())},
		{Key: "Trace", Value: output.Safe(j.GetTraceparent())},
	}
}

// payloadText shows a payload: text as it is, other bytes by their size.
func payloadText(p *fairleadv1.Payload, all bool) string {
	if p.GetBody() == nil {
		return output.None
	}
	text := p.GetJson()
	if body, ok := p.GetBody().(*fairleadv1.Payload_Data); ok {
		text = string(body.Data)
		if !utf8.Valid(body.Data) {
			return fmt.Sprintf("%s of %s", output.Bytes(int64(len(body.Data))), output.Safe(p.GetContentType()))
		}
	}
	text = strings.TrimRight(text, "\n")
	if !all {
		text = output.Cut(text, payloadShown)
	}
	return strings.ReplaceAll(output.SafeText(text), "\n", "\n\t")
}
