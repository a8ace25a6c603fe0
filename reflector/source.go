package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options of a Source. The zero value is a good default.
type Options struct {
	// Server is the address that the source is read from, as Identify tells
	// it; "" if unknown.
	Server string
	// PageSize of relists. Default 500.
	PageSize int64
	// ConfirmTimeout is the timeout of a watch that is behind what the server
	// states: the server sends a bookmark about 2 s before it, none if it is
	// shorter than 3 s. Default 3 s.
	ConfirmTimeout time.Duration
	// OnState is called at each change of phase. It must not block.
	OnState func(State)
	// Logger. Default klog.Background().
	Logger *klog.Logger
	// Clock for tests.
	Clock clock.Clock
}

// Source is a cache.ListerWatcher for one Reflector, which must feed the same
// journal. Lists return no objects: what they would contain is in the file
// when they return, or was there before.
type Source struct {
	lw      cache.ListerWatcherWithContext
	raw     cache.ListerWatcher
	journal *fifo.Journal
	store   *boltstore.Store
	example runtime.Object
	o       Options
	backoff wait.Backoff // between relists for expired versions
	last    time.Time    // of the last such relist

	mu         sync.Mutex
	state      State
	expired    bool // the next watch must relist first
	asked      bool // the server has been asked for its version since the link last broke
	checked    bool // the cluster's identity has been checked, this is its UID
	clusterUID string

	calls sync.WaitGroup
}

var (
	_ cache.ListerWatcher            = &Source{}
	_ cache.ListerWatcherWithContext = &Source{}
)

// New returns a source that reads through lw and keeps what it reads in the
// journal and its store. example is an object of the type that lw returns.
func New(lw cache.ListerWatcher, journal *fifo.Journal, store *boltstore.Store, example runtime.Object, o Options) *Source {
	o.PageSize = cmp.Or(o.PageSize, 500)
	o.ConfirmTimeout = cmp.Or(o.ConfirmTimeout, 3*time.Second)
	if o.Logger == nil {
		l := klog.Background()
		o.Logger = &l
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Source{
		lw: cache.ToListerWatcherWithContext(lw), raw: lw, journal: journal, store: store, example: example, o: o,
		backoff: newBackoff(), state: State{Phase: Starting, Since: o.Clock.Now()},
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// IsWatchListSemanticsUnSupported keeps the Reflector from streaming lists,
// which would fill its memory.
func (s *Source) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (s *Source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher.
func (s *Source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext answers from the file: an empty list at the version to go on
// from. Only a source that has never been synced, or whose contents cannot be
// served, is read from the server first.
func (s *Source) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	s.calls.Add(1)
	defer s.calls.Done()
	s.mu.Lock()
	s.asked = false
	s.mu.Unlock()
	if reason := s.unusable(); reason != "" {
		if err := s.relist(ctx, reason, false); err != nil {
			return nil, err
		}
	} else {
		s.mu.Lock()
		s.state.Resumes++
		s.mu.Unlock()
	}
	rv := s.journal.Accepted()
	s.journal.ExpectResume(rv)
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: rv}}, nil
}

// Wait returns once no List or Watch call is under way: the Reflector does not
// wait for a list that it has given up.
func (s *Source) Wait() { s.calls.Wait() }

// unusable says why the file cannot be gone on from, "" if it can.
func (s *Source) unusable() string {
	switch {
	case !s.store.State().Synced || s.journal.Accepted() == "":
		return ReasonFirst
	case s.store.Err() != nil:
		return ReasonDamaged
	}
	return s.store.Outdated()
}

// WatchWithContext opens a watch at the version up to which everything has
// been accepted, whatever the Reflector believes. Before that it asks the
// server for its version, if the link was broken, and relists, if the version
// has expired or the server has gone back.
func (s *Source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.calls.Add(1)
	defer s.calls.Done()
	repaired := false
	for {
		reason, err := s.mustRelist(ctx)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			if err := s.repair(ctx, reason, reason == ReasonRestored); err != nil {
				if reason == ReasonExpired {
					s.setExpired()
				}
				return nil, err
			}
			repaired = true
		}
		o.ResourceVersion = s.journal.Accepted()
		o.AllowWatchBookmarks = true
		phase := Live
		if !s.journal.Reached() {
			phase = CatchingUp
			o.TimeoutSeconds = new(int64(s.o.ConfirmTimeout / time.Second))
		}
		w, err := s.lw.WatchWithContext(ctx, o)
		switch {
		case isExpired(err):
			s.setExpired()
			continue
		case err != nil:
			return nil, s.fail(ctx, err)
		}
		s.enter(phase, "")
		return s.wrap(w, o.TimeoutSeconds, repaired), nil
	}
}

// mustRelist says why everything must be read anew before a watch can go on,
// "" if it need not be.
func (s *Source) mustRelist(ctx context.Context) (string, error) {
	if s.store.Err() != nil {
		return ReasonDamaged, nil
	}
	if s.takeExpired() {
		return ReasonExpired, nil
	}
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	if asked {
		return "", nil
	}
	if s.moved() {
		other, err := s.otherCluster(ctx)
		if other || err != nil {
			return ReasonCluster, err
		}
	}
	return s.ask(ctx)
}

func isExpired(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}

// fail notes why the server did not answer, and that it must be asked again.
func (s *Source) fail(ctx context.Context, err error) error {
	s.broken()
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		s.enter(Denied, err.Error())
	default:
		s.enter(Offline, err.Error())
	}
	return err
}

func (s *Source) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = false
}

func (s *Source) setExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
}

func (s *Source) takeExpired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.expired
	s.expired = false
	return e
}

// ask learns the server's current version, once after the link was broken. If
// it is behind the file's the server has been restored.
func (s *Source) ask(ctx context.Context) (string, error) {
	rv, err := s.serverVersion(ctx)
	if err != nil {
		return "", s.fail(ctx, err)
	}
	if c, err := resourceversion.CompareResourceVersion(rv, s.journal.Accepted()); err == nil && c < 0 {
		return ReasonRestored, nil
	}
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	if rv != "" {
		s.journal.Confirm(rv)
	}
	return "", nil
}

// serverVersion asks for the current version by a consistent list that selects
// nothing. Where the caller's list function overrides the selector, or the
// server does not know it, one object comes with it.
func (s *Source) serverVersion(ctx context.Context) (string, error) {
	list, err := s.lw.ListWithContext(ctx, metav1.ListOptions{FieldSelector: "metadata.name=none", Limit: 1})
	if apierrors.IsBadRequest(err) {
		list, err = s.lw.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	}
	if err != nil {
		return "", fmt.Errorf("ask for the current version of %s: %w", s.store.Source(), err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("ask for the current version of %s: %w", s.store.Source(), err)
	}
	return m.GetResourceVersion(), nil
}

// repair is a relist with a backoff of its own: the Reflector's is not told.
func (s *Source) repair(ctx context.Context, reason string, newHistory bool) error {
	now := s.o.Clock.Now()
	if now.Sub(s.last) > 2*time.Minute {
		s.backoff = newBackoff()
	} else {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.o.Clock.After(s.backoff.Step()):
		}
	}
	s.last = s.o.Clock.Now()
	return s.relist(ctx, reason, newHistory)
}

// relist reads everything, page by page, into the file.
func (s *Source) relist(ctx context.Context, reason string, newHistory bool) error {
	other, err := s.otherCluster(ctx)
	if err != nil {
		return err
	}
	if other {
		reason = ReasonCluster
	}
	s.enter(Relisting, reason)
	o := boltstore.RelistOptions{NewHistory: newHistory && !other, ClusterUID: s.clusterUID, Server: s.o.Server}
	r, err := s.journal.Relist(ctx, o, s.pages(ctx, s.o.PageSize))
	if errors.Is(err, boltstore.ErrUnordered) {
		r, err = s.journal.Relist(ctx, o, s.pages(ctx, 0))
	}
	if err != nil {
		return s.fail(ctx, fmt.Errorf("relist %s: %w", s.store.Source(), err))
	}
	s.mu.Lock()
	s.asked = true // the list's version is the server's
	s.mu.Unlock()
	s.o.Logger.V(1).Info("Relisted", "source", s.store.Source().String(), "reason", reason, "resourceVersion", s.journal.Accepted(),
		"objects", r.Objects, "changed", r.Changed, "deleted", r.Deleted)
	return nil
}

// pages lists consistently. A continue token that expires falls back to one
// page with everything, as client-go's pager does.
func (s *Source) pages(ctx context.Context, size int64) func(func([]runtime.Object) error) (string, error) {
	return func(page func([]runtime.Object) error) (rv string, err error) {
		o := metav1.ListOptions{Limit: size}
		for {
			list, err := s.lw.ListWithContext(ctx, o)
			if isExpired(err) && o.Continue != "" {
				return "", fmt.Errorf("%w: %v", boltstore.ErrUnordered, err) // begin anew, in one page
			}
			if err != nil {
				return "", err
			}
			m, err := meta.ListAccessor(list)
			if err != nil {
				return "", err
			}
			objs, err := meta.ExtractListWithAlloc(list)
			if err != nil {
				return "", err
			}
			if err := page(objs); err != nil {
				return "", err
			}
			if o.Continue = m.GetContinue(); o.Continue == "" {
				return m.GetResourceVersion(), nil
			}
		}
	}
}
