package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"iter"
	"net/http"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The defaults of [Config], and the bounds of a long poll.
const (
	AttemptTimeoutDefault  = 10 * time.Second // more than a gateway parks a call while its lane moves
	AttemptsMaxDefault     = 10               // about eight seconds of back-off: a restart or an election fits
	RetryDelayMinDefault   = 50 * time.Millisecond
	RetryDelayMaxDefault   = 5 * time.Second
	RetryRatioDefault      = 0.1
	RetryFloorDefault      = 10.0 // per second
	RetryBurstDefault      = 100.0
	BatchesInFlightDefault = 1

	waitPoll  = 60 * time.Second // the longest that the server holds a WaitJob
	waitSlack = 10 * time.Second // beyond it, the answer is lost
	// waitFast is what tells a wait that was held from one that a server in trouble answered at once, which must not be repeated at once.
	waitFast = time.Second
)

// Config says where the server is and how to call it. The zero value of every field but Addr is its default.
type Config struct {
	// Addr is the server's URL, or its host and port, which means http on loopback and https elsewhere. Required.
	Addr string
	// Token is the API key. It decides the tenant.
	Token Token
	// Cell names the cell that calls of workers and of the cell's status go to, where there are several; the tenant's own, or the only one, when
	// empty. Jobs go to their tenant's cell whatever it says.
	Cell string
	// AllowPlain lets the token go over plain http to another machine.
	AllowPlain bool
	// Protocol is the version of HTTP.
	Protocol Protocol
	// TLS is used for https; the system's roots when nil.
	TLS *tls.Config
	// RootCAs are the authorities that https servers are verified by, in place of TLS's or the system's. CAFile is a file of such in PEM, such
	// as a cluster's own; when both are given, either verifies.
	RootCAs *x509.CertPool
	CAFile  string
	// HTTPClient is used instead of one made for Addr. Protocol, TLS, RootCAs and CAFile are its own then, and it must not follow redirects.
	HTTPClient *http.Client
	// CompressBytesMin is the size from which requests are compressed: 8 KiB when 0, never when negative. On loopback, 0 is never.
	CompressBytesMin int

	// AttemptTimeout bounds one try of a call, 10 s by default. The caller's context bounds all of them.
	AttemptTimeout time.Duration
	// AttemptsMax bounds the tries of a call, 10 by default; 1 repeats nothing.
	AttemptsMax int
	// RetryDelayMin and RetryDelayMax bound the back-off between tries, 50 ms and 5 s by default.
	RetryDelayMin, RetryDelayMax time.Duration
	// RetryRatio is how many repetitions each fresh call allows, 0.1 by default; RetryFloor is how many each second allows whatever the
	// calls, 10 by default; RetryBurst is how many may be saved up, 100 by default. A batch counts as one repetition.
	RetryRatio, RetryFloor, RetryBurst float64
	// BatchesInFlight is how many batches of Submit calls may be under way at once, 1 by default. More help only over long distances.
	BatchesInFlight int
}

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.AttemptTimeout, AttemptTimeoutDefault)
	setDefault(&cfg.AttemptsMax, AttemptsMaxDefault)
	setDefault(&cfg.RetryDelayMin, RetryDelayMinDefault)
	setDefault(&cfg.RetryDelayMax, RetryDelayMaxDefault)
	setDefault(&cfg.RetryRatio, RetryRatioDefault)
	setDefault(&cfg.RetryFloor, RetryFloorDefault)
	setDefault(&cfg.RetryBurst, RetryBurstDefault)
	setDefault(&cfg.BatchesInFlight, BatchesInFlightDefault)
	return cfg
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (cfg Config) check() error {
	const remedy = "leave it 0 for the default"
	switch {
	case cfg.AttemptTimeout < 0:
		return badField("attempt_timeout", fmt.Sprintf("is %v, below 0", cfg.AttemptTimeout), remedy)
	case cfg.AttemptsMax < 0:
		return badField("attempts_max", fmt.Sprintf("is %d, below 0", cfg.AttemptsMax), remedy)
	case cfg.RetryDelayMin < 0 || cfg.RetryDelayMax < cfg.RetryDelayMin:
		return badField("retry_delay_min", fmt.Sprintf("is %v, outside 0 to retry_delay_max, %v", cfg.RetryDelayMin, cfg.RetryDelayMax), remedy)
	case !(cfg.RetryRatio >= 0) || !(cfg.RetryFloor >= 0) || !(cfg.RetryBurst >= 0):
		return badField("retry_ratio", "or retry_floor or retry_burst is below 0 or not a number", remedy)
	case cfg.BatchesInFlight < 0:
		return badField("batches_in_flight", fmt.Sprintf("is %d, below 0", cfg.BatchesInFlight), remedy)
	}
	return nil
}

// Client submits jobs of one tenant and follows them. It is safe for concurrent use; one is enough for a process.
type Client struct {
	conn    *Conn
	service fairleadv1connect.JobServiceClient
	retry   *retrier
	batches *coalescer
}

// New returns a client for cfg. It connects on first use. It returns an *[Error] of code invalid_argument that names the field of cfg
// that is at fault.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	conn, err := Dial(cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{
		conn:    conn,
		service: fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, conn.Options...),
		retry:   newRetrier(cfg),
	}
	c.batches = newCoalescer(cfg.BatchesInFlight, c.sendBatch)
	return c, nil
}

// Close ends what is under way: submissions that are not answered yet return [ErrClosed], and are unknown if they had left. It closes idle
// connections of the client's own.
func (c *Client) Close() {
	c.batches.close()
	c.conn.Close()
}

// Submit submits one job and returns once it is durable. Concurrent calls share requests. It returns an *[Error]: [ErrInvalid],
// [ErrAlreadyExists] when the key stands for another job, [ErrLimited] at a limit, [ErrUnavailable] and others; when its Unknown is true,
// call again with the same idempotency key to find out.
func (c *Client) Submit(ctx context.Context, job Job) (Submitted, error) {
	spec, err := job.spec()
	if err != nil {
		return Submitted{}, err
	}
	c.retry.fresh(1)
	for n := 1; ; n++ {
		result, err := c.batches.submit(ctx, spec)
		if err != nil {
			return Submitted{IdempotencyKey: spec.GetIdempotencyKey()}, err // the batch has been repeated as often as made sense
		}
		if result.GetRejection() == nil {
			return submittedOf(spec, result), nil
		}
		e := FromRejection(result.GetRejection())
		if !c.retry.pause(ctx, n, e) {
			if ctx.Err() != nil {
				e = gaveUp(ctx, e, e.Unknown)
			}
			return Submitted{IdempotencyKey: spec.GetIdempotencyKey()}, e
		}
	}
}

func submittedOf(spec *fairleadv1.JobSpec, r *fairleadv1.SubmitResult) Submitted {
	return Submitted{ID: r.GetJobId(), State: r.GetState(), Duplicate: r.GetDuplicate(), IdempotencyKey: spec.GetIdempotencyKey()}
}

// sendBatch is one batch, repeated while that may help. Meanwhile the next one fills: while the server is away, one caller's worth of
// tries stands for all of them.
func (c *Client) sendBatch(ctx context.Context, specs []*fairleadv1.JobSpec) ([]*fairleadv1.SubmitResult, error) {
	answer, err := call(ctx, c.retry, c.retry.attemptTimeout, c.service.SubmitBatch, &fairleadv1.SubmitBatchRequest{Jobs: specs})
	if err != nil {
		return nil, err
	}
	return answer.GetResults(), checkResults(len(specs), answer.GetResults())
}

// BatchResult is the answer for one job of [Client.SubmitBatch].
type BatchResult struct {
	Submitted
	Err error // nil, or an *[Error]
}

// SubmitBatch submits jobs, as many as there are, in requests of at most 500 jobs and 1 MiB, and answers for each of them in their order.
// It repeats requests that failed as a whole; a job that is rejected is left to the caller, who has the time to wait in its
// [Error.RetryAfter]. The error is that of the first request that failed as a whole, or of the first job that has no wire form, in which case
// nothing was submitted; the jobs of failed requests have it too.
func (c *Client) SubmitBatch(ctx context.Context, jobs []Job) ([]BatchResult, error) {
	specs := make([]*fairleadv1.JobSpec, len(jobs))
	results := make([]BatchResult, len(jobs))
	for i := range jobs {
		spec, err := jobs[i].spec()
		if err != nil {
			return nil, fmt.Errorf("jobs[%d]: %w", i, err)
		}
		specs[i], results[i].IdempotencyKey = spec, spec.GetIdempotencyKey()
	}
	c.retry.fresh(len(jobs))
	var first error
	for from := 0; from < len(specs); {
		to := batchEnd(specs, from)
		answers, err := c.sendBatch(ctx, specs[from:to])
		for i := from; i < to; i++ {
			switch {
			case err != nil:
				results[i].Err = err
			case answers[i-from].GetRejection() != nil:
				results[i].Err = FromRejection(answers[i-from].GetRejection())
			default:
				results[i].Submitted = submittedOf(specs[i], answers[i-from])
			}
		}
		if first == nil {
			first = err
		}
		from = to
	}
	return results, first
}

// batchEnd returns where the request that starts at from ends.
func batchEnd(specs []*fairleadv1.JobSpec, from int) int {
	bytes, to := specBytes(specs[from]), from+1
	for to < len(specs) && to-from < batchJobsMax && bytes+specBytes(specs[to]) <= batchBytesMax {
		bytes += specBytes(specs[to])
		to++
	}
	return to
}

// Get returns the job with its payload and, once it has one, its result. It returns [ErrNotFound] when there is none of this tenant's.
func (c *Client) Get(ctx context.Context, id string) (*fairleadv1.Job, error) {
	if err := checkJobID(id); err != nil {
		return nil, err
	}
	c.retry.fresh(1)
	answer, err := call(ctx, c.retry, c.retry.attemptTimeout, c.service.GetJob, &fairleadv1.GetJobRequest{JobId: id})
	return answer.GetJob(), err
}

// Filter chooses jobs for [Client.List]; the zero value chooses all.
type Filter struct {
	States    []fairleadv1.JobState
	Operation string
	Class     cell.Class
	PageSize  int // jobs in one request, 1 to 500; 100 when 0
}

// List yields the tenant's jobs, newest first, without payloads and results. It fetches page after page as they are used. An error is the
// last thing it yields.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[*fairleadv1.Job, error] {
	return func(yield func(*fairleadv1.Job, error) bool) {
		if !utf8.ValidString(f.Operation) {
			yield(nil, badField("operation", "is not UTF-8", "give it as it was registered"))
			return
		}
		req := &fairleadv1.ListJobsRequest{
			States: f.States, Operation: f.Operation, Class: classProto(f.Class), PageSize: clampInt32(int64(f.PageSize)),
		}
		for {
			c.retry.fresh(1)
			page, err := call(ctx, c.retry, c.retry.attemptTimeout, c.service.ListJobs, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range page.GetJobs() {
				if !yield(job, nil) {
					return
				}
			}
			if page.GetNextPageToken() == "" {
				return
			}
			req.PageToken = page.GetNextPageToken()
		}
	}
}

// Wait returns the job once it has ended, however it did: look at its state. It polls as long as ctx lasts, and returns an *[Error] that
// wraps the context's cause after that, or [ErrNotFound].
func (c *Client) Wait(ctx context.Context, id string) (*fairleadv1.Job, error) {
	if err := checkJobID(id); err != nil {
		return nil, err
	}
	req := &fairleadv1.WaitJobRequest{JobId: id, Timeout: durationpb.New(waitPoll)}
	for fast := 0; ; {
		c.retry.fresh(1)
		began := time.Now()
		answer, err := call(ctx, c.retry, waitPoll+waitSlack, c.service.WaitJob, req)
		if err != nil {
			return nil, err
		}
		if answer.GetDone() {
			return answer.GetJob(), nil
		}
		if time.Since(began) >= waitFast {
			fast = 0
			continue
		}
		fast++
		if Pause(ctx, c.retry.backoff.Next(fast, 0)) != nil {
			return nil, gaveUp(ctx, nil, false)
		}
	}
}

// Cancel ends a job that has not ended yet, and returns it as it is then. The second result is false when the job had ended by itself
// before. It returns [ErrNotFound] when there is none.
func (c *Client) Cancel(ctx context.Context, id string) (*fairleadv1.Job, bool, error) {
	if err := checkJobID(id); err != nil {
		return nil, false, err
	}
	c.retry.fresh(1)
	answer, err := call(ctx, c.retry, c.retry.attemptTimeout, c.service.CancelJob, &fairleadv1.CancelJobRequest{JobId: id})
	return answer.GetJob(), answer.GetCancelled(), err
}

// Retry makes a job that ended without success ready again, with fresh budgets. It returns [ErrNotFound] when there is none, [ErrNotNow]
// when it has not ended or has succeeded. It is not repeated when its answer is lost, since the job may have run and ended again in the
// meantime: see [Error.Unknown].
func (c *Client) Retry(ctx context.Context, id string) (*fairleadv1.Job, error) {
	if err := checkJobID(id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.retry.attemptTimeout)
	defer cancel()
	answer, err := c.service.RetryJob(ctx, &fairleadv1.RetryJobRequest{JobId: id})
	if err != nil {
		return nil, AsError(err)
	}
	return answer.GetJob(), nil
}

// Explain says why the job waits: a typed reason, its place, and when it can run next. It returns [ErrNotFound] when there is none.
func (c *Client) Explain(ctx context.Context, id string) (*fairleadv1.ExplainJobResponse, error) {
	if err := checkJobID(id); err != nil {
		return nil, err
	}
	c.retry.fresh(1)
	return call(ctx, c.retry, c.retry.attemptTimeout, c.service.ExplainJob, &fairleadv1.ExplainJobRequest{JobId: id})
}
