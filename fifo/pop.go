package fifo

import (
	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
)

// Committed implements boltstore.Producer.
func (q *Queue) Committed(entries []*boltstore.Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		q.push(output{delta: &cache.Delta{Type: e.Type, Object: e}, size: e.Size()})
	}
	if len(q.inflight) > 0 { // none for a batch that only moved the told mark
		q.inFile = q.inflight[0]
		q.push(output{mark: q.inflight[0]})
		q.inflight = q.inflight[1:]
	}
	q.peel()
	q.cond.Broadcast()
}

func (q *Queue) push(o output) {
	q.out = append(q.out, o)
	q.outBytes += o.size
}

// peel notes what is done: what the marks at the head of the output are behind,
// and, where nothing is left to commit or to pop, everything: what is pending
// then has nothing to tell.
func (q *Queue) peel() {
	if q.popping {
		return // the marks are behind what is being processed
	}
	for len(q.out) > 0 && q.out[0].delta == nil {
		q.doneCount = max(q.doneCount, q.out[0].mark)
		q.out = q.out[1:]
	}
	if len(q.out) == 0 {
		q.out = nil
		if q.bytes == 0 && len(q.inflight) == 0 {
			q.doneCount = q.count
		}
	}
	if q.waiting > 0 {
		q.cond.Broadcast()
	}
	q.checkSynced()
}

// Pop hands out one committed delta. It blocks until there is one, whatever
// the disk does, and returns cache.ErrFIFOClosed after Close.
func (q *Queue) Pop(process cache.PopProcessFunc) (any, error) {
	deltas, initial, err := q.next(1)
	if err != nil {
		return nil, err
	}
	err = process(cache.Deltas(deltas), initial)
	q.popped()
	return cache.Deltas(deltas), err
}

// PopBatch hands out all committed deltas, at most a thousand, in order. A key
// can be among them more than once.
func (q *Queue) PopBatch(processBatch cache.ProcessBatchFunc, processSingle cache.PopProcessFunc) error {
	deltas, initial, err := q.next(maxBatch)
	if err != nil {
		return err
	}
	if len(deltas) == 1 {
		err = processSingle(cache.Deltas(deltas), initial)
	} else {
		err = processBatch(deltas, initial)
	}
	q.popped()
	return err
}

func (q *Queue) next(most int) (deltas []cache.Delta, initial bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.out) == 0 {
		if q.closed {
			return nil, false, cache.ErrFIFOClosed
		}
		q.cond.Wait()
	}
	n := 0
	for ; n < len(q.out) && len(deltas) < most; n++ {
		if q.out[n].delta == nil {
			if len(deltas) > 0 {
				break // done only once what is before it has been processed
			}
			continue
		}
		deltas = append(deltas, *q.out[n].delta)
		q.outBytes -= q.out[n].size
	}
	clear(q.out[:n])
	q.out = q.out[n:]
	q.popping = true
	select {
	case <-q.synced:
	default:
		initial = true
	}
	return deltas, initial, nil
}

func (q *Queue) popped() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.popping = false
	q.peel()
	if q.bytes > 0 {
		q.wake(q.urgent()) // the committer may have found the output full
	}
}
