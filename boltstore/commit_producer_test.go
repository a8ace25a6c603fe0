package boltstore

import (
	"sync"
	"testing"
	"time"
)

// testProducer hands over given batches and keeps the committed entries.
type testProducer struct {
	mu      sync.Mutex
	batches []*Batch
	out     int
	taken   bool // a batch that is not committed yet
	entries []*Entry
	done    chan struct{}
}

func (p *testProducer) put(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches = append(p.batches, b)
	p.out++
	p.begin()
}

// begin makes done. It needs mu.
func (p *testProducer) begin() {
	if p.done == nil {
		p.done = make(chan struct{}, 1000)
	}
}

func (p *testProducer) Take(int, bool) (*Batch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.batches) == 0 {
		return nil, false
	}
	b := p.batches[0]
	p.batches, p.taken = p.batches[1:], true
	return b, len(p.batches) > 0
}

func (p *testProducer) Committed(entries []*Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries = append(p.entries, entries...)
	if !p.taken {
		return // told marks, acknowledgements, or what handlers are still to be told
	}
	p.taken = false
	select {
	case p.done <- struct{}{}:
	default: // it must not block; so many are enough
	}
}

func (p *testProducer) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("not committed")
	}
}
