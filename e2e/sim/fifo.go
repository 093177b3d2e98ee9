package sim

import "time"

// fifo is first in, first out, whoever's it is.
type fifo struct {
	offers []operations
	keys   *keyring
	lineup lineup
}

func newFIFO(s *Scenario) *fifo {
	keys := newKeyring()
	return &fifo{offers: offersOf(s), keys: keys, lineup: lineup{keys: keys}}
}

// Arrive implements Dispatcher.
func (f *fifo) Arrive(_ time.Duration, r *Record) error {
	f.lineup.push(r)
	return nil
}

// Next implements Dispatcher.
func (f *fifo) Next(_ time.Duration, workers int) (*Record, bool) {
	k := f.lineup.first(f.offers[workers])
	if k == nil {
		return nil, false
	}
	r := f.lineup.take(k)
	f.keys.hold(r.Job, 1)
	return r, true
}

// Complete implements Dispatcher.
func (f *fifo) Complete(_ time.Duration, r *Record) { f.keys.hold(r.Job, -1) }

// Remove implements Dispatcher.
func (f *fifo) Remove(time.Duration, *Record) { f.lineup.removed() }
