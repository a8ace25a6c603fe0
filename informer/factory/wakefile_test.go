package factory_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/factory"
)

// TestWakeFile: a factory wakes from a path. While it shuts down, and afterwards, its
// listers answer, and the told changes are in the file.
func TestWakeFile(t *testing.T) {
	sim := simulator(t, pod("web", "a"), pod("web", "b"))
	path := filepath.Join(t.TempDir(), "test.db")
	f := informers.NewSharedInformerFactory(client(sim), 0)
	if err := factory.WakeFile(f, factory.File{Path: path}, &corev1.Pod{}); err != nil {
		t.Fatal(err)
	}
	pods := f.Core().V1().Pods()
	told := &calls{}
	if _, err := pods.Informer().AddEventHandler(told); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	f.StartWithContext(ctx)
	f.WaitForCacheSync(ctx.Done())
	eventually(t, "both are told", func() bool { return len(told.sorted()) == 2 })
	stop()
	f.Shutdown()
	if got, err := pods.Lister().List(labels.Everything()); err != nil ||
		!slices.Equal(names(got), []string{"web/a", "web/b"}) {
		t.Errorf("after the end: %v, %v", names(got), err)
	}
	if _, err := boltstore.Open(path, boltstore.Options{LockTimeout: -1}); !errors.Is(err, boltstore.ErrLocked) {
		t.Errorf("the file is open until the process ends: %v", err)
	}
	inf, err := factory.Informer(f, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if st := inf.Store().State(); st.Told != st.Seq || st.Objects != 2 {
		t.Errorf("in the file: %+v", st)
	}
}

// TestWakeFileAgain: two factories of a process share a file, and a program that is run twice in
// a process, as by tests, wakes the second time. So it does if its folder was removed meanwhile.
func TestWakeFileAgain(t *testing.T) {
	sim := simulator(t, pod("web", "a"), pod("web", "b"))
	dir := filepath.Join(t.TempDir(), "files")
	run := func() (woken, synced int) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "test.db")
		f := informers.NewSharedInformerFactory(client(sim), 0)
		other := informers.NewSharedInformerFactoryWithOptions(client(sim), 0, informers.WithNamespace("web"))
		for _, f := range []informers.SharedInformerFactory{f, other} {
			if err := factory.WakeFile(f, factory.File{Path: path}, &corev1.Pod{}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		for _, f := range []informers.SharedInformerFactory{f, other} {
			woken += len(f.Core().V1().Pods().Informer().GetStore().List())
			f.StartWithContext(ctx)
			f.WaitForCacheSync(ctx.Done())
			synced += len(f.Core().V1().Pods().Informer().GetStore().List())
		}
		stop()
		f.Shutdown()
		other.Shutdown()
		return woken, synced
	}
	for life, want := range [][2]int{{0, 4}, {4, 4}, {0, 4}} {
		if life == 2 {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		if woken, synced := run(); woken != want[0] || synced != want[1] {
			t.Errorf("life %d: %d objects in the file, then %d; want %v", life, woken, synced, want)
		}
	}
}

// TestWakeFileFails: a file that no type wakes from is closed, and one that a type wakes
// from is not.
func TestWakeFileFails(t *testing.T) {
	sim := simulator(t)
	path := filepath.Join(t.TempDir(), "test.db")
	f := informers.NewSharedInformerFactory(client(sim), 0)
	f.Core().V1().Nodes().Informer() // cannot be woken any more
	if err := factory.WakeFile(f, factory.File{Path: path}, &corev1.Node{}); err == nil {
		t.Error("nodes wake")
	}
	if err := factory.WakeFile(f, factory.File{Path: path}); err == nil {
		t.Error("no type wakes")
	}
	if err := factory.WakeFile(f, factory.File{Path: path}, nil); err == nil ||
		!strings.Contains(err.Error(), "such as &corev1.Pod{}") {
		t.Errorf("no type: %v", err)
	}
	if _, err := factory.Informer(f, nil); err == nil || !strings.Contains(err.Error(), "such as &corev1.Pod{}") {
		t.Errorf("the informer of no type: %v", err)
	}
	if err := factory.WakeFile(f, factory.File{Path: filepath.Dir(path)}, &corev1.Pod{}); !errors.Is(err,
		boltstore.ErrForeign) {
		t.Errorf("a folder: %v", err)
	}
	if err := factory.WakeFile(f, factory.File{Path: path}, &corev1.Node{}, &corev1.Pod{}); err == nil {
		t.Error("nodes wake")
	}
	if _, err := boltstore.Open(path, boltstore.Options{LockTimeout: -1}); !errors.Is(err, boltstore.ErrLocked) {
		t.Errorf("pods wake from the file: %v", err)
	}
}
