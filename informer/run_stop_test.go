package informer

import (
	"bytes"
	"context"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/leaktest"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/reflector"
)

// deaf is a list/watch whose functions ignore their context: the nth call
// blocks until it is let go.
type deaf struct {
	blocks func(what string, o metav1.ListOptions) bool

	mu      sync.Mutex
	once    sync.Once
	blocked chan struct{} // closed by the first call that blocks
	letGo   chan struct{}
	late    sync.WaitGroup
	fake    *watch.FakeWatcher // of the last watch
}

func newDeaf(blocks func(what string, o metav1.ListOptions) bool) *deaf {
	return &deaf{blocks: blocks, blocked: make(chan struct{}), letGo: make(chan struct{})}
}

func (d *deaf) call(what string, o metav1.ListOptions) {
	d.mu.Lock()
	blocks := d.blocks(what, o)
	d.mu.Unlock()
	if blocks {
		d.late.Add(1)
		defer d.late.Done()
		d.once.Do(func() { close(d.blocked) })
		<-d.letGo
	}
}

func (d *deaf) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			d.call("list", o)
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			if o.FieldSelector != "" {
				return list, nil
			}
			for _, name := range []string{"a", "b"} {
				obj := cm(name)
				obj.UID, obj.ResourceVersion = "u-"+obj.UID, "5"
				list.Items = append(list.Items, *obj)
			}
			if o.Limit > 0 && o.Continue == "" {
				list.Continue, list.Items = "more", list.Items[:1]
			} else if o.Continue != "" {
				list.Items = list.Items[1:]
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil { // client-go lists then
				return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
			}
			d.call("watch", o)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.fake = watch.NewFake()
			return d.fake, nil
		},
	}
}

// liveOnce runs the informer until it has synced.
func liveOnce(t *testing.T, inf *Informer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	eventually(t, "synced", inf.HasSynced)
	cancel()
	<-done
}

// TestStopDoesNotWaitForCalls: Run returns when its context ends, although a list or
// watch function never does. A later result of that function is dropped. client-go waits
// for a watch function, and not for a list.
func TestStopDoesNotWaitForCalls(t *testing.T) {
	is := func(name string, cond func(metav1.ListOptions) bool) func(string, metav1.ListOptions) bool {
		return func(what string, o metav1.ListOptions) bool { return what == name && cond(o) }
	}
	for _, tc := range []struct {
		name   string
		blocks func(string, metav1.ListOptions) bool
		stock  bool // client-go's returns, too
	}{
		{"first page", is("list", func(o metav1.ListOptions) bool { return o.Continue == "" }), true},
		{"second page", is("list", func(o metav1.ListOptions) bool { return o.Continue != "" }), true},
		{"watch", is("watch", func(metav1.ListOptions) bool { return true }), false},
		{"question", func(what string, o metav1.ListOptions) bool {
			return what == "list" && o.FieldSelector != ""
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := func(inf cache.SharedIndexInformer, d *deaf) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); inf.RunWithContext(ctx) }()
				wait := func(what string, c <-chan struct{}) {
					t.Helper()
					select {
					case <-c:
					case <-time.After(time.Minute):
						t.Fatal(what)
					}
				}
				wait("nothing blocks", d.blocked)
				cancel()
				wait("Run does not return", done)
				close(d.letGo)
				d.late.Wait()
			}
			path := filepath.Join(t.TempDir(), "wake.db")
			open := func() *boltstore.DB {
				db, err := boltstore.Open(path, boltstore.Options{Window: 1})
				if err != nil {
					t.Fatal(err)
				}
				return db
			}
			db := open()
			o := Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
				Form: boltstore.FormTyped}}}
			if tc.name == "question" { // of a life that resumes
				inf, err := NewSharedIndexInformer(db, newDeaf(func(string, metav1.ListOptions) bool {
					return false
				}).listWatch(), &corev1.ConfigMap{}, o)
				if err != nil {
					t.Fatal(err)
				}
				liveOnce(t, inf)
			}
			d := newDeaf(tc.blocks)
			inf, err := NewSharedIndexInformer(db, d.listWatch(), &corev1.ConfigMap{}, o)
			if err != nil {
				t.Fatal(err)
			}
			before := inf.Store().State()
			run(inf, d)
			// The source is free, and a call that has returned late has changed
			// nothing.
			again, err := NewSharedIndexInformer(db, d.listWatch(), &corev1.ConfigMap{}, o)
			if err != nil {
				t.Fatal(err)
			}
			st := again.Store().State()
			if tc.name != "watch" && (st.Objects != before.Objects || st.ResourceVersion != before.ResourceVersion) {
				t.Errorf("%d objects at %q, and %d at %q before", st.Objects, st.ResourceVersion, before.Objects,
					before.ResourceVersion)
			}
			if tc.name == "watch" {
				eventually(t, "the late watch is stopped", func() bool {
					d.mu.Lock()
					defer d.mu.Unlock()
					return d.fake != nil && d.fake.IsStopped()
				})
			}
			again.store.Release()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if tc.stock {
				d := newDeaf(tc.blocks)
				run(cache.NewSharedIndexInformer(d.listWatch(), &corev1.ConfigMap{}, 0, nil), d)
			}
		})
	}
}

// hangs is a watch whose channel Stop does not close.
type hangs struct{ c chan watch.Event }

func (h hangs) ResultChan() <-chan watch.Event { return h.c }
func (h hangs) Stop()                          {}

// TestStopLeavesNoGoroutine: Run leaves nothing behind, although the watch's channel
// stays open after Stop. client-go, which also stops reading it, runs beside it.
func TestStopLeavesNoGoroutine(t *testing.T) {
	lw := func() *cache.ListWatch {
		lw := newDeaf(func(string, metav1.ListOptions) bool { return false }).listWatch()
		asks := lw.WatchFuncWithContext
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if _, err := asks(ctx, o); err != nil {
				return nil, err
			}
			return hangs{make(chan watch.Event)}, nil
		}
		return lw
	}
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "warm.db"), boltstore.Options{Window: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}}}
	warm, err := NewSharedIndexInformer(db, lw(), &corev1.ConfigMap{}, o)
	if err != nil {
		t.Fatal(err)
	}
	liveOnce(t, warm)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, stock := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var inf cache.SharedIndexInformer = cache.NewSharedIndexInformer(lw(), &corev1.ConfigMap{}, 0, nil)
			if !stock {
				db, err := boltstore.Open(filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{Window: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = db.Close() }()
				if inf, err = NewSharedIndexInformer(db, lw(), &corev1.ConfigMap{}, o); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); inf.RunWithContext(ctx) }()
			after(20 * time.Second)
			cancel()
			<-done
			synctest.Wait()
			var all bytes.Buffer
			if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
				t.Fatal(err)
			}
			seen := 0
			for g := range strings.SplitSeq(all.String(), "\n\n") {
				if head, _, _ := strings.Cut(g, "\n"); !strings.Contains(head, "synctest bubble") {
					continue // of another test
				}
				seen++
				if strings.Contains(g, "kubewake/reflector.") || strings.Contains(g, "kubewake/informer.(") ||
					strings.Contains(g, "cache.(*Reflector)") {
					t.Errorf("stock %v: left behind:\n%s", stock, g)
				}
			}
			if seen == 0 {
				t.Error("not even the test's own goroutine is seen")
			}
		})
	}
}

// TestGoroutinesAfterRun: an informer that has run leaves none, also while its
// file stays open, and the next one on the same file works.
func TestGoroutinesAfterRun(t *testing.T) {
	w := newWorld(t)
	w.create("one")
	before := leaktest.Ours(nil)
	db, err := boltstore.Open(w.path, boltstore.Options{Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		inf, err := NewSharedIndexInformer(db, listWatch(w.config()), &corev1.ConfigMap{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan struct{}, 100)
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			told <- struct{}{}
		}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		<-told
		cancel()
		<-done
		leaktest.None(t, "after Run, with the file open,", before)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	leaktest.None(t, "after Close", before)
}
