package fifo

import (
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// Committed implements boltstore.Producer.
func (q *Queue) Committed(entries []*boltstore.Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		q.push(outgoing{delta: &cache.Delta{Type: e.Type, Object: e}, size: e.Size()})
	}
	if len(q.batch.inflight) > 0 { // there is none if a commit only moved the told mark or acknowledgements
		q.counts.inFile = q.batch.inflight[0]
		q.push(outgoing{upTo: q.batch.inflight[0]})
		q.batch.inflight = q.batch.inflight[1:]
	}
	q.peel()
	q.cond.Broadcast()
}

func (q *Queue) push(o outgoing) {
	q.output.deltas = append(q.output.deltas, o)
	q.output.bytes += o.size
}

// peel notes how many items are done, by the marks at the head of the output. If nothing
// is left to commit or to pop, all items are: pending ones then have nothing to hand out.
func (q *Queue) peel() {
	if q.output.popping {
		return // the marks come after the items being processed
	}
	for len(q.output.deltas) > 0 && q.output.deltas[0].delta == nil {
		q.counts.done = max(q.counts.done, q.output.deltas[0].upTo)
		q.output.deltas = q.output.deltas[1:]
	}
	if len(q.output.deltas) == 0 {
		q.output.deltas = nil
		if q.batch.bytes == 0 && len(q.batch.inflight) == 0 {
			q.counts.done = q.counts.accepted
		}
	}
	if q.waiters.waiting > 0 {
		q.cond.Broadcast()
	}
	q.noteLength()
	q.checkSynced()
}

// Pop hands out one committed delta. It blocks until there is one, and returns
// cache.ErrFIFOClosed after Close.
func (q *Queue) Pop(process cache.PopProcessFunc) (any, error) {
	deltas, initial, err := q.next(1)
	if err != nil {
		return nil, err
	}
	err = process(cache.Deltas(deltas), initial)
	q.popped()
	return cache.Deltas(deltas), err
}

// PopBatch hands out the committed deltas in order, at most a thousand. A key can
// be among them more than once.
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
	for len(q.output.deltas) == 0 {
		if q.closed {
			return nil, false, cache.ErrFIFOClosed
		}
		q.cond.Wait()
	}
	n := 0
	for ; n < len(q.output.deltas) && len(deltas) < most; n++ {
		if q.output.deltas[n].delta == nil {
			if len(deltas) > 0 {
				break // done only once the items before it have been processed
			}
			continue
		}
		deltas = append(deltas, *q.output.deltas[n].delta)
		q.output.bytes -= q.output.deltas[n].size
	}
	clear(q.output.deltas[:n])
	q.output.deltas = q.output.deltas[n:]
	q.output.popping = true
	return deltas, !cache.IsDone(q), nil
}

func (q *Queue) popped() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.output.popping = false
	q.peel()
	if q.batch.bytes > 0 {
		q.wake(q.urgent()) // the committer may have found the output full
	}
}
