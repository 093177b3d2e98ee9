package consensus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLogger lets raft log through slog. Raft's "info" is an operator's "debug": elections, snapshots and compactions in a
// healthy group, at a rate that drowns the platform's own lines; so everything below Warn is logged at debug level. Of what
// raft says again and again while a peer is away, one line in repeatEvery is logged, with how many were not.
type raftLogger struct {
	to      *slog.Logger
	name    string
	bound   []any
	repeats *repeats
}

// repeatEvery is how often the same warning is logged.
const repeatEvery = 10 * time.Second

// repeats remembers when each warning was last logged. Raft has some dozens of them.
type repeats struct {
	mu   sync.Mutex
	last map[string]time.Time
	held map[string]int
}

// due reports whether a warning is to be logged now, and how many of its kind were not since the last.
func (r *repeats) due(msg string, now time.Time) (held int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, seen := r.last[msg]; seen && now.Sub(last) < repeatEvery {
		r.held[msg]++
		return 0, false
	}
	held = r.held[msg]
	r.last[msg] = now
	delete(r.held, msg)
	return held, true
}

var _ hclog.Logger = raftLogger{}

func newRaftLogger(to *slog.Logger, name string) raftLogger {
	return raftLogger{to: to, name: name, repeats: &repeats{last: make(map[string]time.Time), held: make(map[string]int)}}
}

// noContext stands in for the context that raft's logger interface does not carry.
func noContext() context.Context {
	return context.Background() //nolint:forbidigo // raft's logger interface has no context to pass on
}

// What raft warns of in a group where all is well: a single voter stands for election at every start, and a replica that waits
// to be added knows nobody.
const (
	electionAtStart = "heartbeat timeout reached, starting election"
	waitsToBeAdded  = "no known peers, aborting election"
)

func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.NoLevel, hclog.Trace, hclog.Debug, hclog.Info, hclog.Off:
		return slog.LevelDebug
	default:
		return slog.LevelDebug
	}
}

// Log implements hclog.Logger.
func (l raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if level == hclog.Off {
		return
	}
	at := slogLevel(level)
	if msg == electionAtStart || msg == waitsToBeAdded {
		at = slog.LevelDebug
	}
	if !l.to.Enabled(noContext(), at) {
		return
	}
	for i, arg := range args {
		if format, ok := arg.(hclog.Format); ok && len(format) > 0 {
			layout, isString := format[0].(string)
			if isString {
				args[i] = fmt.Sprintf(layout, format[1:]...)
			}
		}
	}
	if at >= slog.LevelWarn {
		held, due := l.repeats.due(msg, time.Now())
		if !due {
			return
		}
		if held > 0 {
			args = append(slices.Clip(args), "not_logged", held)
		}
	}
	l.to.With("component", l.name).Log(noContext(), at, msg, args...)
}

// Trace implements hclog.Logger.
func (l raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (l raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (l raftLogger) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (l raftLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (l raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

// IsTrace implements hclog.Logger.
func (l raftLogger) IsTrace() bool { return l.IsDebug() }

// IsDebug implements hclog.Logger.
func (l raftLogger) IsDebug() bool { return l.to.Enabled(noContext(), slog.LevelDebug) }

// IsInfo implements hclog.Logger.
func (l raftLogger) IsInfo() bool { return l.IsDebug() }

// IsWarn implements hclog.Logger.
func (l raftLogger) IsWarn() bool { return l.to.Enabled(noContext(), slog.LevelWarn) }

// IsError implements hclog.Logger.
func (l raftLogger) IsError() bool { return l.to.Enabled(noContext(), slog.LevelError) }

// ImpliedArgs implements hclog.Logger.
func (l raftLogger) ImpliedArgs() []any { return l.bound }

// With implements hclog.Logger.
func (l raftLogger) With(args ...any) hclog.Logger {
	bound := append(append([]any{}, l.bound...), args...)
	return raftLogger{to: l.to.With(args...), name: l.name, bound: bound, repeats: l.repeats}
}

// Name implements hclog.Logger.
func (l raftLogger) Name() string { return l.name }

// Named implements hclog.Logger.
func (l raftLogger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

// ResetNamed implements hclog.Logger.
func (l raftLogger) ResetNamed(name string) hclog.Logger {
	return raftLogger{to: l.to, name: name, bound: l.bound, repeats: l.repeats}
}

// SetLevel implements hclog.Logger. The level is slog's handler's business.
func (l raftLogger) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (l raftLogger) GetLevel() hclog.Level {
	switch {
	case l.IsDebug():
		return hclog.Debug
	case l.IsWarn():
		return hclog.Warn
	default:
		return hclog.Error
	}
}

// StandardLogger implements hclog.Logger.
func (l raftLogger) StandardLogger(opts *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(opts), "", 0)
}

// StandardWriter implements hclog.Logger.
func (l raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

// lineWriter logs each write as one line.
type lineWriter struct{ to raftLogger }

func (w lineWriter) Write(line []byte) (int, error) {
	w.to.Info(string(bytes.TrimRight(line, "\n")))
	return len(line), nil
}
