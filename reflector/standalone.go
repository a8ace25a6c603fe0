package reflector

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// Standalone is a cache.ListerWatcher for one unmodified client-go informer or Reflector.
// The first list has the file's objects, whether or not the server can be reached. The
// watch goes on from the file's version. Everything that a Standalone hands out is in the
// file. The informer keeps its own copy of everything in memory. As with client-go, its
// handlers are not told of objects that were deleted while the process was down.
//
// Such an informer has synced once it has the file's objects. State says how old
// they are. Stop the informer, then Close.
//
// While the server cannot be reached, handlers are told nothing. As with client-go, they
// get updates without a change whenever their informer has to list. It lists when a server
// that refused watches allows them, and after a repair that is too large to be handed out
// change by change. The delete of an object whose final state was missed comes with the
// last known state, since a watch has no cache.DeletedFinalStateUnknown.
type Standalone struct {
	source  *Reflector
	queue   *fifo.Queue
	store   *boltstore.Claimed
	ctx     context.Context // until Close
	close   context.CancelFunc
	popping sync.WaitGroup
	calls   sync.Mutex // held by each List and Watch

	mu      sync.Mutex
	cond    sync.Cond
	listing bool    // changes that are popped are in the list
	current *stream // nil between watches
	latest  *stream // the last one that was opened; it may have ended
	seq     uint64  // of the last change that was listed or handed out
	refused bool    // the last watch could not be opened
}

var _ cache.ListerWatcherWithContext = &Standalone{}

var errClosed = fmt.Errorf("reflector: the source is closed: %w", fifo.ErrClosed)

// NewStandalone claims the source that lw lists until Close. example is an
// object of the type that lw returns. Errors are those of
// informer.NewSharedIndexInformer.
func NewStandalone(db *boltstore.DB, lw cache.ListerWatcher, example runtime.Object, o Options) (*Standalone, error) {
	src, server, err := o.Identify(lw, example)
	if err != nil {
		return nil, err
	}
	store, err := db.Claim(boltstore.Claim{Source: src, Example: example})
	if err != nil {
		return nil, err
	}
	s := &Standalone{store: store, queue: fifo.New(store, nil)}
	s.source = New(lw, s.queue, store, example, server, o)
	s.cond.L = &s.mu
	s.ctx, s.close = context.WithCancel(context.Background())
	s.popping.Go(s.pop)
	store.SetUser(s)
	return s, nil
}

// Store serves reads of the file.
func (s *Standalone) Store() *boltstore.Store { return s.store.Store }

// State says what the source is doing, and how old the data is.
func (s *Standalone) State() State { return s.source.State() }

// WaitForFresh is Reflector.WaitForFresh.
func (s *Standalone) WaitForFresh(ctx context.Context, maxAge time.Duration) error {
	return s.source.WaitForFresh(ctx, maxAge)
}

// IsWatchListSemanticsUnSupported keeps client-go's Reflector from streaming lists, which
// would fill the memory.
func (s *Standalone) IsWatchListSemanticsUnSupported() bool { return true }

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

// Close ends all watches, writes what has been accepted, and releases the
// source.
func (s *Standalone) Close() error {
	s.close()
	s.mu.Lock()
	s.cond.Broadcast()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.endWatch(ctx)
	if err == nil {
		err = s.queue.Flush(ctx)
	}
	s.queue.Close() // unblocks a watch that the disk holds up
	_ = s.endWatch(context.Background())
	s.calls.Lock() // client-go does not wait for a list that it has given up
	defer s.calls.Unlock()
	s.popping.Wait()
	s.store.Release()
	if err != nil {
		return fmt.Errorf("reflector: the last changes are not in the file and will be fetched again: %w", err)
	}
	return nil
}

// List implements cache.Lister.
func (s *Standalone) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher.
func (s *Standalone) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext answers with the file's objects, without pages, as a server's cache does.
// Only a source that has never been synced, or whose contents cannot be served, is read from
// the server first.
func (s *Standalone) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	if err := s.reachable(ctx, o); err != nil {
		if st := s.store.State(); isDenied(err) && st.Synced && st.ResourceVersion == "" && st.Objects == 0 {
			return s.purged(), nil
		}
		return nil, err
	}
	s.queue.DropHeld()
	if err := s.source.begin(ctx); err != nil {
		return nil, err
	}
	rv := s.queue.AcceptedVersion()
	if err := s.queue.Flush(ctx); err != nil {
		return nil, err
	}
	// Changes that are popped from here on have come after the list.
	if err := s.queue.WaitDone(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.seq = s.store.State().Seq
	s.store.Delivery.SetTold(s.seq)
	seq := s.seq
	s.mu.Unlock()
	return s.contents(rv, seq)
}

// reachable fails while the server refuses watches. client-go lists again
// after a refusal, and has the file's objects already.
func (s *Standalone) reachable(ctx context.Context, o metav1.ListOptions) error {
	s.mu.Lock()
	refused := s.refused
	s.mu.Unlock()
	if !refused {
		return nil
	}
	w, err := s.source.open(ctx, o.TimeoutSeconds)
	if err == nil {
		w.close()
	}
	return err
}

// purged is the list of a source whose objects PurgeDenied has deleted.
func (s *Standalone) purged() runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq = s.store.State().Seq // the list shows the deletes
	s.store.Delivery.SetTold(s.seq)
	return &metav1.List{}
}

// noAnswer is an error for which client-go's Reflector tries the watch again. For any
// other one it lists.
type noAnswer struct{ error }

func (e noAnswer) Unwrap() []error { return []error{e.error, syscall.ECONNREFUSED} }

// begin ends the latest watch, and has changes dropped until the list is ready.
func (s *Standalone) begin(ctx context.Context) error {
	if err := s.endWatch(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing = true
	s.cond.Broadcast()
	return nil
}

// endWatch ends the latest watch, if there is one, and waits for it. The error
// is the context's.
func (s *Standalone) endWatch(ctx context.Context) error {
	s.mu.Lock()
	w := s.latest
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	w.Stop()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Standalone) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing = false
}

// contents is a list of the file's objects, as of the change.
func (s *Standalone) contents(rv string, seq uint64) (runtime.Object, error) {
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: rv}}
	for next := []byte(nil); ; {
		p, err := s.store.Delivery.ServerPage(next, 500)
		if err != nil {
			return nil, err
		}
		if p.Seq != seq {
			return nil, apierrors.NewResourceExpired("the file has changed since the list began")
		}
		for _, obj := range p.Objects {
			ro, ok := obj.(runtime.Object)
			if !ok {
				return nil, fmt.Errorf("reflector: the file has a %T", obj)
			}
			// The informer may change its objects, as its transform does.
			list.Items = append(list.Items, runtime.RawExtension{Object: ro.DeepCopyObject()})
		}
		if next = p.Next; next == nil {
			return list, nil
		}
	}
}
