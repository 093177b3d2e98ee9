package localcluster

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// board is what there is to see of a run while it goes on. It is safe for concurrent use.
type board struct {
	title string
	began time.Time

	mu      sync.Mutex
	cluster *Cluster // nil before it has a layout
	loaders []application
	drawn   []string          // lines of the moment, such as bars
	leaders map[string]string // by cell, empty for control
	down    map[string]bool   // agents that were killed
	events  []event
}

// application is a tenant's, which counts what it sees.
type application interface {
	tally(now time.Time) tally
}

// event is something that happened, at a time since the run began.
type event struct {
	at   time.Duration
	text string
}

func newBoard(title string) *board {
	return &board{title: title, began: time.Now(), leaders: make(map[string]string), down: make(map[string]bool)}
}

func (b *board) sayf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, event{time.Since(b.began), fmt.Sprintf(format, args...)})
}

func (b *board) shows(c *Cluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cluster = c
}

func (b *board) follows(l application) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loaders = append(b.loaders, l)
}

func (b *board) draws(lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drawn = lines
}

func (b *board) led(cellName, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaders[cellName] = name
}

func (b *board) killed(name string, down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down[name] = down
}

// line is an agent as it is shown.
type line struct {
	agent
	leads, down bool
}

// state is a copy of the board as of one moment.
type state struct {
	elapsed time.Duration
	agents  []line
	tenants []tally
	drawn   []string
	events  []event
}

func (b *board) state(now time.Time) state {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := state{elapsed: now.Sub(b.began), drawn: b.drawn, events: slices.Clip(b.events)}
	for _, l := range b.loaders {
		s.tenants = append(s.tenants, l.tally(now))
	}
	if b.cluster != nil {
		for _, a := range b.cluster.layout.Agents {
			s.agents = append(s.agents, line{a, b.leaders[a.Cell] == a.Name && a.Role != roleGateway, b.down[a.Name]})
		}
	}
	return s
}
