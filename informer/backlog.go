package informer

import (
	"context"
	"slices"
	"sync"

	"github.com/kubewake/kubewake/boltstore"
)

// backlog keeps the newest committed entries in memory, up to a budget, for
// the handlers to read at their own pace. It says when to read the file
// instead. Every waiter waits here.
type backlog struct {
	budget int

	mu      sync.Mutex
	cond    sync.Cond
	entries []*boltstore.Entry // consecutive, the last one's seq is lastSeq
	bytes   int
	lastSeq uint64
	ticks   uint64 // counts everything that a waiter may wait for

	// needed is the seq from which on each reader has not read the entries. What
	// nobody needs is not kept.
	needed map[any]uint64
}

func newBacklog(seq uint64, budget int) *backlog {
	b := &backlog{lastSeq: seq, budget: budget, needed: map[any]uint64{}}
	b.cond.L = &b.mu
	return b
}

func (b *backlog) append(e *boltstore.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case e.Seq <= b.lastSeq:
		return // a jump has gone past it: the file has it
	case e.Seq != b.lastSeq+1:
		b.entries, b.bytes = nil, 0 // not consecutive: the file has them all
	}
	b.entries = append(b.entries, e)
	b.bytes += e.Size()
	b.lastSeq = e.Seq
	for b.bytes > b.budget && len(b.entries) > 1 {
		b.drop()
	}
	b.trim()
	b.signal()
}

// drop lets go of the oldest entry. The caller holds the mutex.
func (b *backlog) drop() {
	b.bytes -= b.entries[0].Size()
	b.entries[0] = nil
	if b.entries = b.entries[1:]; len(b.entries) == 0 {
		b.entries, b.bytes = nil, 0
	}
}

// trim lets go of what nobody needs. The caller holds the mutex.
func (b *backlog) trim() {
	low := b.lastSeq + 1
	for _, seq := range b.needed {
		low = min(low, seq)
	}
	for len(b.entries) > 0 && b.entries[0].Seq < low {
		b.drop()
	}
}

// needs says that a reader has still to read the entries from seq on, and none
// before.
func (b *backlog) needs(reader any, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, ok := b.needed[reader]; !ok || was != seq {
		b.needed[reader] = seq
		b.trim()
	}
}

// leave says that a reader needs nothing more.
func (b *backlog) leave(reader any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.needed, reader)
	b.trim()
}

// jump notes that entries up to seq are in the file only.
func (b *backlog) jump(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if seq > b.lastSeq {
		b.entries, b.bytes, b.lastSeq = nil, 0, seq
	}
	b.signal()
}

func (b *backlog) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signal()
}

func (b *backlog) signal() {
	b.ticks++
	b.cond.Broadcast()
}

func (b *backlog) last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastSeq
}

// tick is what a waiter gives to wait: it returns once anything happened since.
func (b *backlog) tick() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ticks
}

func (b *backlog) wait(ctx context.Context, tick uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.ticks == tick && ctx.Err() == nil {
		b.cond.Wait()
	}
}

// atOnce is how many entries are handed out at a time.
const atOnce = 64

// from returns entries from seq on, as far as they are in memory, for the
// caller to keep. inFile says that seq was committed and is not.
func (b *backlog) from(seq uint64) (entries []*boltstore.Entry, inFile bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if seq > b.lastSeq {
		return nil, false
	}
	n := int(b.lastSeq - seq + 1)
	if n > len(b.entries) {
		return nil, true
	}
	return slices.Clone(b.entries[len(b.entries)-n:][:min(n, atOnce)]), false
}
