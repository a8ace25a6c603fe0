package informer

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

const (
	stallKeys  = 1000
	stallEvery = 97 // changes of a key from one delete to the next
	stallHeap  = 64 << 20
)

// change returns change n of a source that changes key after key: its type and its
// object.
func stallChange(n int) (watch.EventType, *corev1.ConfigMap) {
	key, turn := n%stallKeys, n/stallKeys
	o := cm(fmt.Sprint("o", key), strconv.Itoa(turn))
	o.UID = types.UID(fmt.Sprint(key, "-", turn/stallEvery))
	o.ResourceVersion = strconv.Itoa(n + 1)
	switch turn % stallEvery {
	case 0:
		return watch.Added, o
	case stallEvery - 1:
		return watch.Deleted, o
	}
	return watch.Modified, o
}

// stalled is a handler that does not return from its first call until it may, and checks
// the order of the changes it is told.
type stalled struct {
	t        *testing.T
	collapse bool // not every version is told
	release  chan struct{}
	entered  chan struct{}
	once     sync.Once
	told     atomic.Int64

	mu    sync.Mutex
	turns map[string]int // last turn that was told, for each key
	uids  map[string]types.UID
}

func newStalled(t *testing.T, collapse bool) *stalled {
	return &stalled{t: t, collapse: collapse, release: make(chan struct{}), entered: make(chan struct{}),
		turns: map[string]int{}, uids: map[string]types.UID{}}
}

func (s *stalled) tell(typ cache.DeltaType, obj any) {
	s.once.Do(func() { close(s.entered) })
	<-s.release
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	o := obj.(*corev1.ConfigMap)
	turn, err := strconv.Atoi(o.Data["data"])
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.turns[o.Name]
	if !known {
		last = -1
	}
	switch {
	case !s.collapse && turn != last+1, turn <= last:
		s.t.Errorf("%s of %s at turn %d after %d", typ, o.Name, turn, last)
	case typ != cache.Deleted && s.uids[o.Name] != "" && s.uids[o.Name] != o.UID:
		s.t.Errorf("%s comes as another object, %s, and the delete of %s was not told", o.Name, o.UID, s.uids[o.Name])
	}
	s.turns[o.Name], s.uids[o.Name] = turn, o.UID
	if typ == cache.Deleted {
		s.uids[o.Name] = ""
	}
	s.told.Add(1)
}

func (s *stalled) OnAdd(obj any, _ bool) { s.tell(cache.Added, obj) }

func (s *stalled) OnUpdate(_, obj any) { s.tell(cache.Updated, obj) }

func (s *stalled) OnDelete(obj any) { s.tell(cache.Deleted, obj) }

func (s *stalled) HandleEvent(_ context.Context, e Event) error {
	each(e, s.tell)
	return nil
}

// TestStalledHandler: a handler that does not return while very many changes pass costs
// disk, but hardly any memory, and is told them afterwards, in order; a durable one, whose
// changes take no more disk either, is told how things stand. KUBEWAKE_STALL says how many
// changes.
func TestStalledHandler(t *testing.T) {
	n := 50_000 // which the race detector makes five times as slow
	if testing.Short() || underRace {
		n = 5_000
	}
	if s := os.Getenv("KUBEWAKE_STALL"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name         string
		durable      bool
		journalBytes int64
	}{
		{"plain", false, 1 << 20},
		{"durable", true, 1 << 40},
		{"durable, small journal", true, 16 << 10},
	} {
		t.Run(c.name, func(t *testing.T) { stall(t, n, c.durable, c.journalBytes) })
	}
}

func stall(t *testing.T, n int, durable bool, journalBytes int64) {
	w := &world{t: t, path: t.TempDir() + "/stall.db",
		options: boltstore.Options{JournalBytes: journalBytes, Durability: boltstore.DurabilityProcess}}
	db, err := boltstore.Open(w.path, w.options)
	if err != nil {
		t.Fatal(err)
	}
	src := &changes{n: n, begin: make(chan struct{})}
	inf, err := NewSharedIndexInformer(db, src.listWatch(), &corev1.ConfigMap{}, Options{
		Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
			Form: boltstore.FormTyped}}, handlerGrace: time.Nanosecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newStalled(t, durable)
	if durable {
		_, err = inf.AddDurableHandler("stalled", h, DurableOptions{})
	} else {
		_, err = inf.AddEventHandler(h)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	defer func() {
		cancel()
		<-done
		if r, err := db.Check(); err != nil || !r.Sound() {
			t.Errorf("the file is not sound: %+v %v", r, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	within(t, "the handler is replayed nothing", time.Minute, inf.replayed)
	close(src.begin)
	within(t, "the handler's first call", time.Minute, func() bool { return isClosed(h.entered) })
	before := usage().heap
	began := time.Now()
	most, at := 0, time.Now()
	within(t, "all changes are in the file", time.Hour, func() bool {
		if time.Since(at) > time.Second {
			most, at = max(most, usage().heap), time.Now()
		}
		return inf.Store().State().ResourceVersion == strconv.Itoa(n)
	})
	took := time.Since(began)
	if most = max(most, usage().heap); most > before+stallHeap {
		t.Errorf("%d MB of live heap before, %d MB with %d changes untold", before>>20, most>>20, n)
	}
	size := db.Size()
	began = time.Now()
	close(h.release)
	last := map[string]int{}
	for i := max(0, n-stallKeys); i < n; i++ {
		_, o := stallChange(i)
		last[o.Name] = i / stallKeys
	}
	within(t, "everything is told", time.Hour, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for name, turn := range last {
			if got, ok := h.turns[name]; !ok || got != turn {
				return false
			}
		}
		return true
	})
	switch told := h.told.Load(); {
	case h.collapse && told == int64(n):
		t.Error("nothing was collapsed")
	case !h.collapse && told != int64(n):
		t.Errorf("%d events of %d changes", told, n)
	}
	t.Logf("%d changes in %v: live heap %.1f MB before, %.1f MB at most; the file had %d MB; %d events told in %v",
		n, took.Round(time.Millisecond), float64(before)/1e6, float64(most)/1e6, size>>20, h.told.Load(),
		time.Since(began).Round(time.Millisecond))
}

// changes is a source of n changes, one after the other.
type changes struct {
	n     int
	next  atomic.Int64
	begin chan struct{} // closed when the first one may come
}

func (c *changes) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (kruntime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(c.next.Load(),
				10)}}, nil
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			ch := make(chan watch.Event)
			ctx, cancel := context.WithCancel(ctx)
			w := watch.NewProxyWatcher(ch)
			context.AfterFunc(ctx, w.Stop)
			go func() {
				defer cancel()
				defer close(ch)
				select {
				case <-c.begin:
				case <-w.StopChan():
					return
				}
				for {
					n := int(c.next.Load())
					if n == c.n {
						<-w.StopChan()
						return
					}
					typ, o := stallChange(n)
					select {
					case ch <- watch.Event{Type: typ, Object: o}:
						c.next.Add(1)
					case <-w.StopChan():
						return
					}
				}
			}()
			return w, nil
		},
	}
}
