package leader

// Waited reports whether a call is a poll that was waiting when it ended: nothing of it was in an entry, so that whoever asks again misses nothing.
func (c *Call) Waited() bool { return c.Poll != nil && c.pending == 0 && c.granted == 0 }
