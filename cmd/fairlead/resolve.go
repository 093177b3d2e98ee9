package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The bounds of looking an id up by its beginning.
const (
	prefixDigitsMin = 4  // fewer would match whatever is there
	resolvePagesMax = 20 // 10,000 jobs: about a second; older ones need their whole id
	candidatesMax   = 10 // shown when a prefix is ambiguous
)

// resolve returns the id that arg is, or is the unique beginning of, with or without job_. The API has no such look-up, so it lists: newest
// first, until a whole page is of older ids than arg can mean.
func (s *session) resolve(ctx context.Context, arg string) (string, error) {
	prefix := cell.JobIDPrefix + strings.ToLower(strings.TrimPrefix(arg, cell.JobIDPrefix))
	if _, err := cell.ParseJobID("JOB", prefix); err == nil {
		return prefix, nil
	}
	if err := checkPrefix(arg, prefix); err != nil {
		return "", err
	}
	var found []string
	token := ""
	for range resolvePagesMax {
		req := &fairleadv1.ListJobsRequest{PageSize: pageSizeMax, PageToken: token}
		resp, err := call(ctx, s, "look up the job "+arg, s.jobs.ListJobs, req)
		if err != nil {
			return "", err
		}
		older := true
		for _, j := range resp.GetJobs() {
			if strings.HasPrefix(j.GetId(), prefix) {
				found = append(found, j.GetId())
			}
			older = older && j.GetId() < prefix
		}
		token = resp.GetNextPageToken()
		if token == "" || older {
			return pickOne(arg, found)
		}
		if len(found) > candidatesMax {
			return pickOne(arg, found)
		}
	}
	if len(found) > 1 {
		return pickOne(arg, found)
	}
	return "", &failure.Problem{
		Code: failure.NotFound, What: fmt.Sprintf("%.40q is not known to be one job among the newest %d", arg, resolvePagesMax*pageSizeMax),
		Remedy: "give the whole id, as it was returned on submission",
	}
}

func checkPrefix(arg, prefix string) error {
	digits := strings.TrimPrefix(prefix, cell.JobIDPrefix)
	bad := strings.ContainsFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef-", r) })
	switch {
	case bad:
		return failure.Usagef("give it as it was returned on submission, job_ and a UUID, or a beginning of that", "%.60q is not a job's id", arg)
	case len(digits) < prefixDigitsMin:
		return failure.Usagef(fmt.Sprintf("give at least %d digits", prefixDigitsMin), "%q is too short a beginning of a job's id", arg)
	default:
		return nil
	}
}

func pickOne(arg string, found []string) (string, error) {
	switch len(found) {
	case 0:
		return "", &failure.Problem{
			Code: failure.NotFound, What: fmt.Sprintf("no job of this tenant begins with %q", arg), Remedy: "list them with: fairlead job list",
		}
	case 1:
		return found[0], nil
	}
	shown := found
	if len(shown) > candidatesMax {
		shown = append(shown[:candidatesMax:candidatesMax], "...")
	}
	p := failure.Usagef("give more of the id", "%q begins more than one job's id", arg)
	p.Why = strings.Join(shown, "\n")
	return "", p
}
