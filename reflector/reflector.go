package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// Reflector keeps one source up to date with its server: it asks what has changed,
// follows a watch, and repairs what a list shows to differ. What comes goes into the queue.
//
// It is one type because a question, a list and a watch follow one another and decide by
// what the others have found: the link, the cluster and the proof are types of their own.
type Reflector struct {
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
}

// New returns a Reflector that reads through lw and puts the objects into the queue
// and its store. example is an object of the type that lw returns. server is the address
// that lw reads from, as Identify returns it, "" if unknown.
func New(
	lw cache.ListerWatcher, queue *fifo.Queue, store *boltstore.Claimed, example runtime.Object, server string,
	o Options,
) *Reflector {
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
	s := &Reflector{
		o: o, queue: queue, store: store, example: example, clock: clock, log: log,
		requests: requests{lw: cache.ToListerWatcherWithContext(lw), raw: lw, source: store.Source(),
			item: reflect.TypeOf(example), kind: func() string { return store.State().Kind },
			server: server, quiet: o.quietTimeout, clock: clock},
		link:     link{clock: clock},
		unstored: unstored{queue: queue, store: store, clock: clock, first: o.retryUnstored},
		fresh:    waiters{queue: queue, hurry: make(chan struct{}, 1)},
		proving:  proving{mode: o.Confirm, differs: make(chan struct{}, 1)},
		patience: patience{least: o.quietTimeout, now: o.quietTimeout},
		facts:    facts{pageSize: firstPage},
		pace:     pace{clock: clock, backoff: newBackoff()},
		status:   status{state: State{Phase: PhaseStarting, Since: now}, resuming: true, uncompared: true},
	}
	s.cluster = cluster{server: server, requests: &s.requests, queue: queue, store: store, log: log, broken: time.Now()}
	if store.Upstream.Facts().Restored {
		s.link.restored()
	}
	s.audit = audit{every: auditAfter(o.AuditEvery), store: store, clock: clock}
	return s
}

// Run asks, follows and repairs until ctx ends or the queue is closed. failed is told why a
// list or a watch could not be had, with the same texts, exceptions and backoff as client-go's
// one has. r gives the name and the type.
func (s *Reflector) Run(ctx context.Context, r *cache.Reflector, failed cache.WatchErrorHandlerWithContext) {
	delay := new(newBackoff()).DelayWithReset(s.clock, backoffReset)
	for ctx.Err() == nil {
		if s.watchOnce(ctx, r, failed) == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.clock.After(delay()):
		}
	}
}

// watchOnce opens a watch and follows it until it ends. After an error the next one is opened
// later.
func (s *Reflector) watchOnce(
	ctx context.Context, r *cache.Reflector, failed cache.WatchErrorHandlerWithContext,
) error {
	w, err := s.open(ctx, new(int64((1+rand.Float64())*leastWatchTimeout.Seconds())))
	if err == nil {
		if err = w.follow(ctx, s.take); err != nil {
			s.log.Info("Warning: watch ended with error", "source", s.store.Source().String(), "err", err)
			s.status.resumes()
		}
		return err
	}
	var list listError
	switch {
	case errors.As(err, &list):
		failed(ctx, r, fmt.Errorf("failed to list %s: %w", r.TypeDescription(), list.error))
	case utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err):
		s.log.V(4).Info("Watch failed - backing off", "source", s.store.Source().String(), "err", err)
		return err
	default:
		failed(ctx, r, err)
	}
	s.status.resumes()
	return err
}

// The figures of client-go's Reflector.
const (
	leastWatchTimeout = 5 * time.Minute // a watch lasts as long, or up to twice as long
	backoffReset      = 2 * time.Minute // without an error
)

// begin goes on from the file for a list that it answers. It reads from the server first only
// if the source has never been synced or its contents cannot be served.
func (s *Reflector) begin(ctx context.Context) error {
	s.doubtVersion()
	if reason := s.unusable(); reason != "" {
		return s.relistBeforeWatch(ctx, reason)
	}
	s.status.resumes()
	return nil
}

// take puts what a watch has brought into the queue. The error ends the watch.
func (s *Reflector) take(ev watch.Event) error {
	if ev.Type == watch.Error {
		return apierrors.FromObject(ev.Object)
	}
	if is := reflect.TypeOf(ev.Object); is != reflect.TypeOf(s.example) || s.anotherKind(ev.Object) {
		s.log.Error(nil, "Unexpected watch event object type", "source", s.store.Source().String(), "actualType", is)
		return nil
	}
	var err error
	switch ev.Type {
	case watch.Added:
		err = s.queue.Add(ev.Object)
	case watch.Modified:
		err = s.queue.Update(ev.Object)
	case watch.Deleted:
		err = s.queue.Delete(ev.Object)
	case watch.Bookmark:
		err = s.queue.Bookmark(versionOf(ev.Object))
	}
	if errors.Is(err, fifo.ErrClosed) {
		return err
	}
	return nil // the queue has reported what it could not store
}

// anotherKind says whether the object is unstructured, and of another kind than the example.
func (s *Reflector) anotherKind(obj runtime.Object) bool {
	_, unstructured := s.example.(runtime.Unstructured)
	want := s.example.GetObjectKind().GroupVersionKind()
	return unstructured && !want.Empty() && obj.GetObjectKind().GroupVersionKind() != want
}

// unusable says why the source cannot go on from the file, "" if it can.
func (s *Reflector) unusable() string {
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
func (s *Reflector) fail(ctx context.Context, err error) error {
	s.proving.spend()
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
func (s *Reflector) doubtLink() {
	s.doubtVersion()
	s.cluster.forget()
}

// doubtVersion notes that the server must be asked for its version.
func (s *Reflector) doubtVersion() {
	s.queue.Doubt()
	s.status.setUncompared(true)
	s.link.broke()
}
