package main

import (
	"context"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	pageSize  = 500  // pods of a page, as client-go's pager has
	batchSize = 1000 // changes of a transaction, at most
)

// feed takes a Reflector's events.
type feed struct {
	queue chan change
	ended <-chan struct{}
	empty bool // there are no rows that a change could meet

	target  atomic.Uint64 // the version from which on the store has synced
	expired atomic.Bool   // the server has forgotten the stored version
	synced  chan struct{}
}

func newFeed() feed { return feed{queue: make(chan change, batchSize), synced: make(chan struct{})} }

func (f *feed) send(c change) error {
	select {
	case f.queue <- c:
		return nil
	case <-f.ended:
		return context.Canceled
	}
}

// next returns the changes that have arrived, nil when the feed has ended, and channels
// to close when they are written.
func (f *feed) next() (batch []change, flushed []chan<- struct{}) {
	batch = []change{}
	add := func(c change) {
		if c.written != nil {
			flushed = append(flushed, c.written)
		} else {
			batch = append(batch, c)
		}
	}
	select {
	case <-f.ended:
		return nil, nil
	case c := <-f.queue:
		add(c)
	}
	for len(batch) < batchSize {
		select {
		case c := <-f.queue:
			add(c)
		default:
			return batch, flushed
		}
	}
	return batch, flushed
}

// flush waits until everything sent so far is written.
func (f *feed) flush() error {
	written := make(chan struct{})
	if err := f.send(change{written: written}); err != nil {
		return err
	}
	select {
	case <-written:
		return nil
	case <-f.ended:
		return context.Canceled
	}
}

// reached notes that a version is in the file.
func (f *feed) reached(version string) {
	if version != "" && !f.isSynced() && number(version) >= f.target.Load() {
		close(f.synced)
	}
}

func (f *feed) isSynced() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // versions of kube-apiserver are numbers
	return n
}

// The methods of a cache.ReflectorStore.

func (f *feed) changed(obj any, gone bool) error {
	pod := obj.(*corev1.Pod)
	c := change{key: cache.MetaObjectToName(pod).String(), version: pod.ResourceVersion}
	if !gone {
		c.pod = pod
	}
	return f.send(c)
}

func (f *feed) Add(obj any) error             { return f.changed(obj, false) }
func (f *feed) Update(obj any) error          { return f.changed(obj, false) }
func (f *feed) Delete(obj any) error          { return f.changed(obj, true) }
func (f *feed) Bookmark(version string) error { return f.send(change{version: version}) }
func (f *feed) Replace([]any, string) error   { return nil } // source has written them
func (f *feed) Resync() error                 { return nil }

// source is the ListerWatcher of the Reflector.
type source struct{ *store }

// IsWatchListSemanticsUnSupported makes the Reflector list before it watches.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

func (s source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext answers empty at the version of the file: the Reflector then watches
// from there. If the file has none, or the server has forgotten it, a list comes first,
// whose pages go into the file.
func (s source) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	version, err := s.version()
	if err != nil {
		return nil, err
	}
	if version == "" || s.expired.Load() {
		if version, err = s.relist(ctx); err != nil {
			return nil, err
		}
		s.expired.Store(false)
	} else if !s.isSynced() {
		// A list that selects nothing states the server's version.
		now, err := s.api.list(ctx, metav1.ListOptions{Limit: 1, FieldSelector: "metadata.name=none"})
		if err != nil {
			return nil, err
		}
		s.target.Store(number(now.ResourceVersion))
		s.reached(version)
	}
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
}

// WatchWithContext opens a short watch as long as the store has not synced, since the
// server sends a bookmark two seconds before the end of a watch, and otherwise one a
// minute.
func (s source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !s.isSynced() {
		o.TimeoutSeconds = new(int64(3))
	}
	w, err := s.api.watch(ctx, o)
	if err != nil {
		s.expire(err)
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Error {
			s.expire(apierrors.FromObject(e.Object))
		}
		return e, true
	}), nil
}

func (s source) expire(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		s.expired.Store(true)
	}
}

// relist writes a list, a page in each transaction. The last transaction also removes the
// objects that the list did not have, and writes its version.
func (s source) relist(ctx context.Context) (version string, err error) {
	defer func() { s.empty = false }()
	s.target.Store(0)
	gone, err := s.keys()
	if err != nil {
		return "", err
	}
	for o := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := s.api.list(ctx, o)
		if err != nil {
			return "", err
		}
		var changes []change
		for i := range page.Items {
			pod := &page.Items[i]
			key := cache.MetaObjectToName(pod).String()
			delete(gone, key)
			changes = append(changes, change{key: key, pod: pod})
		}
		if o.Continue = page.Continue; o.Continue == "" {
			for key := range gone {
				changes = append(changes, change{key: key})
			}
			changes = append(changes, change{version: page.ResourceVersion})
			return page.ResourceVersion, s.write(changes)
		}
		if err := s.write(changes); err != nil {
			return "", err
		}
	}
}
