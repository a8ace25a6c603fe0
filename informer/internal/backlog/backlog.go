package backlog

import (
	"context"
	"slices"
	"sync"

	"github.com/kubewake/kubewake/boltstore"
)

// Backlog keeps the newest committed entries in memory, up to a budget. Readers also wait
// in it, for anything that may concern them. All methods may be called concurrently.
type Backlog struct {
	budget int

	mu      sync.Mutex
	cond    sync.Cond
	entries []*boltstore.Entry // consecutive, the last one's seq is lastSeq
	bytes   int
	lastSeq uint64
	ticks   uint64 // counts everything that a waiter may wait for

	// needed has, for each reader, the seq from which on it has not read the entries.
	// Entries that no reader needs are not kept.
	needed map[any]uint64
}

// New returns a backlog behind seq that keeps entries of that many bytes.
func New(seq uint64, budget int) *Backlog {
	b := &Backlog{lastSeq: seq, budget: budget, needed: map[any]uint64{}}
	b.cond.L = &b.mu
	return b
}

// Append adds a committed entry. If a Jump has passed it, it is in the file only. If it
// leaves a gap, the entries before it are in the file only.
func (b *Backlog) Append(e *boltstore.Entry) {
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

// drop drops the oldest entry. The caller holds the mutex.
func (b *Backlog) drop() {
	b.bytes -= b.entries[0].Size()
	b.entries[0] = nil
	if b.entries = b.entries[1:]; len(b.entries) == 0 {
		b.entries, b.bytes = nil, 0
	}
}

// trim drops entries that no reader needs. The caller holds the mutex.
func (b *Backlog) trim() {
	low := b.lastSeq + 1
	for _, seq := range b.needed {
		low = min(low, seq)
	}
	for len(b.entries) > 0 && b.entries[0].Seq < low {
		b.drop()
	}
}

// Needs says that a reader still has to read the entries from seq on, and none
// before.
func (b *Backlog) Needs(reader any, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, ok := b.needed[reader]; !ok || was != seq {
		b.needed[reader] = seq
		b.trim()
	}
}

// Leave says that a reader needs nothing more.
func (b *Backlog) Leave(reader any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.needed, reader)
	b.trim()
}

// Jump notes that entries up to seq are in the file only.
func (b *Backlog) Jump(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if seq > b.lastSeq {
		b.entries, b.bytes, b.lastSeq = nil, 0, seq
	}
	b.signal()
}

// Wake makes every waiter look again.
func (b *Backlog) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signal()
}

func (b *Backlog) signal() {
	b.ticks++
	b.cond.Broadcast()
}

// Last is the seq of the newest entry, in memory or passed by a Jump.
func (b *Backlog) Last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastSeq
}

// Tick returns a value for Wait, which returns once anything has happened after it.
func (b *Backlog) Tick() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ticks
}

// Wait waits until something has happened since the tick, or Wake is called after ctx has
// ended.
func (b *Backlog) Wait(ctx context.Context, tick uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.ticks == tick && ctx.Err() == nil {
		b.cond.Wait()
	}
}

// atOnce is how many entries are handed out at a time.
const atOnce = 64

// From returns entries from seq on, as far as they are in memory. The caller may keep the
// slice. inFile says that seq was committed and is in the file only.
func (b *Backlog) From(seq uint64) (entries []*boltstore.Entry, inFile bool) {
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
