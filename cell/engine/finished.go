package engine

// jobList is ended jobs in the order of their ends.
type jobList struct{ oldest, newest *Job }

func (l *jobList) push(j *Job) {
	j.older, j.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = j
	} else {
		l.oldest = j
	}
	l.newest = j
}

func (l *jobList) remove(j *Job) {
	if j.older != nil {
		j.older.newer = j.newer
	} else {
		l.oldest = j.newer
	}
	if j.newer != nil {
		j.newer.older = j.older
	} else {
		l.newest = j.older
	}
	j.older, j.newer = nil, nil
}

// finishedList returns the list that an ended job is in.
func (j *Job) finishedList() *jobList {
	if j.Dropped {
		return &j.Lane.dropped
	}
	return &j.Lane.whole
}

// trimStepsMax bounds what one job's end may cost: each step frees at least jobOverheadBytes, so it is enough for a job of 2 MiB, and a lane
// or a cell whose bound was lowered gets there within few ends.
const trimStepsMax = 4096

// trimFinished keeps the lane and the cell within their bounds on finished jobs.
func (s *State) trimFinished(l *Lane) {
	for range trimStepsMax {
		switch {
		case l.finishedJobs > s.limits.FinishedJobsMax:
			s.forget(l.oldestFinished())
		case l.finishedBytes > s.limits.FinishedBytesMax:
			s.trim(l)
		case s.finishedBytes > s.limits.finishedCellBytes():
			s.trim(s.keepers[0])
		default:
			return
		}
	}
}

// trim frees bytes of a lane's ended jobs: the oldest that has them loses payload and result; where that would free less than its record takes,
// the oldest is forgotten.
func (s *State) trim(l *Lane) {
	if j := l.whole.oldest; j != nil && j.droppableBytes() >= jobOverheadBytes {
		s.drop(j)
		return
	}
	s.forget(l.oldestFinished())
}

// oldestFinished returns the oldest of the lane's ended jobs, of which there is one.
func (l *Lane) oldestFinished() *Job {
	if l.dropped.oldest != nil {
		return l.dropped.oldest
	}
	return l.whole.oldest
}

// keeperHeap orders open lanes by the bytes of their ended jobs, the largest first, then by name, so that every replica trims the same one.
type keeperHeap []*Lane

func (h keeperHeap) Len() int { return len(h) }

func (h keeperHeap) Less(i, j int) bool {
	if a, b := h[i].finishedBytes, h[j].finishedBytes; a != b {
		return a > b
	}
	return h[i].before(h[j])
}

func (h keeperHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].keeper, h[j].keeper = i, j
}

// Push is for container/heap only.
func (h *keeperHeap) Push(x any) {
	l := theLane(x)
	l.keeper = len(*h)
	*h = append(*h, l)
}

// Pop is for container/heap only.
func (h *keeperHeap) Pop() any {
	l := takeLast((*[]*Lane)(h))
	l.keeper = -1
	return l
}

// droppableBytes is what an ended job would lose with its payload and result.
func (j *Job) droppableBytes() int { return len(j.Spec.Payload.Data) + len(j.Result.Data) }

// drop takes payload and result from the oldest ended job that has them; it stays known, and says what it lost.
func (s *State) drop(j *Job) {
	s.touch(j)
	s.count(j, -1)
	j.Lane.whole.remove(j)
	j.Spec.Payload.Data, j.Result.Data = nil, nil
	j.Dropped = true
	s.pushFinished(j)
	s.count(j, 1)
}

// pushFinished puts an ended job at the end of its list. One that others of the list ended after, which only a lane that was filled has, counts as the
// latest from here on: a list is in the order of its jobs' numbers.
func (s *State) pushFinished(j *Job) {
	list := j.finishedList()
	if list.newest != nil && list.newest.finishSeq > j.finishSeq {
		j.finishSeq = s.number()
	}
	list.push(j)
}

// number returns the next number of an end, for one that did not happen here and now.
func (s *State) number() uint64 {
	s.ended++
	s.numbered++
	return s.ended
}

// forget removes an ended job. Its key stands until the window is over.
func (s *State) forget(j *Job) {
	if _, ok := next(j.State, eventForget, false); !ok {
		panic("engine: forgetting a job that has not ended")
	}
	r := s.markedKey(j)
	s.remove(j)
	if r != nil {
		s.markKey(r)
	}
}

// remove removes a job, in whatever state it is. Its key stays.
func (s *State) remove(j *Job) {
	s.touch(j)
	s.disarm(j)
	s.count(j, -1)
	if j.State.Ended() {
		j.finishedList().remove(j)
	} else {
		s.leaveKeys(j)
	}
	j.gone = true
	delete(s.jobs, j.ID)
	s.removeFromAll(j)
	j.Lane.list.take(j.Seq)
}

func (s *State) removeFromAll(j *Job) {
	last := s.all[len(s.all)-1]
	if s.snapshot != nil {
		s.snapshot.moving(last, j.position)
	}
	s.all[j.position] = last
	last.position = j.position
	s.all[len(s.all)-1] = nil
	s.all = s.all[:len(s.all)-1]
}
