package informer

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// modelServer has config maps and their watch, without a network.
type modelServer struct {
	mu      sync.Mutex
	cond    sync.Cond
	rv      int
	floor   int // a watch from before it is refused
	objs    map[string]*corev1.ConfigMap
	log     []watch.Event // of versions after floor, one each
	marks   int           // bookmarks, ever
	streams int           // counts up when all watches are told that they expired
	uids    int
	pad     string                               // of written objects
	held    bool                                 // watches begin without a bookmark
	stalled bool                                 // watches bring nothing
	states  map[int]map[string]*corev1.ConfigMap // by version; nil: not kept
	flashes []*flash
	deletes map[string]*atomic.Int64 // of each name

	savedRV int
	saved   map[string]*corev1.ConfigMap
}

func newModelServer() *modelServer {
	s := &modelServer{rv: 100, floor: 100, objs: map[string]*corev1.ConfigMap{}, deletes: map[string]*atomic.Int64{}}
	s.cond.L = &s.mu
	return s
}

func (s *modelServer) objects() map[string]*corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objs)
}

func (s *modelServer) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.rv)
}

// change makes the change if it is possible, and a similar one otherwise.
func (s *modelServer) change(do string, key int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked(do, key)
	s.cond.Broadcast()
}

func (s *modelServer) changeLocked(do string, key int) {
	name := fmt.Sprint("o", key)
	old := s.objs[name]
	if old != nil && (do == "delete" || do == "recreate") {
		s.put(watch.Deleted, name, old.UID)
		if old = nil; do == "delete" {
			return
		}
	}
	if old == nil {
		s.uids++
		s.put(watch.Added, name, types.UID(fmt.Sprint("uid", s.uids)))
		return
	}
	s.put(watch.Modified, name, old.UID)
}

func (s *modelServer) put(typ watch.EventType, name string, uid types.UID) {
	s.rv++
	o := cm(name, fmt.Sprint("at ", s.rv, s.pad))
	o.UID, o.ResourceVersion = uid, strconv.Itoa(s.rv)
	s.log = append(s.log, watch.Event{Type: typ, Object: o})
	if s.objs[name] = o; typ == watch.Deleted {
		delete(s.objs, name)
		s.gone(name).Add(1)
	}
	s.keepState()
}

// padded makes objects that are written from now on large.
func (s *modelServer) padded(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pad = strings.Repeat(" ", bytes)
}

func (s *modelServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks++
	s.cond.Broadcast()
}

// missed makes n changes that no watch will bring.
func (s *modelServer) missed(key, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		s.changeLocked([]string{"recreate", "update", "delete", "update", "create"}[(key+i)%5], (key+3*i)%16)
	}
	s.forget()
	if s.saved == nil || n > 4 {
		s.savedRV, s.saved = s.rv, maps.Clone(s.objs)
	}
}

func (s *modelServer) forget() {
	s.floor, s.log = s.rv, nil
	s.streams++
	s.cond.Broadcast()
}

// rewind is a restore of an earlier state.
func (s *modelServer) rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil {
		return
	}
	s.rv, s.objs = s.savedRV, maps.Clone(s.saved)
	s.forget()
}

func (s *modelServer) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
}

func (s *modelServer) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.rv)}}
	if o.FieldSelector == "" {
		if o.ResourceVersionMatch == "" { // else nothing is taken from it
			s.excuseLocked()
		}
		for _, obj := range s.objs {
			l.Items = append(l.Items, *obj)
		}
	}
	return l, nil
}

func (s *modelServer) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	from, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from < s.floor {
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	ch := make(chan watch.Event)
	w := watch.NewProxyWatcher(ch)
	context.AfterFunc(ctx, w.Stop)
	go func() {
		<-w.StopChan()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	}()
	go s.stream(w, ch, from, s.streams)
	return w, nil
}

// stream sends the events from a version on. It begins with a bookmark, lest the watch
// count as one that brought nothing.
func (s *modelServer) stream(w *watch.ProxyWatcher, ch chan<- watch.Event, at, streams int) {
	defer close(ch)
	send := func(e watch.Event) bool {
		select {
		case ch <- e:
			return true
		case <-w.StopChan():
			return false
		}
	}
	marks := -1
	s.mu.Lock()
	if s.held {
		marks = s.marks
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		for s.streams == streams && (s.stalled || at >= s.rv && (marks == s.marks || at > s.rv)) && !w.Stopping() {
			s.cond.Wait()
		}
		expired := s.streams != streams
		var events []watch.Event
		if !expired && at < s.rv {
			events = s.log[at-s.floor:]
			at = s.rv
		} else if !expired {
			marks = s.marks
			events = []watch.Event{{Type: watch.Bookmark,
				Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(at)}}}}
		}
		s.mu.Unlock()
		if expired {
			st := apierrors.NewResourceExpired("too old resource version").ErrStatus
			send(watch.Event{Type: watch.Error, Object: &st})
			return
		}
		for _, e := range events {
			if e.Type != "" && !send(e) { // else it is of another type
				return
			}
		}
	}
}
