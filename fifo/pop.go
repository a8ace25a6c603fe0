package fifo

import (
	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
)

// Committed implements boltstore.Producer.
func (j *Journal) Committed(entries []*boltstore.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		j.push(output{delta: &cache.Delta{Type: e.Type, Object: e}, size: e.Size()})
	}
	if len(j.inflight) > 0 { // none for a batch that only moved the told mark
		j.inFile = j.inflight[0]
		j.push(output{mark: j.inflight[0]})
		j.inflight = j.inflight[1:]
	}
	j.peel()
	j.cond.Broadcast()
}

func (j *Journal) push(o output) {
	j.out = append(j.out, o)
	j.outBytes += o.size
}

// peel notes what is done: what the marks at the head of the output are behind,
// and, where nothing is left to commit or to pop, everything: what is pending
// then has nothing to tell.
func (j *Journal) peel() {
	if j.popping {
		return // the marks are behind what is being processed
	}
	for len(j.out) > 0 && j.out[0].delta == nil {
		j.doneCount = max(j.doneCount, j.out[0].mark)
		j.out = j.out[1:]
	}
	if len(j.out) == 0 {
		j.out = nil
		if j.bytes == 0 && len(j.inflight) == 0 {
			j.doneCount = j.count
		}
	}
	if j.waiting > 0 {
		j.cond.Broadcast()
	}
	j.checkSynced()
}

// Pop hands out one committed delta. It blocks until there is one, whatever
// the disk does, and returns cache.ErrFIFOClosed after Close.
func (j *Journal) Pop(process cache.PopProcessFunc) (any, error) {
	deltas, initial, err := j.next(1)
	if err != nil {
		return nil, err
	}
	err = process(cache.Deltas(deltas), initial)
	j.popped()
	return cache.Deltas(deltas), err
}

// PopBatch hands out all committed deltas, at most a thousand, in order. A key
// can be among them more than once.
func (j *Journal) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
	deltas, initial, err := j.next(maxBatch)
	if err != nil {
		return err
	}
	if len(deltas) == 1 {
		err = processSingle(cache.Deltas(deltas), initial)
	} else {
		err = processBatch(deltas, initial)
	}
	j.popped()
	return err
}

func (j *Journal) next(most int) (deltas []cache.Delta, initial bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.out) == 0 {
		if j.closed {
			return nil, false, cache.ErrFIFOClosed
		}
		j.cond.Wait()
	}
	n := 0
	for ; n < len(j.out) && len(deltas) < most; n++ {
		if j.out[n].delta == nil {
			if len(deltas) > 0 {
				break // done only once what is before it has been processed
			}
			continue
		}
		deltas = append(deltas, *j.out[n].delta)
		j.outBytes -= j.out[n].size
	}
	clear(j.out[:n])
	j.out = j.out[n:]
	j.popping = true
	select {
	case <-j.synced:
	default:
		initial = true
	}
	return deltas, initial, nil
}

func (j *Journal) popped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.popping = false
	j.peel()
	if j.bytes > 0 {
		j.wake(j.urgent()) // the committer may have found the output full
	}
}
