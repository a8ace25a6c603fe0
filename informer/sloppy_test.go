package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// sloppy is a server that repeats objects over the pages of a list, and events of a
// watch. It sends the events of different objects in any order, and bookmarks of earlier
// versions. Requests fail, watches end early and expire.
type sloppy struct {
	mu                          sync.Mutex
	r                           *rand.Rand
	repeats, shuffles, goesBack bool
	sane                        bool // from now on
	objs                        map[string]*corev1.ConfigMap
	lists                       map[string]map[string]*corev1.ConfigMap // by version
	log                         []watch.Event                           // of versions 1, 2, and so on
}

const sloppyNames = 8

// change changes an object, and returns it.
func (s *sloppy) change() *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, rv := fmt.Sprint("o", s.r.IntN(sloppyNames)), fmt.Sprint(len(s.log)+1)
	o := cm(name, rv)
	o.ResourceVersion, o.UID = rv, types.UID("u"+rv)
	ev := watch.Event{Type: watch.Added, Object: o}
	was := s.objs[name]
	if was != nil {
		ev.Type, o.UID = watch.Modified, was.UID
	}
	s.objs[name] = o
	if was != nil && s.r.IntN(3) == 0 {
		ev.Type = watch.Deleted
		delete(s.objs, name)
	}
	s.log = append(s.log, ev)
	return o
}

// odd says whether something that happens once in n times happens now.
func (s *sloppy) odd(n int) bool { return !s.sane && s.r.IntN(n) == 0 }

func (s *sloppy) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.odd(6) {
		return nil, errors.New("no")
	}
	rv, after, _ := strings.Cut(o.Continue, "/")
	if rv == "" {
		rv = fmt.Sprint(len(s.log))
		s.lists[rv] = maps.Clone(s.objs)
	}
	l := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: rv}}
	names := slices.Sorted(maps.Keys(s.lists[rv]))
	if o.FieldSelector != "" {
		names = nil
	}
	from := slices.IndexFunc(append(names, "z"), func(name string) bool { return name > after })
	if s.repeats && s.odd(3) {
		from = max(from-1, 0)
	}
	to := len(names)
	if o.Limit > 0 && from+3 < to {
		to = from + 3
		l.Continue = rv + "/" + names[to-1]
	}
	for _, name := range names[from:to] {
		l.Items = append(l.Items, *s.lists[rv][name].DeepCopy())
	}
	return l, nil
}

func (s *sloppy) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := strconv.Atoi(o.ResourceVersion)
	if err != nil || s.odd(20) {
		return nil, apierrors.NewResourceExpired("of the test")
	}
	lasts := time.Duration(1+s.r.IntN(100)) * time.Second
	if o.TimeoutSeconds != nil {
		lasts = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	w := watch.NewProxyWatcher(make(chan watch.Event))
	ch := make(chan watch.Event)
	go s.serve(ch, w.StopChan(), at, time.Now().Add(lasts))
	return &sloppyWatch{w, ch}, nil
}

type sloppyWatch struct {
	*watch.ProxyWatcher
	ch chan watch.Event
}

func (w *sloppyWatch) ResultChan() <-chan watch.Event { return w.ch }

// serve sends events until the watch ends.
func (s *sloppy) serve(ch chan<- watch.Event, stop <-chan struct{}, at int, until time.Time) {
	defer close(ch)
	for ended := false; !ended; {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-stop:
			return
		}
		var events []watch.Event
		events, at, ended = s.next(at, until)
		for _, e := range events {
			e.Object = e.Object.DeepCopyObject()
			select {
			case ch <- e:
			case <-stop:
				return
			}
		}
	}
}

// next returns the events after a version, and whether the watch ends with them.
func (s *sloppy) next(at int, until time.Time) (events []watch.Event, now int, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ended = len(s.log), time.Now().After(until) || s.odd(60)
	events = slices.Clone(s.log[at:])
	name := func(i int) string { return events[i].Object.(*corev1.ConfigMap).Name }
	for range len(events) * 2 {
		if i := s.r.IntN(len(events)); s.shuffles && !s.sane && i > 0 && name(i) != name(i-1) {
			events[i-1], events[i] = events[i], events[i-1]
		}
	}
	if s.repeats && s.odd(3) {
		var twice []watch.Event
		for _, e := range events {
			twice = append(twice, e, e)
		}
		events = twice
	}
	if now > 0 && (len(events) > 0 || ended || time.Until(until) < 2*time.Second) {
		events = append(events, bookmarkAt(now))
	}
	if s.goesBack && s.odd(2) && at > 0 {
		events = append(events, bookmarkAt(1+s.r.IntN(at)))
	}
	return events, now, ended
}

func bookmarkAt(rv int) watch.Event {
	return watch.Event{Type: watch.Bookmark,
		Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(rv)}}}
}

// noGhosts is a handler that is told of no object after its delete, and of no delete twice
// in a life.
type noGhosts struct {
	*recorder
	life *int
	dead map[types.UID]int // the life in which it was told
}

func (h noGhosts) OnAdd(obj any, initial bool) { h.lives(obj); h.recorder.OnAdd(obj, initial) }
func (h noGhosts) OnUpdate(old, obj any)       { h.lives(obj); h.recorder.OnUpdate(old, obj) }

func (h noGhosts) OnDelete(obj any) {
	h.recorder.OnDelete(obj)
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	o := obj.(*corev1.ConfigMap)
	if h.dead[o.UID] == *h.life {
		h.t.Errorf("told the delete of %s %s twice in a life", o.Name, o.UID)
	}
	h.dead[o.UID] = *h.life
}

func (h noGhosts) lives(obj any) {
	if o := obj.(*corev1.ConfigMap); h.dead[o.UID] > 0 {
		h.t.Errorf("told of %s %s at %s after its delete", o.Name, o.UID, o.ResourceVersion)
	}
}

// TestSloppyServer: whatever a sloppy server repeats or sends in another order, and
// however late the program stores its answers, cache and handlers equal the server in the
// end. No handler is told of an object after its delete. $KUBEWAKE_SEED says from which seed on.
func TestSloppyServer(t *testing.T) {
	bubble(t, func(*testing.T, *world) {})
	first := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("KUBEWAKE_SEED"), 10, 64); err == nil {
		first = n
	}
	for seed := first; seed < first+20 && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				s := &sloppy{r: rand.New(rand.NewPCG(seed, 2)), repeats: r.IntN(2) == 0, shuffles: r.IntN(3) == 0,
					goesBack: r.IntN(2) == 0,
					objs:     map[string]*corev1.ConfigMap{}, lists: map[string]map[string]*corev1.ConfigMap{}}
				w := &world{t: t, path: t.TempDir() + "/wake.db"}
				lives := 0
				plain, durable := noGhosts{newRecorder(t), &lives, map[types.UID]int{}}, newLedger(t)
				live := func() *life {
					lives++
					w.options.ObjectMemory = []int64{-1, 0}[r.IntN(2)]
					db, err := boltstore.Open(w.path, w.options)
					if err != nil {
						t.Fatal(err)
					}
					o := Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1",
						Resource: "configmaps", Form: boltstore.FormTyped}}}
					o.Reflector.Confirm = []reflector.Confirm{reflector.ConfirmAuto, reflector.ConfirmBookmark,
						reflector.ConfirmList}[r.IntN(3)]
					inf, err := NewSharedIndexInformer(db,
						&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch},
						&corev1.ConfigMap{}, o)
					if err != nil {
						t.Fatal(err)
					}
					_, err1 := inf.AddEventHandler(plain)
					_, err2 := inf.AddDurableHandler("d", durable, DurableOptions{})
					if err := errors.Join(err1, err2); err != nil {
						t.Fatal(err)
					}
					return (&life{world: w, db: db, inf: inf, done: make(chan struct{})}).run()
				}
				s.change()
				l := live()
				for range 120 {
					switch k := r.IntN(20); {
					case k < 14:
						s.change()
					case k < 18:
						// on the bubble's clock, which takes no time: what is under way ends or
						// not
						time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond) // on the bubble's clock, see above
					case k < 19:
						// on the bubble's clock, which takes no time: watches end meanwhile
						time.Sleep(time.Duration(r.IntN(200)) * time.Second) // on the bubble's clock, see above
					default:
						l.end()
						l = live()
					}
				}
				s.mu.Lock()
				s.sane = true
				s.mu.Unlock()
				after(2 * time.Minute)
				s.change()
				after(15 * time.Minute)
				want := slices.Collect(maps.Values(s.objs))
				same := func(what string, got map[string]*corev1.ConfigMap) {
					ok := len(got) == len(want)
					for _, o := range want {
						ok = ok && got[o.Name] != nil && got[o.Name].ResourceVersion == o.ResourceVersion
					}
					if !ok {
						t.Errorf("%s: %v, want %v", what, got, want)
					}
				}
				read := map[string]*corev1.ConfigMap{}
				for _, o := range l.inf.GetStore().List() {
					read[o.(*corev1.ConfigMap).Name] = o.(*corev1.ConfigMap)
				}
				same("read", read)
				same("told", plain.there)
				same("told durably", durable.there)
				l.end()
			})
		})
	}
}
