package fifo

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// ErrClosed is what writes to a closed queue return.
var ErrClosed = fmt.Errorf("fifo: queue closed: %w", cache.ErrFIFOClosed)

// maxBatch is how many deltas one PopBatch hands out, as in client-go.
const maxBatch = 1000

// Options of a Queue.
type Options struct {
	// Transform is applied to each object before it is stored.
	Transform cache.TransformFunc
	// MaxBytes bounds what waits to be committed, and what is committed and
	// waits to be popped, both counted with the decoded objects. Beyond it Add
	// blocks. At least one change fits. Default 3 MiB, which an informer uses, too.
	MaxBytes int
	// Logger. Default klog.Background().
	Logger *klog.Logger
	// Now for tests. Default time.Now.
	Now func() time.Time
}

// Queue is the write-ahead queue of one source. All methods may be called
// concurrently; a single consumer pops.
type Queue struct {
	o     Options
	store *boltstore.Claimed
	wake  func(urgent bool)

	mu       sync.Mutex
	cond     sync.Cond // of everything below
	pending  []item
	bytes    int      // of pending
	inflight []uint64 // accepted counts at the end of batches on their way into the file
	out      []output
	outBytes int
	closed   bool

	accepted  string // version up to which every change is pending, on its way or stored
	newest    string // version of anything accepted since the last list, or of one of its pages: what is of it, or older, may come again
	confirmed time.Time
	slept     time.Duration // that the machine had, by then
	asked     time.Time     // when the target was asked for
	proven    time.Time     // when that of the last target reached was
	resume    *string       // version of the Replace that is a resume
	target    string        // version that the server has stated as its own
	count     uint64        // items accepted
	doneCount uint64        // items committed and popped
	reached   bool          // accepted is the target or later
	syncAt    *uint64       // count at which a target was first reached
	synced    chan struct{}

	lastChange uint64              // count with the last change
	waiting    int                 // callers of wait
	awaited    map[string]*awaited // versions that WaitVersion waits for
	popping    bool                // what was popped is being processed
	closing    chan struct{}       // closed with closed
	own        *string             // version of the bookmark that is not the server's
	flushing   int                 // callers of Flush

	failed   uint64
	degraded error  // of the last object that could not be stored
	failedAt uint64 // count with it
	inFile   uint64 // items committed
	unstored chan struct{}
}

// item is an accepted change, or a bookmark without one.
type item struct {
	change *boltstore.Change
	rv     string
	came   time.Time
}

// output waits to be popped; one without a delta only marks that all items up
// to a count have been committed.
type output struct {
	delta *cache.Delta
	size  int
	mark  uint64
}

var _ cache.QueueWithBatch = &Queue{}

// New attaches a queue to a claimed store.
func New(store *boltstore.Claimed, o Options) *Queue {
	o.MaxBytes = max(cmp.Or(o.MaxBytes, 3<<20), 1)
	if o.Logger == nil {
		l := klog.Background()
		o.Logger = &l
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	q := &Queue{o: o, store: store, synced: make(chan struct{}), unstored: make(chan struct{}, 1), closing: make(chan struct{}), awaited: map[string]*awaited{}, accepted: store.State().ResourceVersion}
	q.newest = q.accepted
	q.cond.L = &q.mu
	q.wake = store.Attach(q)
	return q
}

// Take implements boltstore.Producer.
func (q *Queue) Take(max int, lazy bool) (*boltstore.Batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Who pops may wait for a Flush: that takes what is pending at most.
	if len(q.pending) == 0 || q.outBytes >= q.o.MaxBytes && q.flushing == 0 || q.bytes == 0 && !lazy {
		return nil, false
	}
	b := &boltstore.Batch{}
	n := 0
	for size := 0; n < len(q.pending) && size < max; n++ {
		it := q.pending[n]
		if it.change != nil {
			b.Changes = append(b.Changes, it.change)
			size += it.change.Memory()
			q.bytes -= it.change.Memory()
		}
		if it.rv != "" {
			b.ResourceVersion = it.rv
		}
	}
	clear(q.pending[:n])
	if q.pending = q.pending[n:]; len(q.pending) == 0 {
		q.pending = nil
		b.Confirmed = q.confirmedAt() // of all that has been accepted
	}
	q.inflight = append(q.inflight, q.count-uint64(len(q.pending)))
	q.cond.Broadcast()
	return b, q.bytes > 0
}

// Resync asks for a resync to be handed out. It is not journaled.
func (q *Queue) Resync() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.push(output{delta: &cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}})
	q.cond.Broadcast()
	return nil
}

// HasSynced is true once the server has confirmed the state and everything up
// to there has been stored and popped; see Confirm.
func (q *Queue) HasSynced() bool { return cache.IsDone(q) }

// HasSyncedChecker is done when HasSynced is true.
func (q *Queue) HasSyncedChecker() cache.DoneChecker { return q }

// Name implements cache.DoneChecker.
func (q *Queue) Name() string { return "queue of " + q.store.Source().String() }

// Done implements cache.DoneChecker.
func (q *Queue) Done() <-chan struct{} { return q.synced }

// Close unblocks everybody: what waits to be popped still is, then Pop returns
// cache.ErrFIFOClosed; nothing more is accepted.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		close(q.closing)
	}
	q.closed = true
	q.cond.Broadcast()
}
