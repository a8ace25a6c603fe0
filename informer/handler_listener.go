package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
)

// pageObjects is how many objects of a replay are in memory at a time, unless a test
// has smaller pages.
const pageObjects = 256

// listener tells one plain handler, in one goroutine: a replay of the file, then the
// entries behind its cursor.
type listener struct {
	inf     *Informer
	handler cache.ResourceEventHandler
	log     klog.Logger
	stop    context.CancelFunc
	gone    context.Context
	ended   chan struct{}
	synced  chan struct{}

	// cursor is the seq up to which the handler has returned, or need not be
	// called.
	cursor atomic.Uint64
	// known is one above the last seq of an earlier life of the process, or of the last
	// gap in the journal. The handler may know objects from that time. 0 without an
	// earlier life.
	known uint64
	// joined is the seq at which the handler was added.
	joined uint64
	// owed is the seq above which the journal is kept for the handler.
	owed uint64
	gaps int // gaps found above owed

	replay walk
	resync walk           // due when active
	ahead  sync.WaitGroup // of the pages that are read ahead

	mu        sync.Mutex
	replayDue bool
	resyncs   resyncs
}

// resyncs says when a handler is told everything again.
type resyncs struct {
	wanted    bool          // one is due, and the queue has been asked for it
	due       bool          // the queue has reached it
	requested time.Duration // the handler's own period
	period    time.Duration // the one that the informer can keep, 0 for none
	next      time.Time
}

// walk is a pass over all objects, page by page.
type walk struct {
	active bool
	begun  bool
	next   []byte
	epoch  uint64    // of the objects before next
	ahead  chan page // the page at next, which is being read; otherwise nil
}

// page is a page that was read from the file.
type page struct {
	boltstore.Page
	err error
}

// read returns the page at next. It was read ahead, unless something has been committed
// since.
func (w *walk) read(l *listener) (boltstore.Page, error) {
	if w.ahead != nil {
		p := <-w.ahead
		w.ahead = nil
		if p.err == nil && l.inf.store.Delivery.Latest(p.Page) {
			return p.Page, nil
		}
	}
	return l.inf.store.Delivery.ServerPage(w.next, l.inf.page)
}

// readAhead reads the page at next while the handler is told the page before.
func (w *walk) readAhead(l *listener, next []byte) {
	ahead := make(chan page, 1)
	w.ahead = ahead
	l.ahead.Go(func() {
		p, err := l.inf.store.Delivery.ServerPage(next, l.inf.page)
		ahead <- page{p, err}
	})
}

// passed says whether the walk has come past key.
func (w *walk) passed(key string) bool {
	return !w.active || w.begun && boltstore.Before(key, w.next)
}

// HasSynced implements cache.ResourceEventHandlerRegistration: the informer has synced,
// and the handler has returned from all calls up to there.
func (l *listener) HasSynced() bool { return cache.IsDone(l.HasSyncedChecker()) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSyncedChecker() cache.DoneChecker {
	return handlerChecker{l}
}

type handlerChecker struct{ l *listener }

func (c handlerChecker) Done() <-chan struct{} { return c.l.synced }

// Name names the informer and the handler, by the name that client-go finds.
func (c handlerChecker) Name() string {
	const before = " + event handler "
	name := fmt.Sprintf("%T", c.l.handler)
	reg, err := cache.NewSharedIndexInformer(nil, nil, 0, nil).AddEventHandler(c.l.handler)
	if err == nil {
		if _, found, ok := strings.Cut(reg.HasSyncedChecker().Name(), before); ok {
			name = found
		}
	}
	return c.l.inf.HasSyncedChecker().Name() + before + name
}

// ShutdownChan is closed once the handler will not be called any more.
func (l *listener) ShutdownChan() <-chan struct{} { return l.ended }

func (l *listener) run() {
	defer close(l.ended)
	defer l.inf.backlog.Leave(l)
	defer l.ahead.Wait()
	for l.gone.Err() == nil {
		tick := l.inf.backlog.Tick()
		l.checkSynced()
		switch {
		case l.replaying():
			if l.page(&l.replay, func(obj any) { l.handler.OnAdd(obj, true) }) {
				continue
			}
		case l.resyncing():
			if l.page(&l.resync, func(obj any) { l.handler.OnUpdate(obj, obj) }) {
				continue
			}
		default:
			if l.entries(l.inf.backlog.Last()) {
				continue
			}
		}
		l.inf.backlog.Wait(l.gone, tick)
	}
	l.checkSynced() // the last call may have been that of the last object
}

// replaying begins a replay that is due, unless it has begun already. It says
// whether one is under way.
func (l *listener) replaying() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replayDue && (!l.replay.begun || l.replay.epoch != l.inf.store.Upstream.Epoch()) {
		l.replay = walk{active: true}
	}
	l.replayDue = false
	return l.replay.active
}

// resyncing begins a resync that is due. It says whether one is under way.
func (l *listener) resyncing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resyncs.due {
		l.resyncs.due = false
		l.resync = walk{active: true}
	}
	return l.resync.active
}

// page tells the next page of a walk, after every entry that the page's snapshot
// contains. It says whether there is more to do at once.
func (l *listener) page(w *walk, tell func(obj any)) bool {
	p, err := w.read(l)
	if err != nil {
		// The store has noted the damage, and a relist will come. Once something happens,
		// go on with the objects that can be read.
		l.log.V(2).Info("Replay is incomplete", "source", l.inf.store.Source().String(), "err", err)
		if len(p.Keys) == 0 {
			return false
		}
	}
	if w.begun && p.Epoch != w.epoch {
		*w = walk{active: true} // the earlier pages were of another cluster
		return true
	}
	if !p.Synced {
		return false // nothing to replay before the first sync
	}
	gaps := l.gaps
	for l.cursor.Load() < p.Seq {
		// At worst they are committed and not popped yet: they come soon.
		tick := l.inf.backlog.Tick()
		if !l.entries(p.Seq) {
			l.inf.backlog.Wait(l.gone, tick)
		}
		if l.gone.Err() != nil {
			return false
		}
		if l.gaps != gaps {
			return true // all objects are told again
		}
	}
	if p.Next != nil {
		w.readAhead(l, p.Next)
	}
	for _, obj := range p.Objects {
		l.inf.mutated.AddObject(obj)
		if obj != nil && !l.call(func() { tell(obj) }) {
			return true
		}
	}
	w.begun, w.next, w.epoch = true, p.Next, p.Epoch
	if p.Next == nil {
		w.active = false
	}
	return true
}

// entries tells the entries behind the cursor, up to a seq, as many as come at once.
// It says whether there was any.
func (l *listener) entries(upto uint64) bool {
	from := l.cursor.Load() + 1
	l.inf.backlog.Needs(l, from)
	if from > upto {
		return false
	}
	entries, inFile := l.inf.backlog.From(from)
	if inFile {
		var err error
		entries, err = l.inf.store.Feed.ReadJournal(from)
		next := upto + 1
		switch {
		case errors.Is(err, boltstore.ErrDamaged):
			var failed error
			if next, failed = l.inf.store.Feed.SkipJournal(from); failed != nil {
				return false
			}
		case err != nil:
			return false // the file is closed, or fails; the next event tries again
		case len(entries) > 0:
			next = entries[0].Seq
		}
		if next > from {
			l.gap(from, min(next-1, upto), err)
			return true
		}
	}
	for i, e := range entries {
		if e.Seq > upto {
			break
		}
		entries[i] = nil // and with it the objects that were decoded to tell it
		if !l.tell(e) {
			return true
		}
		l.cursor.Store(e.Seq)
	}
	l.inf.noteTold()
	return len(entries) > 0
}

// gap passes over entries that the journal no longer has. If they were not trimmed, the
// handler is told all objects again, since nothing shows what it was not told. It is not
// told deletes among these entries, as after a stock informer's restart.
func (l *listener) gap(from, to uint64, err error) {
	l.cursor.Store(to)
	if to > l.owed {
		l.log.Error(err, "Part of the journal is lost, a handler is not told the deletes in it, and is told all "+
			"objects again",
			"source", l.inf.store.Source().String(), "from", from, "to", to)
		l.gaps++
		l.known, l.replay = max(l.known, to+1), walk{active: true}
	}
	l.inf.noteTold()
}

// tell calls the handler for an entry, unless the entry is left to the replay. It is
// false if the handler has been removed.
func (l *listener) tell(e *boltstore.Entry) bool {
	if !l.replay.passed(e.Key) && !l.mayHaveSeen(e) {
		return true // left to the replay, or the object came and went before the handler
	}
	obj, err := e.Object()
	if err != nil {
		l.log.Error(err, "An entry cannot be told in full", "source", l.inf.store.Source().String(), "key", e.Key)
		if e.Type != cache.Deleted {
			return true // the source is degraded and will be relisted
		}
	}
	switch e.Type {
	case cache.Deleted:
		obj = l.inf.named(obj)
		return l.call(func() { l.handler.OnDelete(obj) })
	case cache.Added:
		l.inf.mutated.AddObject(obj)
		return l.call(func() { l.handler.OnAdd(obj, false) })
	}
	l.inf.mutated.AddObject(obj)
	old, err := e.Previous()
	if err != nil || old == nil {
		return l.call(func() { l.handler.OnAdd(obj, false) })
	}
	return l.call(func() { l.handler.OnUpdate(old, obj) })
}

// mayHaveSeen says whether an entry is the delete of an object that an earlier life was
// told of, or that the program may have read since it added the handler.
func (l *listener) mayHaveSeen(e *boltstore.Entry) bool {
	return e.Type == cache.Deleted && (e.Born < l.known || e.Seq > l.joined) || e.Unknown()
}

// call runs the handler. It is false if the handler has been removed. client-go's
// HandleCrash takes a panic: by default the process dies, and the next one tells again.
// If that is switched off, the call counts after a pause, as in client-go. A handler that
// ends its goroutine is removed.
func (l *listener) call(fn func()) (there bool) {
	if l.gone.Err() != nil || !l.expected() {
		return false
	}
	returned, panicked := false, false
	defer func() {
		switch {
		case panicked:
			there = true
			select {
			case <-l.gone.Done():
			case <-l.inf.o.clock.After(time.Second):
			}
		case !returned:
			l.exited()
		}
	}()
	defer utilruntime.HandleCrashWithLogger(l.log, func(context.Context, any) { panicked = true })
	fn()
	returned = true
	return true
}

// exited removes the handler after a call that has ended its goroutine.
func (l *listener) exited() {
	l.log.Error(nil, "A handler has ended its goroutine (runtime.Goexit, t.FailNow) and is not called any more",
		"source", l.inf.store.Source().String(),
		"handler", fmt.Sprintf("%T", l.handler))
	if err := l.inf.RemoveEventHandler(l); err != nil {
		l.log.Error(err, "The handler could not be removed", "source", l.inf.store.Source().String())
	}
}

// expected waits until the file says that the source has plain handlers. It is false if
// the handler has been removed.
func (l *listener) expected() bool {
	for first := true; ; first = false {
		err := l.inf.store.Delivery.ExpectPlain()
		if err == nil {
			return true
		}
		if first {
			l.log.Error(err, "The first handler waits until the file can be written: the next start must know of it",
				"source", l.inf.store.Source().String())
		}
		select {
		case <-l.gone.Done():
			return false
		case <-l.inf.o.clock.After(time.Second):
		}
	}
}

// checkSynced notes that the handler was told everything that was there when the
// informer synced.
func (l *listener) checkSynced() {
	select {
	case <-l.inf.synced:
	default:
		return
	}
	select {
	case <-l.synced:
	default:
		if !l.replaying() && l.cursor.Load() >= l.inf.syncedSeq {
			close(l.synced)
		}
	}
}
