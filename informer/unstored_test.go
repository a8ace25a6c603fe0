package informer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// faults are functions of the program that fail for a while: the transform, by
// an error or a panic, and an index function.
type faults struct {
	transform atomic.Bool
	index     atomic.Bool
	panics    atomic.Bool
	name      atomic.Value // of the object that they fail on; "": all
}

func (f *faults) fails(which *atomic.Bool, obj any) error {
	if name, _ := f.name.Load().(string); !which.Load() || name != "" && obj.(*corev1.ConfigMap).Name != name {
		return nil
	}
	if f.panics.Load() {
		panic("by the program, on purpose")
	}
	return errors.New("the program's function fails")
}

// underData is an index that changes with each update.
const underData = "data"

func (f *faults) options() Options {
	return Options{
		TransformVersion: "1",
		Transform:        func(obj any) (any, error) { return obj, f.fails(&f.transform, obj) },
		Indexers: cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
			underData: func(obj any) ([]string, error) {
				return []string{obj.(*corev1.ConfigMap).Data["data"]}, f.fails(&f.index, obj)
			},
		},
		IndexVersions: map[string]string{underData: "1"},
	}
}

// passed waits until the file has the server's version.
func (l *life) passed() *life {
	l.t.Helper()
	eventually(l.t, "at the server's version", func() bool {
		l.inf.store.Feed.Flush()
		return l.inf.Store().State().ResourceVersion == fmt.Sprint(l.sim.Revision())
	})
	return l
}

// crashed continues with the present file.
func (l *life) crashed() {
	l.t.Helper()
	s, err := l.db.Snapshot()
	if err != nil {
		l.t.Fatal(err)
	}
	file, err := io.ReadAll(s)
	if err := errors.Join(err, s.Close()); err != nil {
		l.t.Fatal(err)
	}
	l.end()
	if err := os.WriteFile(l.path, file, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// TestTransformFailsOnce: the resume point passes an event whose object the transform
// refused. The next life, in which the transform works, has the object and tells the
// handlers, although nothing changes any more.
func TestTransformFailsOnce(t *testing.T) {
	for _, how := range []string{"error", "panic", "crash", "expired", "deleted", "recreated"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			w.create("a", "1")
			w.create("b", "1")
			f, r := &faults{}, newRecorder(t)
			l := w.live(f.options(), r).run().synced().equal()
			r.expect("initial a", "initial b")
			f.panics.Store(how == "panic")
			f.transform.Store(true)
			w.update("a", "2")
			w.create("new", "1")
			l.passed()
			if how == "crash" {
				l.crashed()
			} else {
				l.end()
			}
			f.transform.Store(false)
			want := []string{"a", "b", "new"}
			switch how {
			case "expired":
				if err := w.sim.Restart(kubesim.RestartOptions{}); err != nil {
					t.Fatal(err)
				}
			case "deleted":
				w.delete("a")
				w.delete("new")
				want = []string{"b"}
			case "recreated":
				w.delete("a")
				w.create("a", "3")
			}
			w.live(f.options(), r).run().synced().equal()
			eventually(t, "told of all", func() bool {
				names := r.names()
				r.mu.Lock()
				defer r.mu.Unlock()
				a := r.there["a"]
				return slices.Equal(names, want) && (how == "deleted" || a != nil && a.Data["data"] != "1")
			})
		})
	}
}

// TestTransformFailsInAList: the same as TestTransformFailsOnce, for an object of a list.
func TestTransformFailsInAList(t *testing.T) {
	for _, expired := range []bool{false, true} {
		t.Run(fmt.Sprint("expired again ", expired), func(t *testing.T) {
			w := newWorld(t)
			w.create("a", "1")
			f, r := &faults{}, newRecorder(t)
			w.live(f.options(), r).run().synced().equal().end()
			w.update("a", "2")
			w.create("b", "1")
			if err := w.sim.Restart(kubesim.RestartOptions{}); err != nil {
				t.Fatal(err)
			}
			f.transform.Store(true)
			l := w.live(f.options(), r).run()
			eventually(t, "relisted", func() bool { return l.inf.State().LastRelist != "" })
			l.passed().end()
			f.transform.Store(false)
			if expired {
				if err := w.sim.Restart(kubesim.RestartOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.live(f.options(), r).run().synced().equal()
			eventually(t, "told of all", func() bool { return slices.Equal(r.names(), []string{"a", "b"}) })
		})
	}
}

// TestTransformRecovers: in the same life, too.
func TestTransformRecovers(t *testing.T) {
	w := newWorld(t)
	w.create("a", "1")
	f, r := &faults{}, newRecorder(t)
	l := w.live(f.options(), r).run().synced().equal()
	f.transform.Store(true)
	w.update("a", "2")
	w.create("b", "1")
	l.passed()
	if st := l.inf.State(); st.Degraded == "" {
		t.Errorf("%+v", st)
	}
	f.transform.Store(false)
	l.equal()
	eventually(t, "told of all", func() bool { return slices.Equal(r.names(), []string{"a", "b"}) })
	eventually(t, "nothing is degraded", func() bool { return l.inf.State().Degraded == "" })
}

// TestNotSyncedUntransformed: as with client-go's informer, a first list with an object
// that the transform refuses is not a sync, and is read again.
func TestNotSyncedUntransformed(t *testing.T) {
	w := newWorld(t)
	w.create("a", "1")
	w.create("b", "1")
	f := &faults{}
	f.name.Store("b")
	f.transform.Store(true)
	// The same with a stock informer.
	var tried atomic.Int64
	stock := cache.NewSharedIndexInformer(paged{listWatch(w.config())}, &corev1.ConfigMap{}, 0, cache.Indexers{})
	if err := stock.SetTransform(func(obj any) (any, error) {
		err := f.fails(&f.transform, obj)
		if err != nil {
			tried.Add(1)
		}
		return obj, err
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { stock.Run(stop) })
	defer func() { close(stop); running.Wait() }()
	l := w.live(f.options()).run()
	eventually(t, "listed", func() bool { return l.inf.State().LastRelist != "" && tried.Load() > 1 })
	l.passed()
	if l.inf.HasSynced() || stock.HasSynced() {
		t.Fatalf("synced: ours %v, client-go's %v", l.inf.HasSynced(), stock.HasSynced())
	}
	f.transform.Store(false)
	l.synced().equal()
	eventually(t, "client-go's synced", stock.HasSynced)
}

// TestIndexFunctionFailsOnce: an object whose index function failed is stored without
// values for that index, and gets them in the next life, without a request for it.
func TestIndexFunctionFailsOnce(t *testing.T) {
	for _, panics := range []bool{false, true} {
		for _, how := range []string{"watch", "list", "first list", "crash"} {
			t.Run(fmt.Sprint(how, " panics ", panics), func(t *testing.T) {
				w := newWorld(t)
				f, r := &faults{}, newRecorder(t)
				f.panics.Store(panics)
				w.create("a", "1")
				if how != "first list" {
					w.live(f.options(), r).run().synced().equal().end()
				}
				f.index.Store(true)
				w.update("a", "2")
				w.create("b", "2")
				if how == "list" {
					if err := w.sim.Restart(kubesim.RestartOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				l := w.live(f.options(), r).run().synced().equal()
				indexed := func(index, value string) int {
					objs, err := l.inf.GetIndexer().ByIndex(index, value)
					if err != nil {
						t.Fatal(err)
					}
					return len(objs)
				}
				if n := indexed(cache.NamespaceIndex, "default"); n != 2 {
					t.Errorf("%d objects under the other index", n)
				}
				if n := indexed(underData, "1") + indexed(underData, "2"); n != 0 {
					t.Errorf("%d objects have values", n)
				}
				l.passed()
				if how == "crash" {
					l.crashed()
				} else {
					l.end()
				}
				f.index.Store(false)
				w.sim.ResetRequests()
				l = w.live(byBookmark(f.options()), r)
				eventually(t, "the objects have values in the next life", func() bool {
					return indexed(underData, "2") == 2
				})
				l.run().synced().equal()
				for _, req := range w.sim.Requests() {
					if req.FullRead() {
						t.Errorf("read for an index: %+v", req)
					}
				}
			})
		}
	}
}

// TestTransformOfAnotherType: an object of another type from a transform cannot be
// stored. The informer says so and does not sync.
func TestTransformOfAnotherType(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.create(fmt.Sprint("cm", i))
	}
	r := newRecorder(t)
	w.live(Options{}, r).run().synced().equal().replayed().end()
	l := w.live(Options{TransformVersion: "1", Transform: func(any) (any, error) {
		return &corev1.Secret{}, nil
	}}, r).run()
	eventually(t, "degraded", func() bool {
		return strings.Contains(l.inf.State().Degraded, "returned *v1.Secret, and the file keeps *v1.ConfigMap")
	})
	if l.inf.HasSynced() {
		t.Error("synced")
	}
	l.end()
	if n := len(r.names()); n != 20 {
		t.Errorf("told that all but %d are gone", n)
	}
	w.live(Options{}, r).run().synced().equal()
}

// TestRefusedForEver: an object that the transform always refuses is listed again
// after a second, two, four, up to ten minutes, however often it changes, and
// holds up nothing else.
func TestRefusedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a", "1")
		w.create("b", "1")
		f := &faults{}
		f.name.Store("a")
		l := w.live(f.options()).run()
		after(10 * time.Second)
		if !l.inf.HasSynced() {
			t.Fatal("not synced")
		}
		f.transform.Store(true)
		w.sim.ResetRequests()
		for i := range 3600 {
			w.update("a", fmt.Sprint(i))
			if i%600 == 0 {
				w.update("b", fmt.Sprint(i))
				after(500 * time.Millisecond)
				if obj, _, err := l.inf.GetStore().GetByKey("default/b"); err != nil ||
					obj.(*corev1.ConfigMap).Data["data"] != fmt.Sprint(i) {
					t.Fatalf("b is held up: %v %v", obj, err)
				}
			}
			time.Sleep(time.Second) // on the bubble's clock, which takes no time: an hour is seen second by second
		}
		st := l.inf.State()
		if n := kubesim.CostOf(w.sim.Requests()).FullReads; n < 12 || n > 15 {
			t.Errorf("%d lists in an hour", n)
		}
		if st.Unstored != 1 || st.Degraded == "" || !l.inf.HasSynced() {
			t.Errorf("%+v", st)
		}
		f.transform.Store(false)
		time.Sleep(11 * time.Minute) // on the bubble's clock, which takes no time: the longest backoff is ten minutes
		l.equal()
		if st := l.inf.State(); st.Unstored != 0 || st.Degraded != "" {
			t.Errorf("%+v", st)
		}
		// The next one is tried again after a second.
		f.transform.Store(true)
		w.update("a", "later")
		// on the bubble's clock, which takes no time: the object has come, and is not tried again
		// yet
		time.Sleep(500 * time.Millisecond) // on the bubble's clock, see above
		f.transform.Store(false)
		time.Sleep(time.Second) // on the bubble's clock, which takes no time: the first backoff is a second
		l.equal()
		l.end()
	})
}

// paged keeps a stock Reflector from streaming the first list: it would leave out refused
// objects of a streamed list for good.
type paged struct{ cache.ListerWatcher }

func (paged) IsWatchListSemanticsUnSupported() bool { return true }

// begin makes a function fail on the objects of one key, or of all.
func (f *faults) begin(which *atomic.Bool, o op) {
	f.panics.Store(o.n%2 == 0)
	name := ""
	if o.n < 6 {
		name = fmt.Sprint("o", o.key)
	}
	f.name.Store(name)
	which.Store(true)
}

func (f *faults) cure() {
	f.transform.Store(false)
	f.index.Store(false)
}

// nothingNoted holds when all functions have succeeded since the start of a life: nothing
// is missing in the file, and each index equals a recomputed one. An own write can make
// the store equal to the server before the list that removes the note of the object.
func (m *model) nothingNoted() {
	// between two looks: there is no signal to wait for
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) { // between two looks, see above
		st, degraded := m.inf.Store().State(), m.inf.State().Degraded
		if st.Unstored == 0 && st.Unindexed == 0 && degraded == "" {
			break
		}
		if time.Now().After(end) {
			m.t.Fatalf("noted: %+v, %q", st, degraded)
		}
	}
	for _, o := range m.server.objects() {
		objs, err := m.inf.GetIndexer().ByIndex(underData, o.Data["data"])
		if err != nil || !slices.ContainsFunc(objs, func(is any) bool {
			return is.(*corev1.ConfigMap).Name == o.Name
		}) {
			m.t.Fatalf("%s is not under its value: %v", o.Name, err)
		}
	}
}
