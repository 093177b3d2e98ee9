package main

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a log that a test can wait for a word in.
type lines struct {
	found chan struct{}

	mu   sync.Mutex
	all  strings.Builder
	word string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	if l.word != "" && strings.Contains(l.all.String(), l.word) {
		l.word = ""
		l.found <- struct{}{}
	}
	return len(p), nil
}

// want says which word await waits for.
func (l *lines) want(word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.word = word
}

func (l *lines) await(t *testing.T) {
	t.Helper()
	select {
	case <-l.found:
	case <-time.After(awaitMax):
		t.Error("the log does not say it: " + l.String())
	}
}

// String returns what was logged.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
