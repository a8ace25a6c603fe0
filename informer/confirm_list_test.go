package informer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// TestNoStepBackAfterList: x came and went while the program was down. The list does not
// show it, equals the file, and confirms. The watch, which begins before that, still
// brings x: handlers are told of it, and no reader ever sees it.
func TestNoStepBackAfterList(t *testing.T) {
	for what, goOn := range map[string]func(w *handWatched){
		"a bookmark": func(w *handWatched) {
			w.brings(watch.Modified, "x", 7)
			w.brings(watch.Deleted, "x", 8)
			w.brings(watch.Bookmark, "", 9)
		},
		"an event": func(w *handWatched) {
			w.brings(watch.Deleted, "x", 8)
			w.brings(watch.Added, "b", 11)
		},
		"the watch ends": func(w *handWatched) {
			w.events.Stop()
			w.opens("6")
			w.brings(watch.Deleted, "x", 8)
			w.brings(watch.Bookmark, "", 9)
		},
		"the watch ends twice": func(w *handWatched) {
			w.brings(watch.Bookmark, "", 7)
			w.events.Stop()
			w.opens("7")
			w.brings(watch.Deleted, "x", 8)
			w.events.Stop()
			w.opens("8")
			w.brings(watch.Bookmark, "", 12)
		},
		"the version expires": func(w *handWatched) {
			st := apierrors.NewResourceExpired("too old").ErrStatus
			w.events.Action(watch.Error, &st)
			w.opens("9")
			w.told = append(w.told, "add x", "delete x") // a list shows neither
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := &handWatched{t: t}
			w.confirmedByList(func() {
				w.brings(watch.Added, "x", 6)
				goOn(w)
				eventually(t, "x has been told", func() bool { return slices.Contains(w.all(), "delete x") })
				if all := w.all(); all[0] != "add x" {
					t.Errorf("told %v", all)
				}
				w.look()
			})
		})
	}
}

// TestMoreThanIsHeld: if there are more changes than a queue holds back, a reader may see
// an object from before the list until its delete comes. Handlers are told everything in
// any case.
func TestMoreThanIsHeld(t *testing.T) {
	w := &handWatched{t: t, shown: true}
	w.confirmedByList(func() {
		shows := func() bool {
			_, there, err := w.inf.GetStore().GetByKey("default/x")
			if err != nil {
				t.Fatal(err)
			}
			return there
		}
		x := cmAt("x", 6)
		x.Data["data"] = strings.Repeat(" ", 600<<10) // more than 2 MiB with the decoded object
		w.events.Add(x)
		w.brings(watch.Bookmark, "", 6)
		if shows() {
			t.Error("what fits is not held")
		}
		w.brings(watch.Modified, "x", 7)
		eventually(t, "a reader sees x", shows)
		w.brings(watch.Deleted, "x", 8)
		eventually(t, "x is gone", func() bool { return !shows() })
		w.brings(watch.Bookmark, "", 9)
		eventually(t, "x has been told", func() bool {
			return slices.Equal(w.all(), []string{"add x", "update x", "delete x"})
		})
	})
}

// TestMetadataConfirmedByList: a list confirms a metadata informer, too. No bookmark comes,
// and nothing is read again.
func TestMetadataConfirmedByList(t *testing.T) {
	w := newWorldOf(t, kubesim.Options{NoBookmarks: true})
	w.create("a")
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	for life := range 2 {
		db, err := boltstore.Open(w.path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		client := metadata.NewForConfigOrDie(w.config()).Resource(maps)
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, o)
			},
			WatchFuncWithContext: client.Watch,
		}
		inf, err := NewSharedIndexInformer(db, lw, &metav1.PartialObjectMetadata{},
			Options{Reflector: reflector.Options{Confirm: reflector.ConfirmList}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		eventually(t, "synced", inf.HasSynced)
		if read := inf.State().Relists; life > 0 && len(read) > 0 {
			t.Errorf("read again: %v", read)
		}
		cancel()
		<-done
		other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("other", life)}}
		if err := errors.Join(db.Close(), w.sim.Create(other)); err != nil {
			t.Fatal(err)
		}
	}
}

// handWatched is an informer over one object, a, whose watch the test plays.
type handWatched struct {
	t       *testing.T
	at      string // the server's version
	watched chan string
	events  *watch.FakeWatcher
	inf     *Informer
	now     chan *watch.FakeWatcher
	handler cache.ResourceEventHandlerRegistration
	told    []string
	tell    chan string
	shown   bool // readers may see x
}

// confirmedByList calls life in a second life, once a list of version 9 has confirmed the
// file of version 5.
func (w *handWatched) confirmedByList(life func()) {
	w.t.Helper()
	w.watched = make(chan string, 10)
	path := filepath.Join(w.t.TempDir(), "test.db")
	w.at = "5"
	w.lives(path, func() { w.opens("5") })
	w.at = "9"
	w.lives(path, func() {
		w.opens("5")
		eventually(w.t, "a list confirms", w.handler.HasSynced) // and what the file had was told
		life()
	})
}

func (w *handWatched) lives(path string, life func()) {
	t := w.t
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.now, w.tell, w.told = make(chan *watch.FakeWatcher, 10), make(chan string, 100), nil
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: w.at}}
			if o.FieldSelector == "" {
				l.Items = []corev1.ConfigMap{*cmAt("a", 3)}
			}
			return l, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events := watch.NewFake()
			w.now <- events
			w.watched <- o.ResourceVersion
			return events, nil
		},
	}
	if w.inf, err = NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, Options{
		Reflector: reflector.Options{Confirm: reflector.ConfirmList,
			Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}}}); err != nil {
		t.Fatal(err)
	}
	tell := func(kind string, obj any) {
		if name := obj.(*corev1.ConfigMap).Name; name == "x" {
			w.look()
			w.tell <- kind + " " + name
		}
	}
	if w.handler, err = w.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell("add", obj) },
		UpdateFunc: func(_, obj any) { tell("update", obj) },
		DeleteFunc: func(obj any) { tell("delete", obj) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.inf.RunWithContext(ctx) }()
	life()
	cancel()
	<-done
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// opens waits for the next watch.
func (w *handWatched) opens(from string) {
	w.t.Helper()
	if rv := <-w.watched; rv != from {
		w.t.Errorf("watched from %q, not %q", rv, from)
	}
	w.events = <-w.now
}

// brings makes the watch send an event. When the event is accepted, and every change that
// may be committed is in the file, readers have a look.
func (w *handWatched) brings(typ watch.EventType, name string, rv int) {
	w.t.Helper()
	w.events.Action(typ, cmAt(name, rv))
	for range 2 { // the watch takes the second once the event has been accepted
		w.events.Action(watch.Bookmark, cm(""))
	}
	if err := w.inf.queue.Flush(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	w.look()
}

// look fails the test if readers see x.
func (w *handWatched) look() {
	w.t.Helper()
	if obj, there, err := w.inf.GetStore().GetByKey("default/x"); there && !w.shown || err != nil {
		w.t.Errorf("a step back: %v, %v", obj, err)
	}
}

// all is what handlers have been told of x.
func (w *handWatched) all() []string {
	for {
		select {
		case what := <-w.tell:
			w.told = append(w.told, what)
		default:
			return w.told
		}
	}
}

func cmAt(name string, rv int) *corev1.ConfigMap {
	o := cm(name)
	o.UID, o.ResourceVersion = types.UID("uid of "+name), fmt.Sprint(rv)
	return o
}
