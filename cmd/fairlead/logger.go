package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
)

// newLogger returns a logger of a checked level and format. It logs to standard error, for standard output is data.
func newLogger(to io.Writer, level, format string) *slog.Logger {
	return newLevelLogger(to, levelOf(level), format)
}

// levelOf returns a checked level.
func levelOf(level string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		panic(fmt.Sprintf("log level %q was not checked: %v", level, err))
	}
	return l
}

// newLevelLogger is newLogger for a level that may change.
func newLevelLogger(to io.Writer, level slog.Leveler, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == config.DefaultLogFormat {
		return slog.New(slog.NewTextHandler(to, opts))
	}
	return slog.New(slog.NewJSONHandler(to, opts))
}
