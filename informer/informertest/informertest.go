// Package informertest is for unit tests of programs whose informers keep their objects
// in a file. With one more line, fake clientsets and client-go's FakeControllerSource
// work over a temporary file:
//
//	f := informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)
//	informertest.Wake(t, f, &corev1.Pod{})
//
// f := informertest.Must(dynamicinformer.NewDynamicSharedInformerFactory(client, 0,
// informertest.Open(t), informer.Options{}))
//
// inf := informertest.NewSharedIndexInformer(t, framework.NewFakeControllerSource(),
// &corev1.Pod{}, informer.Options{})
//
// In a testing/synctest bubble handlers have been told everything once synctest.Wait has
// returned, as with client-go's informers.
//
// To test a restart, wake two factories in turn over one file; see the example of [Open].
//
// A program that opens its file itself needs at most [ListerWatcher] from here, if it
// lists from something other than a clientset.
package informertest

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/informer/internal/stated"
	"github.com/kubewake/kubewake/reflector"
)

// Open opens a new file, which is closed and removed at the end of the test. Most of the
// few milliseconds that it takes are spent on the disk; with TMPDIR in memory they are
// saved. An informer that the test does not stop does no harm: from then on it reads
// nothing, and it ends when it is stopped.
func Open(t testing.TB) *boltstore.DB {
	t.Helper()
	// synctest.Wait does not wait for timers
	o := boltstore.Options{Durability: boltstore.DurabilityProcess, Window: -1}
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "informertest.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Log(err) // some informers still run, which is no failure with client-go either
		}
	})
	return db
}

// Wake is factory.Wake over a file of the test.
func Wake(t testing.TB, f any, types ...runtime.Object) {
	t.Helper()
	if err := factory.Wake(f, Open(t), factory.Options{}, types...); err != nil {
		t.Fatal(err)
	}
}

// NewSharedIndexInformer returns an informer over a file of the test. lw need not say
// what it lists.
func NewSharedIndexInformer(
	t testing.TB, lw cache.ListerWatcher, example runtime.Object, o informer.Options,
) *informer.Informer {
	t.Helper()
	inf, err := informer.NewSharedIndexInformer(Open(t), ListerWatcher(lw, example), example, o)
	if err != nil {
		t.Fatal(err)
	}
	return inf
}

// ListerWatcher returns lw with a statement that it lists all objects of example's type.
// Two of one type are the same list, so give each a file of its own.
func ListerWatcher(lw cache.ListerWatcher, example runtime.Object) cache.ListerWatcher {
	return stated.ListerWatcher(lw, stated.Source(stated.Guess(example), "", nil, reflector.FormOf(example)))
}

// Must returns v. It panics if there is an error.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
