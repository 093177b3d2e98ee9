// Package rejection is the form in which Fairlead's API says no, for both ends of the wire.
//
// It owns how a typed error becomes a Connect code, a [fairleadv1.Rejection] and the standard error details, and how a client reads
// them back. Whatever is refused anywhere goes through [New], so that the same facts reach every protocol: the Rejection itself, ErrorInfo
// and RetryInfo for tools that know only Google's error model, and a Retry-After header for tools that know only HTTP.
//
// It refuses to guess: an error that is not one of the door's typed errors is left to the caller, whose server decides what of it
// may leave the process.
package rejection

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Domain is the domain of every ErrorInfo: whose reasons they are.
const Domain = "fairlead"

// HeaderRetryAfter is the header, or over gRPC the trailer, that carries when to try again in whole seconds.
const HeaderRetryAfter = "Retry-After"

// The reasons that more than one part of the API gives. A limit's reason is its name in upper case.
const (
	ReasonBadField        = "BAD_FIELD"       // a field of the request is outside its bounds
	ReasonNotFound        = "NOT_FOUND"       // there is no such thing, or it is not the caller's
	ReasonAlreadyExists   = "ALREADY_EXISTS"  // there is one already
	ReasonUnauthenticated = "UNAUTHENTICATED" // no key, or not a live one
	ReasonScopeMissing    = "SCOPE_MISSING"   // the key lacks the scope that the call needs
	ReasonTenantMissing   = "TENANT_MISSING"  // the call is a tenant's and the key is of the platform
	ReasonNotAllowed      = "NOT_ALLOWED"     // no key may call this
	ReasonOutcomeUnknown  = "OUTCOME_UNKNOWN" // it may have been applied
	ReasonNotApplied      = "NOT_APPLIED"     // it certainly was not applied; try again
)

// The keys of ErrorInfo's metadata.
const (
	metaLimit       = "limit"
	metaScope       = "scope"
	metaValue       = "value"
	metaBound       = "bound"
	metaField       = "field"
	metaExistingJob = "existing_job_id"
)

// New returns the Connect error for r. Its message is r's; its details are r itself, ErrorInfo, and RetryInfo when r says when to
// try again; its metadata has Retry-After in whole seconds, rounded up. r is not kept: the error holds a copy whose code is that of
// the error and whose texts are valid UTF-8.
func New(code connect.Code, r *fairleadv1.Rejection) *connect.Error {
	r = clean(code, r)
	err := connect.NewError(code, errors.New(r.GetMessage()))
	addDetail(err, r)
	addDetail(err, errorInfo(r))
	if d := r.GetRetryAfter().AsDuration(); r.GetRetryAfter() != nil && d > 0 {
		addDetail(err, &errdetails.RetryInfo{RetryDelay: r.GetRetryAfter()})
		err.Meta().Set(HeaderRetryAfter, strconv.FormatInt(wholeSeconds(d), 10))
	}
	return err
}

// Of returns the code and the rejection for err when it is, or wraps, one of the door's typed errors: a [cell.FieldError] or a
// [cell.LimitError]. It returns false for any other.
func Of(err error) (connect.Code, *fairleadv1.Rejection, bool) {
	if fe, ok := errors.AsType[*cell.FieldError](err); ok {
		code := connect.CodeInvalidArgument
		return code, &fairleadv1.Rejection{
			Code: code.String(), Reason: ReasonBadField, Message: fe.Error(), Field: fe.Field,
		}, true
	}
	if le, ok := errors.AsType[*cell.LimitError](err); ok {
		code := codeOfLimit(le)
		r := &fairleadv1.Rejection{
			Code: code.String(), Reason: strings.ToUpper(le.Limit), Message: le.Error(),
			Limit: le.Limit, Scope: string(le.Scope), Value: le.Value, Bound: le.Bound,
		}
		if le.RetryAfter > 0 {
			r.RetryAfter = durationpb.New(le.RetryAfter)
		}
		return code, r, true
	}
	return 0, nil, false
}

// Error returns the Connect error for err when [Of] knows it, and false otherwise.
func Error(err error) (*connect.Error, bool) {
	code, r, ok := Of(err)
	if !ok {
		return nil, false
	}
	return New(code, r), true
}

// codeOfLimit is the only place that chooses between 429 and 503. Every named limit, the cell's backlog included, is something that the
// caller can heed by sending less, so each answers 429; 503 is left to what the caller cannot know of: no leader, overload shed.
func codeOfLimit(*cell.LimitError) connect.Code { return connect.CodeResourceExhausted }

// From returns the rejection that err, as a client received it, carries. Where a proxy kept only the standard details, it is put
// together from those. It returns nil when err is no Connect error or carries none of them.
func From(err error) *fairleadv1.Rejection {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	var info *errdetails.ErrorInfo
	var retry *errdetails.RetryInfo
	for _, d := range ce.Details() {
		v, err := d.Value()
		if err != nil { // a type that this binary does not know, or bytes that are not one
			continue
		}
		switch v := v.(type) {
		case *fairleadv1.Rejection:
			return v
		case *errdetails.ErrorInfo:
			info = v
		case *errdetails.RetryInfo:
			retry = v
		}
	}
	return fromStandard(ce, info, retry)
}

func fromStandard(ce *connect.Error, info *errdetails.ErrorInfo, retry *errdetails.RetryInfo) *fairleadv1.Rejection {
	seconds, err := strconv.ParseInt(ce.Meta().Get(HeaderRetryAfter), 10, 32)
	hasHeader := err == nil && seconds >= 0
	if info == nil && retry == nil && !hasHeader {
		return nil
	}
	r := &fairleadv1.Rejection{Code: ce.Code().String(), Message: ce.Message()}
	if info != nil {
		m := info.GetMetadata()
		r.Reason, r.Field, r.Limit, r.Scope = info.GetReason(), m[metaField], m[metaLimit], m[metaScope]
		r.Value, r.Bound, r.ExistingJobId = number(m[metaValue]), number(m[metaBound]), m[metaExistingJob]
	}
	switch {
	case retry != nil:
		r.RetryAfter = retry.GetRetryDelay()
	case hasHeader:
		r.RetryAfter = durationpb.New(time.Duration(seconds) * time.Second)
	}
	return r
}

// number reads what errorInfo wrote; anything else stands for no number.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// clean copies r. Texts may quote what a caller sent, and a proto string must be UTF-8: bytes that are not would lose the detail.
func clean(code connect.Code, r *fairleadv1.Rejection) *fairleadv1.Rejection {
	c := proto.CloneOf(r)
	if c == nil {
		c = &fairleadv1.Rejection{}
	}
	c.Code = code.String()
	for _, s := range []*string{&c.Reason, &c.Message, &c.Field, &c.Limit, &c.Scope, &c.ExistingJobId} {
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	return c
}

func errorInfo(r *fairleadv1.Rejection) *errdetails.ErrorInfo {
	m := make(map[string]string)
	set := func(key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	set(metaLimit, r.GetLimit())
	set(metaScope, r.GetScope())
	set(metaField, r.GetField())
	set(metaExistingJob, r.GetExistingJobId())
	if r.GetLimit() != "" {
		m[metaValue] = strconv.FormatInt(r.GetValue(), 10)
		m[metaBound] = strconv.FormatInt(r.GetBound(), 10)
	}
	return &errdetails.ErrorInfo{Reason: r.GetReason(), Domain: Domain, Metadata: m}
}

// addDetail adds m. Marshalling fails only for texts that are not UTF-8, which clean has excluded; an error without a detail would still
// be the right error.
func addDetail(err *connect.Error, m proto.Message) {
	if d, mErr := connect.NewErrorDetail(m); mErr == nil {
		err.AddDetail(d)
	}
}

// wholeSeconds rounds up: a caller that came back early would be refused again.
func wholeSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
