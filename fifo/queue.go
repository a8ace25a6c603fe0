package fifo

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
)

// ErrClosed is the error of writes to a closed queue.
var ErrClosed = fmt.Errorf("fifo: queue closed: %w", cache.ErrFIFOClosed)

// maxBatch is how many deltas one PopBatch hands out, as in client-go.
const maxBatch = 1000

// maxBytes is Queue.most, except in tests.
const maxBytes = 2 << 20

// Queue is the write-ahead queue of one source. All methods may be called concurrently,
// but only one consumer may pop.
//
// It is one type because one lock guards both its input and its output. Some twenty of
// its methods are those of client-go's Queue and of boltstore's Producer.
type Queue struct {
	store        *boltstore.Claimed
	transform    cache.TransformFunc
	transforming sync.Mutex // held during a call
	now          func() time.Time
	log          klog.Logger
	wake         func(urgent bool) // wakes the committer

	// most bounds, in bytes, the changes that wait to be committed. It also bounds the
	// committed changes that wait to be popped. Both are counted with their decoded
	// objects. Add blocks beyond the bound. At least one change fits.
	most int

	mu      sync.Mutex
	cond    sync.Cond // of everything below
	batch   batch
	output  output
	hold    hold
	version version
	counts  counts
	failure failure
	waiters waiters
	synced  chan struct{}
	length  func(int) // see OnLength
	listing bool      // a list is under way: nothing is accepted, and no other list begins
	closed  bool
	closing chan struct{} // closed when closed becomes true
}

// batch has the accepted changes that are not in the file yet.
type batch struct {
	pending  []acceptedItem
	bytes    int      // of pending
	inflight []uint64 // counts.accepted at the ends of batches on their way into the file
	together int      // that many of pending go into the file in one commit
}

// output has the changes that are in the file and have not been popped.
type output struct {
	deltas  []outgoing
	bytes   int
	popping bool // popped changes are being processed
}

// version says how far the server's changes have come, and what the server has confirmed.
type version struct {
	accepted string // every change up to it is pending, on its way or stored
	// newest is the latest version accepted since the last list, or that of one of the
	// list's pages. An object of this version or an older one may come a second time.
	newest    string
	target    string        // the version that the server has stated as its own
	asked     time.Time     // when it was asked for the target
	reached   bool          // accepted is the target or later
	confirmed time.Time     // see Queue.Confirmed
	slept     time.Duration // how long the machine had slept by then
	proven    time.Time     // when the last target that was reached was asked for
}

// counts are of items, in the order in which they were accepted.
type counts struct {
	accepted   uint64
	inFile     uint64
	done       uint64  // in the file and popped
	lastChange uint64  // accepted with the last change
	syncAt     *uint64 // accepted when a target was first reached, or confirmed by a list
}

// failure is about objects that could not be stored.
type failure struct {
	count uint64
	last  error
	at    uint64        // counts.accepted with the last one
	came  chan struct{} // there is one more
}

// waiters are the callers that wait.
type waiters struct {
	waiting  int // callers in wait
	flushing int // callers in Flush
}

// acceptedItem is an accepted change, or a bookmark without one.
type acceptedItem struct {
	change *boltstore.Change
	rv     string
	came   time.Time
}

// outgoing waits to be popped. Without a delta it only marks that all items up to a count
// are in the file.
type outgoing struct {
	delta *cache.Delta
	size  int
	upTo  uint64 // counts.accepted
}

var _ cache.QueueWithBatch = &Queue{}

// New attaches a queue to a claimed store. Close the queue before you release the store.
// transform, if not nil, is applied to each object before it is stored, and never in a
// transaction. See also boltstore.Feed.TransformAgain. The queue uses the file's logger
// and clock.
func New(store *boltstore.Claimed, transform cache.TransformFunc) *Queue {
	q := &Queue{store: store, transform: transform, now: store.Clock().Now, log: store.Logger(), most: maxBytes,
		synced: make(chan struct{}), closing: make(chan struct{})}
	q.failure.came = make(chan struct{}, 1)
	q.cond.L = &q.mu
	if transform != nil {
		store.Feed.TransformAgain(q.transformed)
	}
	q.wake = store.Feed.Attach(q)
	rv := store.State().ResourceVersion // no program's write takes it away any more
	q.mu.Lock()
	defer q.mu.Unlock()
	q.version.accepted, q.version.newest = rv, rv
	return q
}

// Take implements boltstore.Producer.
func (q *Queue) Take(max int, bookmark bool) (*boltstore.Batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A consumer may wait for Flush before it pops again. So a Flush takes pending
	// changes although the output is full.
	free, held := q.free(), q.hold.until != ""
	if free == 0 || q.output.bytes >= q.most && q.waiters.flushing == 0 || (q.batch.bytes == 0 || held) && !bookmark {
		return nil, false
	}
	b := &boltstore.Batch{}
	n := 0
	for size := 0; n < free && (size < max || n < q.batch.together); n++ {
		it := q.batch.pending[n]
		if it.change != nil {
			b.Changes = append(b.Changes, it.change)
			size += it.change.Memory()
			q.batch.bytes -= it.change.Memory()
		}
		if it.rv != "" {
			b.ResourceVersion = it.rv
		}
	}
	if held {
		q.hold.accepted = b.ResourceVersion // of the bookmark
	}
	q.batch.together -= min(n, q.batch.together)
	clear(q.batch.pending[:n])
	if q.batch.pending = q.batch.pending[n:]; len(q.batch.pending) == 0 {
		q.batch.pending = nil
		b.Confirmed = q.confirmedAt() // of all that has been accepted
	}
	q.batch.inflight = append(q.batch.inflight, q.counts.accepted-uint64(len(q.batch.pending)))
	q.cond.Broadcast()
	return b, q.batch.bytes > 0 && !held
}

// OnLength has fn called with the number of accepted items that have not been popped,
// whenever it may have changed. fn must not call the queue. Call OnLength before anything
// is added.
func (q *Queue) OnLength(fn func(int)) { q.length = fn }

func (q *Queue) noteLength() {
	if q.length != nil {
		q.length(int(q.counts.accepted - q.counts.done))
	}
}

// Resync has Pop hand out a SyncAll. It is not journaled.
func (q *Queue) Resync() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.push(outgoing{delta: &cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}})
	q.cond.Broadcast()
	return nil
}

// HasSynced is true once the server has confirmed the state, everything up to there has
// been popped, and no object is unstored. After CountAsSynced it is true at once.
func (q *Queue) HasSynced() bool { return cache.IsDone(q) }

// HasSyncedChecker is done when HasSynced is true.
func (q *Queue) HasSyncedChecker() cache.DoneChecker { return q }

// Name implements cache.DoneChecker.
func (q *Queue) Name() string { return "queue of " + q.store.Source().String() }

// Done implements cache.DoneChecker.
func (q *Queue) Done() <-chan struct{} { return q.synced }

// Close unblocks every caller. Nothing more is accepted. Pop still hands out the changes
// that wait, and then returns cache.ErrFIFOClosed. client-go's controller calls it once
// its context ends, so that a Reflector that is blocked in Add ends, too.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		close(q.closing)
	}
	q.closed = true
	q.cond.Broadcast()
}

func init() {
	tuning.SetQueue = func(queue any, bytes int) { queue.(*Queue).most = bytes }
}
