package reflector

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// Options of a ListerWatcher. The zero value is a good default.
type Options struct {
	// Server is the address that the source is read from, as Identify tells
	// it; "" if unknown.
	Server string
	// PageSize of relists, in objects. By default the first page has 250, and
	// later ones as many as suit PageBytes and the link.
	PageSize int64
	// PageBytes is how large a page grows, in bytes of its unpacked answer. A
	// relist has two pages in memory. Default 4 MiB.
	PageBytes int64
	// Compare says how relists find out what has changed.
	Compare Compare
	// Repair says what relists ask for.
	Repair Repair
	// ConfirmTimeout is the timeout of a watch that is behind what the server
	// states: the server sends a bookmark about 2 s before it, none if it is
	// shorter than 3 s. At most a day. Default 3 s.
	ConfirmTimeout time.Duration
	// QuietTimeout is how long a watch may bring neither event nor bookmark,
	// and a request not a byte, before it is given up and the server asked
	// anew. The server sends a bookmark about once a minute; where it sends
	// none the time grows to ten minutes. At least 1 s. Default, and if negative,
	// 90 s.
	QuietTimeout time.Duration
	// AuditEvery is how long after it was last read everything is compared with
	// the server again, although the watch has told of all changes: for servers
	// that may have been restored unnoticed. It costs a list each time.
	// Default 0, never.
	AuditEvery time.Duration
	// RetryUnstored is how long after an object could not be stored, by its
	// transform say, everything is listed again for it. The time doubles up to ten
	// minutes as long as there are any. Default 1 s.
	RetryUnstored time.Duration
	// OnDenied says what becomes of the objects while the server refuses them.
	OnDenied OnDenied
	// OnState is called at each change of phase. It must not block. A
	// watch that breaks is told of only if the next one cannot be opened.
	OnState func(State)
	// Logger. Default klog.Background().
	Logger *klog.Logger
	// Clock for tests.
	Clock clock.Clock
}

// ListerWatcher is a cache.ListerWatcher for one Reflector, which must feed the same
// queue. Lists return no objects: what they would contain is in the file
// when they return, or was there before.
type ListerWatcher struct {
	lw      cache.ListerWatcherWithContext
	raw     cache.ListerWatcher
	queue   *fifo.Queue
	store   *boltstore.Claimed
	example runtime.Object
	o       Options
	backoff wait.Backoff // between relists for expired versions
	last    time.Time    // of the last such relist
	// pageSize is what relists have found to suit objects and link.
	pageSize   int64
	notRaw     bool // answers to lists are left to the client
	noMetadata bool // the server did not answer a request for metadata with it
	sizes      sizes
	kind       wire.Kind

	mu         sync.Mutex
	state      State
	expired    bool      // the next watch must relist first
	restored   bool      // the server has gone back, and has not been read since
	zero       bool      // its last list was at version 0, see listVersion
	unused     string    // why what the file holds was last not used, see noteUnusable
	asked      bool      // the server has been asked for its version since the link last broke
	doubted    time.Time // when it last did
	asking     *link     // over which it last stated it; nil: not since then
	resuming   bool      // the file has answered the list
	checked    bool      // the cluster has been found out, too
	id         identity
	quiet      time.Duration // how long a watch may be quiet, QuietTimeout or more
	counted    bool          // the server's number of objects has been compared since the last outage
	countDue   bool          // it is time to
	countless  bool          // it says nothing
	read       time.Time     // when everything was last read, or this source made
	notBefore  time.Time     // what need not be read now is not
	fruitless  int           // short watches in a row that brought nothing
	failures   int           // watches in a row that ended with an error and brought nothing
	unreadable bool          // they are too many: the next watch must relist first
	wanted     int           // callers of WaitForFresh
	// wantedSince and wantedProven are how fresh the most demanding of them want
	// it to be confirmed, and proven.
	wantedSince, wantedProven time.Time
	formDue                   int           // how often the served form is to be asked for before a watch
	formWait                  int64         // how many seconds a watch lasts until then
	formErrors                int           // relists and lists in a row that could not ask for it
	again                     retryAgain    // of what could not be stored
	deniedSince               time.Time     // zero: it is not
	hurry                     chan struct{} // one of them has come
	ahead                     *ahead        // a watch that a slow relist has opened

	over  bool // Wait was called
	calls sync.WaitGroup
}

var (
	_ cache.ListerWatcher            = &ListerWatcher{}
	_ cache.ListerWatcherWithContext = &ListerWatcher{}
)

// New returns a source that reads through lw and keeps what it reads in the
// queue and its store. example is an object of the type that lw returns.
func New(lw cache.ListerWatcher, queue *fifo.Queue, store *boltstore.Claimed, example runtime.Object, o Options) *ListerWatcher {
	o.PageBytes = cmp.Or(o.PageBytes, 4<<20)
	// The server counts seconds.
	o.ConfirmTimeout = min(max(cmp.Or(o.ConfirmTimeout, 3*time.Second), 1), 24*time.Hour)
	o.ConfirmTimeout = (o.ConfirmTimeout + time.Second - 1).Truncate(time.Second)
	if o.RetryUnstored <= 0 {
		o.RetryUnstored = time.Second
	}
	if o.QuietTimeout <= 0 {
		o.QuietTimeout = 90 * time.Second
	}
	o.QuietTimeout = max(o.QuietTimeout, time.Second)
	if o.Logger == nil {
		l := klog.Background()
		o.Logger = &l
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &ListerWatcher{
		lw: cache.ToListerWatcherWithContext(lw), raw: lw, queue: queue, store: store, example: example, o: o,
		backoff: newBackoff(), quiet: o.QuietTimeout, pageSize: firstPage, hurry: make(chan struct{}, 1), read: o.Clock.Now(), state: State{Phase: PhaseStarting, Since: o.Clock.Now()},
	}
}

// IsWatchListSemanticsUnSupported keeps the Reflector from streaming lists,
// which would fill its memory.
func (s *ListerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (s *ListerWatcher) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher.
func (s *ListerWatcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext answers from the file: an empty list at the version to go on
// from. Only a source that has never been synced, or whose contents cannot be
// served, is read from the server first.
func (s *ListerWatcher) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	if !s.begin() {
		return nil, errOver
	}
	defer s.calls.Done()
	s.broken()
	if reason := s.unusable(); reason != "" {
		s.noteUnusable(reason)
		if err := s.relist(ctx, reason); err != nil {
			return nil, err
		}
	} else {
		s.mu.Lock()
		s.resuming = true
		s.mu.Unlock()
	}
	rv := s.queue.Accepted()
	s.queue.ExpectResume(rv)
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: rv}}, nil
}

// Wait returns once no List or Watch call is under way: the Reflector does not
// wait for a list that it has given up. Later calls fail.
func (s *ListerWatcher) Wait() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.calls.Wait()
}

var errOver = errors.New("reflector: the source has ended")

// begin notes a call, for Wait, unless it has come.
func (s *ListerWatcher) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.calls.Add(1)
	}
	return !s.over
}

// noteUnusable says so once.
func (s *ListerWatcher) noteUnusable(reason string) {
	s.mu.Lock()
	again := s.unused == reason
	s.unused = reason
	s.mu.Unlock()
	if !again && reason != ReasonFirst {
		s.o.Logger.Info("What the file holds has to be read anew", "source", s.store.Source().String(), "reason", reason)
	}
}

// unusable says why the file cannot be gone on from, "" if it can.
func (s *ListerWatcher) unusable() string {
	switch {
	case !s.store.State().Synced:
		return ReasonFirst
	case s.store.Err() != nil:
		return ReasonDamaged
	case s.queue.Accepted() == "" && (!s.queue.Reached() || s.stale()):
		return ReasonNoVersion
	}
	return s.store.Outdated()
}

// WatchWithContext opens a watch at the version up to which everything has
// been accepted, whatever the Reflector believes. Before that it asks the
// server for its version, if the link was broken, and relists, if the version
// has expired or the server has gone back.
func (s *ListerWatcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !s.begin() {
		return nil, errOver
	}
	defer s.calls.Done()
	repaired := false
	s.connecting()
	for {
		reason, err := s.mustRelist(ctx)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			if err := s.repair(ctx, reason); err != nil {
				if reason == ReasonExpired {
					s.setExpired()
				}
				if s.postpone(ctx, reason) {
					continue
				}
				return nil, err
			}
			if reason == ReasonCounts {
				if err := s.recount(ctx); err != nil {
					return nil, s.fail(ctx, err)
				}
			}
			repaired = true
		}
		wo := o
		wo.ResourceVersion = s.queue.Accepted()
		wo.AllowWatchBookmarks = true
		phase := PhaseLive
		if !s.queue.Reached() {
			phase = PhaseCatchingUp
			if !s.bookmarkless() {
				wo.TimeoutSeconds = new(int64(s.o.ConfirmTimeout / time.Second))
			}
		}
		if wait, due := s.formDoubtful(); due && (wo.TimeoutSeconds == nil || *wo.TimeoutSeconds > wait) {
			wo.TimeoutSeconds = new(wait)
		}
		w, over := s.takeAhead(wo.ResourceVersion)
		if w == nil {
			if wo.ResourceVersion == "" && s.atZero() {
				wo.ResourceVersion = "0"
			}
			w, over, err = s.open(ctx, wo)
		} else {
			wo.TimeoutSeconds = nil
		}
		switch {
		case isExpired(err):
			s.broken() // the request may have found another server
			s.setExpired()
			continue
		case err != nil:
			return nil, s.fail(ctx, err)
		}
		if asked, _ := s.askedOver(); phase == PhaseLive && over != asked {
			// The version was stated over another connection: should the server
			// have been restored since, this watch would hang without a word. A
			// short watch notices that by itself.
			if back, err := s.wentBack(ctx); back || err != nil {
				w.Stop()
				s.broken()
				if err != nil {
					return nil, s.fail(ctx, err)
				}
				continue
			}
		}
		s.allowed()
		s.resumed()
		s.enter(phase, "")
		return s.wrap(w, wo.TimeoutSeconds, repaired), nil
	}
}

// mustRelist says why everything must be read anew before a watch can go on,
// "" if it need not be.
func (s *ListerWatcher) mustRelist(ctx context.Context) (string, error) {
	if reason := s.unusable(); reason != "" {
		return reason, nil
	}
	s.mu.Lock()
	restored := s.restored
	s.mu.Unlock()
	if restored {
		return ReasonRestored, nil
	}
	if s.takeExpired() {
		return ReasonExpired, nil
	}
	if s.stuck() {
		return ReasonUnreadable, nil
	}
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	if !asked || s.stale() {
		if reason, err := s.ask(ctx); reason != "" || err != nil {
			return reason, err
		}
	}
	if s.reformed(ctx) {
		return ReasonForm, nil
	}
	if s.mustReadAgain() {
		return ReasonUnstored, nil
	}
	if s.mustProve() {
		return ReasonUnconfirmed, nil
	}
	return s.suspect(ctx)
}

func isExpired(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}

// fail notes why the server did not answer, and that it must be asked again.
func (s *ListerWatcher) fail(ctx context.Context, err error) error {
	s.mu.Lock()
	by := s.asking.server()
	s.mu.Unlock()
	s.broken()
	switch {
	case ctx.Err() != nil:
	case isDenied(err):
		s.denied(ctx, err, by)
	default:
		s.allowed() // it does not refuse, now
		s.outage()
		s.enter(PhaseOffline, err.Error())
	}
	return err
}

// broken notes that the server must be asked before anything is confirmed.
func (s *ListerWatcher) broken() {
	s.queue.Doubt()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked {
		s.doubted = s.o.Clock.Now()
	}
	s.asked, s.checked, s.asking = false, false, nil
}

// resumed counts a list that the file has answered, now that a watch goes on
// from it.
func (s *ListerWatcher) resumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resuming {
		s.resuming = false
		s.state.Resumes++
		s.state.BytesSaved += s.store.State().Bytes
	}
}

func (s *ListerWatcher) setExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
}

func (s *ListerWatcher) takeExpired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.expired
	s.expired = false
	return e
}
