package reflector

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// ListerWatcher is a cache.ListerWatcher for one Reflector, which must feed the same
// queue. Lists return no objects: the objects are in the file when a list returns.
//
// It is one type because a question, a list and a watch follow one another and decide by
// what the others have found: the link, the cluster and the proof are types of their own.
type ListerWatcher struct {
	o       Options
	queue   *fifo.Queue
	store   *boltstore.Claimed
	example runtime.Object
	clock   clock.Clock
	log     klog.Logger

	requests requests
	link     link
	cluster  cluster
	audit    audit
	unstored unstored
	fresh    waiters
	patience patience
	proving  proving
	facts    facts
	pace     pace
	status   status
	left     left
	calls    calls
}

var (
	_ cache.ListerWatcher            = &ListerWatcher{}
	_ cache.ListerWatcherWithContext = &ListerWatcher{}
)

// New returns a ListerWatcher that reads through lw and puts the objects into the queue
// and its store. example is an object of the type that lw returns. server is the address
// that lw reads from, as Identify returns it, "" if unknown.
func New(lw cache.ListerWatcher, queue *fifo.Queue, store *boltstore.Claimed, example runtime.Object, server string, o Options) *ListerWatcher {
	if server == "" && watchlist.DoesClientNotSupportWatchListSemantics(lw) {
		// A fake sends no bookmarks, has no link that could be dead, and loses nothing.
		o.quietTimeout, o.AuditEvery = cmp.Or(o.quietTimeout, forever), cmp.Or(o.AuditEvery, -1)
	}
	o = o.withDefaults()
	clock := o.clock
	if clock == nil {
		clock = store.Clock()
	}
	now, log := clock.Now(), store.Logger()
	s := &ListerWatcher{
		o: o, queue: queue, store: store, example: example, clock: clock, log: log,
		requests: requests{lw: cache.ToListerWatcherWithContext(lw), raw: lw, source: store.Source(), item: reflect.TypeOf(example), kind: func() string { return store.State().Kind }, server: server, quiet: o.quietTimeout, clock: clock},
		link:     link{clock: clock},
		unstored: unstored{queue: queue, store: store, clock: clock, first: o.retryUnstored},
		fresh:    waiters{queue: queue, hurry: make(chan struct{}, 1)},
		proving:  proving{mode: o.Confirm, differs: make(chan struct{}, 1)},
		patience: patience{least: o.quietTimeout, now: o.quietTimeout},
		facts:    facts{pageSize: firstPage},
		pace:     pace{clock: clock, backoff: newBackoff()},
		status:   status{state: State{Phase: PhaseStarting, Since: now}},
	}
	s.cluster = cluster{server: server, requests: &s.requests, queue: queue, store: store, log: log, broken: time.Now()}
	if store.Restored() {
		s.link.restored()
	}
	s.audit = audit{every: auditAfter(o.AuditEvery), store: store, clock: clock}
	return s
}

// IsWatchListSemanticsUnSupported keeps the Reflector from streaming lists, which would
// fill the memory.
func (s *ListerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

// refuseStream refuses a streamed list, as a server does that has none: client-go's
// Reflector then lists. It asks for one where a program has wrapped the ListerWatcher, which
// hides IsWatchListSemanticsUnSupported.
func refuseStream(o metav1.ListOptions) error {
	if o.SendInitialEvents == nil {
		return nil
	}
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("WatchOptions").GroupKind(), "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"), "lists are not streamed from the file: list, then watch")})
}

// List implements cache.Lister.
func (s *ListerWatcher) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher.
func (s *ListerWatcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext answers from the file: an empty list at the version to go on from. It
// reads from the server first only if the source has never been synced or its contents
// cannot be served.
func (s *ListerWatcher) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	if !s.calls.begin() {
		return nil, errEnded
	}
	defer s.calls.end()
	s.doubtVersion()
	if reason := s.unusable(); reason != "" {
		if s.status.notUsed(reason) && reason != ReasonFirst {
			s.log.Info("Everything is read from the server, since the file's objects cannot be used", "source", s.store.Source().String(), "reason", reason)
		}
		if err := s.relist(ctx, reason); err != nil {
			return nil, err
		}
	} else {
		s.status.resumes()
	}
	rv := s.queue.AcceptedVersion()
	s.queue.ExpectResume(rv)
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: rv}}, nil
}

// Wait returns once no List or Watch call is under way. The Reflector itself does not
// wait for a list that it has given up. Later calls fail.
func (s *ListerWatcher) Wait() { s.calls.wait() }

var errEnded = errors.New("reflector: the source has ended")

// calls counts the calls under way.
type calls struct {
	mu    sync.Mutex
	over  bool // wait was called
	under sync.WaitGroup
}

// begin says whether the call may go on. If so, end ends it.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.under.Add(1)
	}
	return !c.over
}

func (c *calls) end() { c.under.Done() }

func (c *calls) wait() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.under.Wait()
}

// unusable says why the source cannot go on from the file, "" if it can.
func (s *ListerWatcher) unusable() string {
	switch {
	case !s.store.State().Synced:
		return ReasonFirst
	case s.store.Err() != nil:
		return ReasonDamaged
	case s.queue.AcceptedVersion() == "" && (!s.queue.Reached() || s.fresh.want()):
		return ReasonNoVersion
	}
	return s.store.Outdated()
}

// fail notes why the server did not answer, and that it must be asked again.
func (s *ListerWatcher) fail(ctx context.Context, err error) error {
	s.proving.failure()
	if isDenied(err) && ctx.Err() == nil { // so the link is whole
		s.doubtVersion()
		s.denied(ctx, err)
		return err
	}
	s.doubtLink()
	if ctx.Err() == nil {
		s.link.answers() // it does not refuse, now
		s.enter(phaseOf(err), err.Error())
	}
	return err
}

// doubtLink notes that the link has broken, or may have: the server must be asked for its
// version and its cluster before anything is confirmed.
func (s *ListerWatcher) doubtLink() {
	s.doubtVersion()
	s.cluster.forget()
}

// doubtVersion notes that the server must be asked for its version.
func (s *ListerWatcher) doubtVersion() {
	s.queue.Doubt()
	s.status.setUncompared(true)
	s.link.broke()
}
