package main

import (
	"fmt"
	"time"
)

// progress tells on standard error how far long work is: in place on a terminal, and elsewhere in lines, seldom.
type progress struct {
	app         *app
	began, last time.Time
	pace        time.Duration
	shown       bool
}

func (a *app) newProgress() *progress {
	p := &progress{app: a, began: a.now(), pace: progressElsewhere}
	p.last = p.began
	if a.talks {
		p.pace = progressOnTerminal
	}
	return p
}

// showf shows how far it is, when there was nothing to see for a while.
func (p *progress) showf(format string, args ...any) {
	now := p.app.now()
	if now.Sub(p.began) < progressAfter || now.Sub(p.last) < p.pace {
		return
	}
	p.last, p.shown = now, true
	if p.app.talks {
		p.app.talkf("\r\x1b[K%s", fmt.Sprintf(format, args...))
	} else {
		p.app.sayf(format, args...)
	}
}

// end takes the line away.
func (p *progress) end() {
	if p.shown && p.app.talks {
		p.app.talkf("\r\x1b[K")
	}
}
