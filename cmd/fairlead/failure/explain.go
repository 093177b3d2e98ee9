package failure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// Explain returns err as a problem: its exit code, what happened, why, and what to do. It returns nil for nil. It is the only place that
// knows which error ends with which code.
func Explain(err error) *Problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if f, ok := errors.AsType[*config.FaultsError](err); ok {
		return explainFaults(f)
	}
	call := &Call{Err: err}
	if c, ok := errors.AsType[*Call](err); ok {
		call = c
	}
	p := &Problem{Code: Failed, Err: err}
	if call.Doing != "" {
		p.What = "could not " + call.Doing
	}
	ce, isConnect := errors.AsType[*connect.Error](err)
	sdk, isSDK := errors.AsType[*client.Error](err)
	fields := fieldErrors(err)
	file, isFile := errors.AsType[*identity.FileError](err)
	mismatch, isMismatch := errors.AsType[*identity.MismatchError](err)
	switch {
	case interrupted(err):
		p.Code, p.Why = Interrupted, "interrupted"
	case isFile:
		p.Code, p.Why, p.Remedy = Usage, file.Path+" "+file.Problem, file.Remedy
	case isMismatch:
		p.Code, p.Why, p.Remedy = Denied, mismatch.Error(), "check the address and --tls-dir: somebody else answers at "+call.Addr
	case len(fields) > 0:
		explainFields(p, fields)
	case isConnect:
		explainConnect(p, call, ce)
	case isSDK:
		explainConnect(p, call, rejection.New(sdk.Code, &fairleadv1.Rejection{Reason: sdk.Reason, Message: sdk.Message, Field: sdk.Field}))
	case errors.Is(err, context.DeadlineExceeded):
		p.Code, p.Why = TimedOut, "the time is over"
	default:
		p.Why = err.Error()
	}
	if p.What == "" {
		p.What, p.Why = p.Why, ""
	}
	return p
}

// joined is what errors.Join returns.
type joined interface {
	error
	Unwrap() []error
}

// fieldErrors returns every field that err, joined or wrapped, finds fault with.
func fieldErrors(err error) []*cell.FieldError {
	if several, ok := errors.AsType[joined](err); ok {
		var all []*cell.FieldError
		for _, e := range several.Unwrap() {
			all = append(all, fieldErrors(e)...)
		}
		return all
	}
	if fe, ok := errors.AsType[*cell.FieldError](err); ok {
		return []*cell.FieldError{fe}
	}
	return nil
}

func explainFields(p *Problem, fields []*cell.FieldError) {
	p.Code = Usage
	if len(fields) == 1 {
		p.Why, p.Remedy = fields[0].Field+" "+fields[0].Problem, fields[0].Remedy
		return
	}
	lines := make([]string, len(fields))
	for i, f := range fields {
		lines[i] = f.Error()
	}
	if p.What == "" {
		p.What = fmt.Sprintf("the request has %d faults", len(fields))
	}
	p.Why = strings.Join(lines, "\n")
}

func explainFaults(e *config.FaultsError) *Problem {
	p := &Problem{Code: Usage, What: "the configuration cannot be used", Why: e.Error(), Err: e}
	if len(e.Faults) == 1 {
		f := e.Faults[0]
		p.Remedy, f.Remedy = f.Remedy, ""
		p.Why = f.String()
	}
	return p
}

func explainConnect(p *Problem, call *Call, ce *connect.Error) {
	r := rejection.From(ce)
	p.Why = ce.Message()
	if r.GetMessage() != "" {
		p.Why = r.GetMessage()
	}
	switch ce.Code() {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		p.Code, p.Remedy = Usage, fieldRemedy(r)
	case connect.CodeNotFound:
		p.Code = NotFound
	case connect.CodeUnauthenticated:
		p.Code, p.Remedy = Denied, unauthenticatedRemedy(call)
	case connect.CodePermissionDenied:
		p.Code, p.Remedy = Denied, deniedRemedy(call)
	case connect.CodeResourceExhausted, connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeAborted:
		p.Code, p.Remedy = Refused, refusedRemedy(r)
	case connect.CodeUnavailable:
		explainUnavailable(p, call, ce, r)
	case connect.CodeDeadlineExceeded:
		p.Code, p.Why, p.Remedy = Unreachable, "no answer in time from "+call.Addr, unknownRemedy(call)
	case connect.CodeCanceled:
		p.Code, p.Why = Interrupted, "interrupted"
	case connect.CodeUnimplemented:
		p.Why = "what answers at " + call.Addr + " does not know this call: " + p.Why
		p.Remedy = "check the address, and compare the versions with: fairlead version, fairlead status"
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeDataLoss:
		p.Remedy = "see the server's log"
	default:
		p.Remedy = "see the server's log"
	}
}

// explainUnavailable tells apart who said it: nobody (the connection failed), a server without a leader or that lost the outcome, and a
// server that sheds load. Only the last is a refusal.
func explainUnavailable(p *Problem, call *Call, ce *connect.Error, r *fairleadv1.Rejection) {
	switch {
	case r.GetLimit() != "":
		p.Code, p.Remedy = Refused, refusedRemedy(r)
	case r.GetReason() == rejection.ReasonNotApplied:
		p.Code, p.Remedy = Unreachable, "nothing was done; "+retryAdvice(r)
	case r != nil || connect.IsWireError(ce):
		p.Code, p.Remedy = Unreachable, unknownRemedy(call)
	case untrusted(ce):
		p.Code = Unreachable
		p.What = "cannot trust what answers at " + call.Addr
		p.Remedy = "give the certificate of the cluster's authority with --ca-file or FAIRLEAD_CA_FILE, and a host that the server's certificate names"
	default:
		p.Code = Unreachable
		p.What = "cannot reach " + call.Addr
		p.Remedy = "is it running? Start one here with: fairlead dev, or name another with --addr or FAIRLEAD_ADDR"
	}
}

// untrusted reports whether a server showed a certificate that does not pass.
func untrusted(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	return bad
}

// OfRejection returns the code of a refused item of a batch: what its call alone would have ended with.
func OfRejection(r *fairleadv1.Rejection) Code {
	var code connect.Code
	if err := code.UnmarshalText([]byte(r.GetCode())); err != nil {
		return Refused
	}
	return Explain(rejection.New(code, r)).Code
}

// fieldFlag names the flag for a field of the API: most flags have the name of the field's last word.
func fieldFlag(field string) string {
	for part, flag := range map[string]string{
		"reservation_": "--reservation", "credit.": "--credit", "starts.": "--starts", "placement.require": "--require",
		"concurrency_keys": "--concurrency-key", "resources": "--resource",
	} {
		if strings.HasPrefix(strings.TrimPrefix(field, "job."), part) {
			return flag
		}
	}
	if part, ok := strings.CutPrefix(field, "capacity."); ok {
		return "--capacity-" + part
	}
	name := field[strings.LastIndexByte(field, '.')+1:]
	switch name {
	case "idempotency_key":
		return "--key"
	case "execution_timeout":
		return "--timeout"
	case "attempts_max":
		return "--max-attempts"
	case "labels":
		return "--label"
	case "scopes":
		return "--scope"
	case "operation", "operations":
		return "the operation"
	default:
		return "--" + strings.ReplaceAll(name, "_", "-")
	}
}

func fieldRemedy(r *fairleadv1.Rejection) string {
	if r.GetField() == "" {
		return ""
	}
	return "change " + fieldFlag(r.GetField())
}

func refusedRemedy(r *fairleadv1.Rejection) string {
	switch {
	case r.GetExistingJobId() != "":
		return "see the job that has the key with: fairlead job get " + r.GetExistingJobId() + ", or give another --key"
	case r.GetRetryAfter() != nil:
		return retryAdvice(r)
	default:
		return ""
	}
}

func retryAdvice(r *fairleadv1.Rejection) string {
	if d := r.GetRetryAfter().AsDuration(); d > 0 {
		return fmt.Sprintf("try again in %v", d.Round(time.Millisecond))
	}
	return "try again"
}

func unauthenticatedRemedy(call *Call) string {
	if call.Identity == "" {
		return "give a key with --token, --token-file or FAIRLEAD_TOKEN; for a local fairlead dev, run this where its state directory is or set " +
			"FAIRLEAD_DEV_DIR"
	}
	return "the key (" + call.Identity + ") is not live there: check --addr, or make another with: fairlead key create"
}

func deniedRemedy(call *Call) string {
	if call.Identity == "" {
		return "give a key with --token or FAIRLEAD_TOKEN"
	}
	return "use a key with that scope (this was " + call.Identity + "): --token, FAIRLEAD_TOKEN, or --as NAME with a local fairlead dev"
}

func unknownRemedy(call *Call) string {
	if call.Remedy != "" {
		return call.Remedy
	}
	return "try again"
}
