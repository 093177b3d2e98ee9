package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
)

const (
	// headerTimeout bounds how long a connection may take to say what it wants.
	headerTimeout = 5 * time.Second
	// idleTimeout closes a connection that nobody uses; above the minute at which most load balancers give theirs up, so that they do first.
	idleTimeout = 2 * time.Minute
	// headerBytesMax leaves room for a key, trace context and what proxies add.
	headerBytesMax = 32 << 10
	// streamsPerConnectionMax bounds the concurrent requests of one HTTP/2 connection: a client opens another beyond it.
	streamsPerConnectionMax = 250
	// compressBytesMin is where compression starts: below it gzip costs more time than the network saves.
	compressBytesMin = 1 << 10
)

// Server returns a server for handler with this package's time-outs and protocols: HTTP/1.1, HTTP/2 with TLS, and HTTP/2 in the clear
// for gRPC on loopback. It has no write time-out, because a long poll answers when there is something to say; what a slow body holds up
// is one of its own key's requests.
func Server(handler http.Handler) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         &p,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnectionMax},
	}
}

// HandlerOptions returns what every handler of the API is made with: the bound on a message, compression of what is worth it, panics
// answered as internal errors and logged to [slog.Default], and JSON with payloads as they are.
func HandlerOptions() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(RequestBytesMax),
		connect.WithCompressMinBytes(compressBytesMin),
		connect.WithRecover(recovered),
		connect.WithCodec(jsonCodec{name: "json"}),
		connect.WithCodec(jsonCodec{name: "json; charset=utf-8"}),
	}
}

// recovered answers for a handler that panicked: the caller learns that it was our fault and no more.
func recovered(ctx context.Context, spec connect.Spec, _ http.Header, value any) error {
	slog.ErrorContext(ctx, "a handler panicked", "procedure", spec.Procedure, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	return connect.NewError(connect.CodeInternal, errors.New("internal error: the server's log says more; the request may have been applied"))
}

// Mount is a service's handler and its path.
type Mount struct {
	Path    string
	Handler http.Handler
}

// Mounted takes what a generated NewXServiceHandler returns.
func Mounted(path string, handler http.Handler) Mount { return Mount{Path: path, Handler: handler} }

// Mux returns a mux of the services, of gRPC health as checker has it, and of gRPC reflection over them. A nil checker is one that says
// serving for each of them for ever. It returns an error when a service has a procedure for which no permission is stated: the
// process must not start.
func Mux(checker grpchealth.Checker, mounts ...Mount) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	var errs []error
	var names []string
	for _, m := range mounts {
		if err := checkService(m.Path); err != nil {
			errs = append(errs, err)
			continue
		}
		mux.Handle(m.Path, m.Handler)
		names = append(names, strings.Trim(m.Path, "/"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.Sort(names)
	if checker == nil {
		checker = grpchealth.NewStaticChecker(names...)
	}
	options := HandlerOptions()
	mux.Handle(grpchealth.NewHandler(checker, options...))
	reflector := grpcreflect.NewStaticReflector(append(names, grpchealth.HealthV1ServiceName)...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, options...))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, options...))
	return mux, nil
}
