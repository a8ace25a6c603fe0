package reflector

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
)

// requests are the requests of one source. They give up once nothing has come over the
// link for too long, and when their context ends. The caller's list and watch functions
// may ignore their context, or have none. Nothing waits for such a function, and its
// later result is dropped.
type requests struct {
	lw     cache.ListerWatcherWithContext
	raw    cache.ListerWatcher // as given to New
	source boltstore.Source
	item   reflect.Type  // of the objects
	kind   func() string // the same, "" if it is not known
	server string        // its address; "": the client's requests cannot be seen
	quiet  time.Duration
	clock  clock.Clock
	unlike atomic.Bool // lists are of other objects than watches
}

// giveUp calls fn. If stop ends first, giveUp returns the cause, and calls drop with fn's
// value once there is one. If fn panics, giveUp panics. If fn ends its goroutine, as
// t.FailNow does, the error is errExited.
func giveUp[T any](stop context.Context, fn func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v        T
		err      error
		panicked any
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: errExited}
		defer func() {
			if r.panicked = recover(); r.panicked != nil && stop.Err() != nil {
				panic(r.panicked) // nobody waits for it
			}
			done <- r
		}()
		r.v, r.err = fn()
	}()
	finish := func(r result) (T, error) {
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.v, r.err
	}
	select {
	case r := <-done:
		return finish(r)
	case <-stop.Done():
	}
	select {
	case r := <-done:
		return finish(r)
	default:
	}
	go func() {
		if r := <-done; r.err == nil && r.panicked == nil {
			drop(r.v)
		}
	}()
	var none T
	return none, context.Cause(stop)
}

var errExited = errors.New("reflector: the list or watch function has ended its goroutine (runtime.Goexit, t.FailNow)")

func stopWatch(w watch.Interface) {
	if w != nil {
		w.Stop()
	}
}

// list reads a list. It gives up once nothing has come for as long as patience.
func (r *requests) list(ctx context.Context, patience time.Duration, o metav1.ListOptions) (runtime.Object, error) {
	list, _, err := r.measured(ctx, patience, 0, o)
	return list, err
}

// measured is list, and also returns the bytes of the unpacked answer, 0 if they cannot
// be seen. If one answer has more than most bytes, the error is errTooLarge; 0 is no
// bound.
func (r *requests) measured(ctx context.Context, patience time.Duration, most int64, o metav1.ListOptions) (
	runtime.Object, int64, error,
) {
	guarded, g := r.guard(ctx, patience, o)
	g.p.most = most
	if r.unlike.Load() {
		g.p.of = boltstore.Source{}
	}
	list, err := giveUp(ctx, func() (runtime.Object, error) {
		return r.lw.ListWithContext(guarded, o)
	}, func(runtime.Object) {})
	switch err = g.end(err); {
	case err == nil:
		err = r.lists(list)
	case errors.Is(err, errOtherObjects) && r.neverAlike(ctx):
		return r.measured(ctx, patience, most, o)
	}
	return list, g.p.bytes.Load(), err
}

// errNoList: something else than the server's list has come.
var errNoList = errors.New("reflector: the answer is not a list of the objects; " +
	"check whether a gateway or a login page answers in the server's place")

// lists fails if the answer is empty and no list of the source's objects. A gateway may
// have answered in place of the server, and clients decode many a JSON object as a list
// without items. The source's objects must not be taken for deleted.
func (r *requests) lists(answer runtime.Object) error {
	if meta.LenList(answer) > 0 {
		return nil
	}
	if u, ok := answer.(*unstructured.UnstructuredList); ok {
		if gvk := u.GroupVersionKind(); gvk.Kind == "Status" || r.ofAnother(gvk) {
			return fmt.Errorf("%w: it is a %s", errNoList, gvk)
		}
		return nil
	}
	items, err := meta.GetItemsPtr(answer)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoList, err)
	}
	item := reflect.TypeOf(items).Elem().Elem()
	if item.Kind() != reflect.Pointer {
		item = reflect.PointerTo(item)
	}
	if item.Elem().Kind() == reflect.Struct && item != reflect.TypeFor[*runtime.RawExtension]() && item != r.item {
		return fmt.Errorf("%w: it is a %T", errNoList, answer)
	}
	return nil
}

// ofAnother says whether a list is of another group, or of another kind where each kind
// names its list. A sloppy server may say List, or nothing.
func (r *requests) ofAnother(list schema.GroupVersionKind) bool {
	switch {
	case r.server == "" || list.Kind == "" || list.Kind == "List" || list.Version == "":
		return false // also where the program may have named the source as it likes
	case list.Group != r.source.Group:
		return true
	}
	kind := r.kind()
	return kind != "" && !custom(list.Group) && list.Kind != kind+"List"
}

// watch opens a watch. It also returns the connection, and the pulse that counts the
// watch's bytes. It gives up once nothing has come for as long as patience: some proxies
// hold the answer back until the first event.
func (r *requests) watch(ctx context.Context, patience time.Duration, o metav1.ListOptions) (
	watch.Interface, string, *pulse, error,
) {
	stop := ctx
	ctx, g := r.guard(ctx, patience, o)
	var over origin
	ctx = over.trace(ctx)
	whole := func(w watch.Interface) *guarded { return &guarded{Interface: w, cancel: g.cancel, p: g.p} }
	w, err := giveUp(stop, func() (watch.Interface, error) {
		return r.lw.WatchWithContext(ctx, o)
	}, func(w watch.Interface) {
		if w != nil {
			whole(w).Stop()
		}
	})
	if err != nil {
		return nil, "", nil, g.end(err)
	}
	close(g.done)
	return whole(w), over.over(), g.p, nil
}

// short is how long the server may take to begin a short answer.
func (r *requests) short() time.Duration { return min(r.quiet, askPatience) }

// version asks for the current version by a consistent list that selects nothing. If the
// caller's list function overrides the selector, or the server does not know it, one
// object comes with the answer.
func (r *requests) version(ctx context.Context) (string, error) {
	list, err := r.list(ctx, r.short(), metav1.ListOptions{FieldSelector: "metadata.name=none", Limit: 1})
	if apierrors.IsBadRequest(err) {
		list, err = r.list(ctx, r.short(), metav1.ListOptions{Limit: 1})
	}
	if err != nil {
		return "", fmt.Errorf("ask for the current version of %s: %w", r.source, err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("ask for the current version of %s: %w", r.source, err)
	}
	return listVersion(m), nil
}

// clusterUID asks for the UID of kube-system, unless another source has, since then.
func (r *requests) clusterUID(ctx context.Context, since time.Time) (clusterAnswer, error) {
	p := &probe{cluster: true, since: since}
	if err := intercept(ctx, r.raw, p); err != nil {
		return clusterAnswer{}, err
	}
	return p.told, p.err
}

// form asks for the sign of the form in which the server serves the source's objects, "" if
// it cannot be learned.
func (r *requests) form(ctx context.Context, since time.Time) (sign string, err error) {
	if r.server == "" {
		return "", nil
	}
	p := &probe{form: true, since: since}
	if err := intercept(ctx, r.raw, p); err != nil {
		return "", err // the transport may still come to the probe
	}
	return p.sign, p.err
}

// listVersion is a list's version. Version 0 is none: fakes state it for any list, and a
// watch from it begins anywhere. Watches are still opened at it, as client-go does: some
// fakes know no watch without a version.
func listVersion(m metav1.ListInterface) string {
	if rv := m.GetResourceVersion(); rv != "0" {
		return rv
	}
	return ""
}
