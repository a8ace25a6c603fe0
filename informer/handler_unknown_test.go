package informer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// fed is a ListerWatcher whose lists and events a test gives.
type fed struct {
	mu     sync.Mutex
	list   []*corev1.ConfigMap
	rv     string
	watch  *watch.FakeWatcher
	opened chan string // versions at which watches were opened
}

func newFed(rv string, list ...*corev1.ConfigMap) *fed {
	return &fed{rv: rv, list: list, opened: make(chan string, 100)}
}

func (f *fed) List(metav1.ListOptions) (runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: f.rv}}
	for _, o := range f.list {
		l.Items = append(l.Items, *o.DeepCopy())
	}
	return l, nil
}

func (f *fed) Watch(o metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = watch.NewFakeWithChanSize(100, false)
	f.opened <- o.ResourceVersion
	return f.watch, nil
}

// IsWatchListSemanticsUnSupported makes client-go list.
func (f *fed) IsWatchListSemanticsUnSupported() bool { return true }

// send brings events over the watch that is open.
func (f *fed) send(evs ...watch.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range evs {
		f.watch.Action(ev.Type, ev.Object.DeepCopyObject())
	}
}

// breaks ends the watch; the argument is listed from then on.
func (f *fed) breaks(rv string, list ...*corev1.ConfigMap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv, f.list = rv, list
	f.watch.Stop()
}

func versioned(name, uid, rv string) *corev1.ConfigMap {
	o := cm(name)
	o.UID, o.ResourceVersion = types.UID(uid), rv
	return o
}

func gone(o *corev1.ConfigMap) watch.Event { return watch.Event{Type: watch.Deleted, Object: o} }

func came(o *corev1.ConfigMap) watch.Event { return watch.Event{Type: watch.Added, Object: o} }

// script keeps the changes that it is told, and their order.
type script struct {
	mu   sync.Mutex
	told []string
}

func (s *script) note(what string, obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		what, obj = what+"?", d.Obj
	}
	o := obj.(*corev1.ConfigMap)
	s.told = append(s.told, fmt.Sprintf("%s%s@%s", what, o.Name, o.ResourceVersion))
}

func (s *script) OnAdd(o any, _ bool)  { s.note("+", o) }
func (s *script) OnUpdate(_, o any)    { s.note("~", o) }
func (s *script) OnDelete(o any)       { s.note("-", o) }
func (s *script) String() string       { s.mu.Lock(); defer s.mu.Unlock(); return strings.Join(s.told, " ") }
func (s *script) has(what string) bool { return slices.Contains(strings.Fields(s.String()), what) }

// of returns the changes it was told. A durable handler is told keys in any order, and of an
// object that came and went perhaps only the delete.
func (s *script) of(kind string) string { return ordered(kind, s.String()) }

func ordered(kind, told string) string {
	if kind != "durable" {
		return told
	}
	all := slices.DeleteFunc(strings.Fields(told), func(what string) bool { return what == "+y@12" })
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(nameIn(a), nameIn(b)) })
	return strings.Join(all, " ")
}

func nameIn(told string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(told, "+~-?"), "@")
	return name
}

func (s *script) HandleEvent(_ context.Context, e Event) error {
	each(e, func(typ cache.DeltaType, obj any) {
		s.note(map[cache.DeltaType]string{cache.Added: "+", cache.Updated: "~", cache.Deleted: "-"}[typ], obj)
	})
	return nil
}

// feeding runs an informer until it has synced, and ours until its handlers have been
// told all objects. It returns a function that ends it.
func feeding(t *testing.T, inf cache.SharedIndexInformer) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(end)
	eventually(t, "synced", inf.HasSynced)
	if ours, ok := inf.(*Informer); ok {
		eventually(t, "replayed", ours.replayed)
	}
	return end
}

func overFed(t *testing.T, path string, f *fed) (*boltstore.DB, *Informer) {
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r, err := db.Check(); !errors.Is(err, boltstore.ErrClosed) && (err != nil || !r.Sound()) {
			t.Errorf("%+v %v", r, err)
		}
		_ = db.Close()
	})
	inf, err := NewSharedIndexInformer(db, f, &corev1.ConfigMap{},
		Options{Reflector: reflector.Options{Source: &boltstore.Source{Cluster: "c", Version: "v1",
			Resource: "configmaps", Form: boltstore.FormTyped}}})
	if err != nil {
		t.Fatal(err)
	}
	return db, inf
}

// TestUnknownDeleteIsTold: handlers of all kinds are told the DELETED of an object that
// the informer has never held, as client-go's are. A delete that comes again after a
// broken watch is not told a second time, nor is one that a list has told.
func TestUnknownDeleteIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	f, stockFed := newFed("10", versioned("a", "a", "9")), newFed("10", versioned("a", "a", "9"))
	_, inf := overFed(t, path, f)
	plain, durable, stock := &script{}, &script{}, &script{}
	if _, err := inf.AddEventHandler(plain); err != nil {
		t.Fatal(err)
	}
	if _, err := inf.AddDurableHandler("d", durable, DurableOptions{}); err != nil {
		t.Fatal(err)
	}
	beside := cache.NewSharedIndexInformer(stockFed, &corev1.ConfigMap{}, 0, cache.Indexers{})
	if _, err := beside.AddEventHandler(stock); err != nil {
		t.Fatal(err)
	}
	feeding(t, inf)
	feeding(t, beside)
	all := []watch.Event{gone(versioned("x", "x", "11")), came(versioned("y", "y", "12")),
		gone(versioned("y", "y", "13")), gone(versioned("z", "z", "14")), came(versioned("end", "end", "15"))}
	for _, f := range []*fed{f, stockFed} {
		<-f.opened
		f.send(all...)
	}
	const want = "+a@9 -x@11 +y@12 -y@13 -z@14 +end@15"
	for name, s := range map[string]*script{"plain": plain, "durable": durable, "stock": stock} {
		eventually(t, name, func() bool { return s.has("+end@15") && (name == "stock" || s.has("-y@13")) })
	}
	if got := stock.String(); got != want {
		t.Errorf("client-go: %s", got)
	}
	for name, s := range map[string]*script{"plain": plain, "durable": durable} {
		if got := s.of(name); got != ordered(name, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	// A watch that repeats earlier events.
	f.breaks("15", versioned("a", "a", "9"), versioned("end", "end", "15"))
	<-f.opened
	f.send(all[0], all[2], all[3], gone(versioned("w", "w", "16")), gone(versioned("w", "w", "16")),
		came(versioned("end", "end2", "17")))
	for name, s := range map[string]*script{"plain": plain, "durable": durable} {
		eventually(t, name, func() bool { return s.has("+end@17") })
		if got, want := s.of(name), ordered(name, want+" -w@16 -?end@15 +end@17"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestUnknownDeleteOverLives: such a delete is owed until it has been told. A watch that
// a later life resumes does not cause it to be told once more.
func TestUnknownDeleteOverLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	f := newFed("10", versioned("a", "a", "9"))
	plain, durable := &script{}, &script{}
	live := func(h DurableHandler) func() {
		db, inf := overFed(t, path, f)
		if _, err := inf.AddEventHandler(plain); err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddDurableHandler("d", h, DurableOptions{}); err != nil {
			t.Fatal(err)
		}
		end := feeding(t, inf)
		<-f.opened
		return func() {
			end()
			if r, err := db.Check(); err != nil || !r.Sound() {
				t.Errorf("%+v %v", r, err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	tried := make(chan struct{}, 100)
	end := live(DurableHandlerFunc(func(_ context.Context, e Event) error {
		if len(e.Deleted) > 0 {
			tried <- struct{}{}
			return errors.New("not now")
		}
		return nil
	}))
	f.send(gone(versioned("x", "x", "11")))
	<-tried
	eventually(t, "told", func() bool { return plain.has("-x@11") })
	end()
	f.list, f.rv = []*corev1.ConfigMap{versioned("a", "a", "9")}, "11"
	end = live(durable)
	f.send(gone(versioned("x", "x", "11")), gone(versioned("y", "y", "12")))
	for name, s := range map[string]*script{"plain": plain, "durable": durable} {
		eventually(t, name, func() bool { return s.has("-y@12") && (name == "plain" || s.has("-x@11")) })
	}
	end()
	f.rv = "12"
	end = live(durable)
	f.send(gone(versioned("x", "x", "11")), gone(versioned("y", "y", "12")), came(versioned("end", "end", "13")))
	for name, s := range map[string]*script{"plain": plain, "durable": durable} {
		eventually(t, name, func() bool { return s.has("+end@13") })
	}
	end()
	if got := plain.String(); got != "+a@9 -x@11 +a@9 -y@12 +a@9 +end@13" {
		t.Errorf("plain: %s", got)
	}
	if got := durable.of("durable"); got != "+end@13 -x@11 -y@12" {
		t.Errorf("durable: %s", got)
	}
}

// TestUnknownDeleteIsPending: a durable handler that fails is told it later, too.
func TestUnknownDeleteIsPending(t *testing.T) {
	f := newFed("10", versioned("a", "a", "9"))
	_, inf := overFed(t, filepath.Join(t.TempDir(), "test.db"), f)
	durable := &script{}
	open := make(chan struct{})
	h := DurableHandlerFunc(func(ctx context.Context, e Event) error {
		if e.Reset {
			return nil
		}
		select {
		case <-open:
			return durable.HandleEvent(ctx, e)
		default:
			return errors.New("not now")
		}
	})
	if _, err := inf.AddDurableHandler("d", h, DurableOptions{}); err != nil {
		t.Fatal(err)
	}
	feeding(t, inf)
	<-f.opened
	for rv := 11; rv <= 30; rv++ {
		name := fmt.Sprint("x", rv)
		f.send(gone(versioned(name, name, fmt.Sprint(rv))))
	}
	eventually(t, "pending", func() bool {
		hs, err := inf.store.Handlers()
		return err == nil && len(hs) == 1 && hs[0].Deleted == 20
	})
	close(open)
	eventually(t, "told", func() bool { return len(strings.Fields(durable.String())) >= 21 })
	if got := durable.String(); strings.Count(got, "-") != 20 || strings.Contains(got, "?") {
		t.Error(got)
	}
}
