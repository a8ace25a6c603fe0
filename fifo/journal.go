package fifo

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// ErrClosed is what writes to a closed Journal return.
var ErrClosed = fmt.Errorf("fifo: journal closed: %w", cache.ErrFIFOClosed)

// maxBatch is how many deltas one PopBatch hands out, as in client-go.
const maxBatch = 1000

// Options of a Journal.
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

// Journal is the write-ahead queue of one source. All methods may be called
// concurrently; a single consumer pops.
type Journal struct {
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

var _ cache.QueueWithBatch = &Journal{}

// New attaches a journal to a claimed store.
func New(store *boltstore.Claimed, o Options) *Journal {
	o.MaxBytes = max(cmp.Or(o.MaxBytes, 3<<20), 1)
	if o.Logger == nil {
		l := klog.Background()
		o.Logger = &l
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	j := &Journal{o: o, store: store, synced: make(chan struct{}), unstored: make(chan struct{}, 1), closing: make(chan struct{}), awaited: map[string]*awaited{}, accepted: store.State().ResourceVersion}
	j.newest = j.accepted
	j.cond.L = &j.mu
	j.wake = store.Attach(j)
	return j
}

// Add accepts an added object. It blocks while the batch is full and returns
// ErrClosed once the journal is closed. An object that cannot be stored is an
// error, counted by Failed and noted in the file, and does not hold up what
// follows.
func (j *Journal) Add(obj any) error { return j.accept(cache.Added, obj) }

// Update accepts a changed object; see Add.
func (j *Journal) Update(obj any) error { return j.accept(cache.Updated, obj) }

// Delete accepts the final state of an object, or a
// cache.DeletedFinalStateUnknown; see Add.
func (j *Journal) Delete(obj any) error { return j.accept(cache.Deleted, obj) }

func (j *Journal) accept(typ cache.DeltaType, obj any) error {
	it := item{rv: versionOf(obj), came: j.o.Now()}
	if _, tombstone := obj.(cache.DeletedFinalStateUnknown); !tombstone && (it.rv == "" || typ == cache.Deleted && j.passed(it.rv)) {
		j.store.NoteStands()
	}
	var err error
	if it.change, err = j.prepare(typ, obj); err != nil {
		j.fail(err)
		j.o.Logger.Error(err, "An object cannot be stored, it will be read again", "source", j.store.Source().String())
		if it.change == nil { // else it is gone all the same
			it.change = j.store.Unstored(obj, err)
		}
	}
	if closed := j.enqueue(it); closed != nil {
		return closed
	}
	return err
}

// passed says whether the version is known to be that which has been accepted, or
// one before.
func (j *Journal) passed(rv string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.accepted != "" && atLeast(j.accepted, rv)
}

func versionOf(obj any) string {
	if m, err := meta.Accessor(obj); err == nil {
		return m.GetResourceVersion()
	}
	return ""
}

func (j *Journal) prepare(typ cache.DeltaType, obj any) (*boltstore.Change, error) {
	c, err := j.prepareWhole(typ, obj)
	if err == nil || typ != cache.Deleted {
		return c, err
	}
	// Its final state cannot be stored, but it is gone all the same.
	key, keyErr := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if keyErr != nil {
		return nil, err
	}
	c, keyErr = j.store.Prepare(typ, cache.DeletedFinalStateUnknown{Key: key})
	return c, errors.Join(err, keyErr)
}

func (j *Journal) prepareWhole(typ cache.DeltaType, obj any) (*boltstore.Change, error) {
	obj, err := j.transform(obj)
	if err != nil {
		return nil, err
	}
	return j.store.Prepare(typ, obj)
}

func (j *Journal) transform(obj any) (_ any, err error) {
	if _, tombstone := obj.(cache.DeletedFinalStateUnknown); tombstone || j.o.Transform == nil {
		return obj, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("fifo: the transform panicked: %v", r)
		}
	}()
	given := reflect.TypeOf(obj)
	if obj, err = j.o.Transform(obj); err != nil {
		return nil, fmt.Errorf("fifo: transform: %w", err)
	}
	if is := reflect.TypeOf(obj); is != given && is != j.store.ObjectType() {
		return nil, fmt.Errorf("fifo: the transform returned %v, and the file keeps %v: let it return that type; the informer does not sync until then", is, j.store.ObjectType())
	}
	return obj, nil
}

func (j *Journal) fail(err error) {
	var key cache.KeyError
	if errors.As(err, &key) { // its text has the whole object
		err = fmt.Errorf("fifo: the key function failed: %w", key.Err)
	}
	j.mu.Lock()
	j.failed++
	j.degraded, j.failedAt = err, j.count+1
	j.mu.Unlock()
	select {
	case j.unstored <- struct{}{}:
	default:
	}
}

// Unstored is sent to when an object could not be stored: it is to be read again
// as long as the store has UnstoredObjects.
func (j *Journal) Unstored() <-chan struct{} { return j.unstored }

// Failed counts the events and listed objects that could not be stored in this
// life of the process, and returns the last one's error: nil once the file has
// all of them, or they are gone.
func (j *Journal) Failed() (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.inFile >= j.failedAt && j.store.UnstoredObjects() == 0 {
		j.degraded = nil
	}
	return j.failed, j.degraded
}

func (j *Journal) enqueue(it item) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.bytes >= j.o.MaxBytes {
		slept := j.store.DB().Slept()
		for j.bytes >= j.o.MaxBytes && !j.closed {
			j.cond.Wait()
		}
		it.came = it.came.Add(slept - j.store.DB().Slept())
	}
	if j.closed {
		return ErrClosed
	}
	if later(it.rv, j.newest) {
		j.newest = it.rv
		if it.change != nil {
			it.change.TellUnknown()
		}
	}
	j.pending = append(j.pending, it)
	j.count++
	if it.rv != "" {
		j.advance(it.rv, it.came)
	}
	if it.change != nil {
		j.lastChange = j.count
		j.bytes += it.change.Memory()
		j.wake(j.urgent())
	}
	return nil
}

// urgent says whether what is pending must not wait for more: nothing else
// fits, or the first sync waits for it.
func (j *Journal) urgent() bool {
	return j.bytes >= j.o.MaxBytes || j.syncAt != nil && j.doneCount < *j.syncAt
}

// advance notes that every change up to rv has been accepted, which the server
// told at the given time.
func (j *Journal) advance(rv string, at time.Time) {
	j.accepted = rv
	if a := j.awaited[rv]; a != nil {
		a.come = true
	}
	if j.waiting > 0 {
		defer j.cond.Broadcast()
	}
	if !j.reached && j.target != "" {
		if j.reached = atLeast(rv, j.target); j.reached {
			j.proven = j.asked
		}
	}
	if !j.reached {
		return
	}
	j.confirmed, j.slept = at, j.store.DB().Slept()
	if j.syncAt == nil {
		n := j.count
		if j.syncAt = &n; j.bytes > 0 {
			j.wake(j.urgent())
		}
	}
	j.checkSynced()
}

// confirmedAt is when the server last confirmed the state, earlier by what the
// machine has slept since: monotonic time has stood still for so long.
func (j *Journal) confirmedAt() time.Time {
	if j.confirmed.Unix() <= 0 { // never
		return j.confirmed
	}
	return j.confirmed.Add(j.slept - j.store.DB().Slept())
}

// atLeast says whether version a is known to be b or later. Of versions that
// cannot be compared only the same one is.
func atLeast(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return a == b || err == nil && c >= 0
}

// later says whether version a is known to be after b.
func later(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c > 0
}

// Bookmark notes that everything up to rv has been accepted. It is written
// with the next commit of the source, or within the file's BookmarkInterval.
func (j *Journal) Bookmark(rv string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return ErrClosed
	case rv == "":
		return nil
	}
	own := j.own
	j.own = nil
	if own != nil && *own == rv && rv == j.accepted {
		return nil // it says nothing new, and is not the server's word
	}
	if later(rv, j.newest) {
		j.newest = rv
	}
	if n := len(j.pending); n > 0 && j.pending[n-1].change == nil {
		j.pending[n-1].rv = rv
	} else {
		j.pending = append(j.pending, item{rv: rv})
		j.count++
	}
	j.advance(rv, j.o.Now())
	j.peel()
	return nil
}

// ExpectBookmark announces a bookmark that the caller makes up, to tell the
// Reflector the version that has been accepted. It confirms nothing.
func (j *Journal) ExpectBookmark(rv string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.own = &rv
}

// Take implements boltstore.Producer.
func (j *Journal) Take(max int, lazy bool) (*boltstore.Batch, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	// Who pops may wait for a Flush: that takes what is pending at most.
	if len(j.pending) == 0 || j.outBytes >= j.o.MaxBytes && j.flushing == 0 || j.bytes == 0 && !lazy {
		return nil, false
	}
	b := &boltstore.Batch{}
	n := 0
	for size := 0; n < len(j.pending) && size < max; n++ {
		it := j.pending[n]
		if it.change != nil {
			b.Changes = append(b.Changes, it.change)
			size += it.change.Memory()
			j.bytes -= it.change.Memory()
		}
		if it.rv != "" {
			b.ResourceVersion = it.rv
		}
	}
	clear(j.pending[:n])
	if j.pending = j.pending[n:]; len(j.pending) == 0 {
		j.pending = nil
		b.Confirmed = j.confirmedAt() // of all that has been accepted
	}
	j.inflight = append(j.inflight, j.count-uint64(len(j.pending)))
	j.cond.Broadcast()
	return b, j.bytes > 0
}

func (j *Journal) checkSynced() {
	if j.syncAt == nil || j.doneCount < *j.syncAt {
		return
	}
	select {
	case <-j.synced:
		return
	default:
	}
	if j.store.UnstoredObjects() > 0 {
		return // as with a list that client-go's informer could not store
	}
	select {
	case <-j.synced:
	default:
		close(j.synced)
	}
}

// Resync asks for a resync to be handed out. It is not journaled.
func (j *Journal) Resync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	j.push(output{delta: &cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}})
	j.cond.Broadcast()
	return nil
}

// HasSynced is true once the server has confirmed the state and everything up
// to there has been stored and popped; see Confirm.
func (j *Journal) HasSynced() bool { return cache.IsDone(j) }

// HasSyncedChecker is done when HasSynced is true.
func (j *Journal) HasSyncedChecker() cache.DoneChecker { return j }

// Name implements cache.DoneChecker.
func (j *Journal) Name() string { return "journal of " + j.store.Source().String() }

// Done implements cache.DoneChecker.
func (j *Journal) Done() <-chan struct{} { return j.synced }

// Close unblocks everybody: what waits to be popped still is, then Pop returns
// cache.ErrFIFOClosed; nothing more is accepted.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		close(j.closing)
	}
	j.closed = true
	j.cond.Broadcast()
}
