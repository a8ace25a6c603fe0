package informer

import (
	"context"
	"errors"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestRemovedAndMadeAgain: a cache that removes an informer and asks for it again gets
// one over the file, although the first one is still ending. So does another cache of
// the same file.
func TestRemovedAndMadeAgain(t *testing.T) {
	t.Run("one cache", func(t *testing.T) { removedAndMadeAgain(t, false) })
	t.Run("another cache", func(t *testing.T) { removedAndMadeAgain(t, true) })
}

func removedAndMadeAgain(t *testing.T, another bool) {
	w := newWorld(t)
	w.create("a")
	m := w.managed()
	cfg := w.config()
	make := ForControllerRuntime(m.db, Options{})
	for range 3 {
		if another {
			make = ForControllerRuntime(m.db, Options{})
		}
		inf := make(typedMaps(cfg, ""), &corev1.ConfigMap{}, 0, byNamespace)
		if _, ok := inf.(*Informer); !ok {
			t.Fatal(m.db.Fallbacks())
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := start0(inf, ctx)
		t.Cleanup(func() { <-done })
		t.Cleanup(cancel)
		eventually(t, "synced", inf.HasSynced)
		go cancel() // as a cache does, in its own time
	}
}

// TestMadeAgainDuringACall: a handler of the first informer may read from the cache, whose
// lock is held while the second informer is made. So the second one does not wait for that
// call. Run of the first one does.
func TestMadeAgainDuringACall(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		madeAgainDuringACall(t, func(inf *Informer, call func()) error {
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { call() }})
			return err
		})
	})
	t.Run("durable", func(t *testing.T) {
		madeAgainDuringACall(t, func(inf *Informer, call func()) error {
			_, err := inf.AddDurableHandler("test", DurableHandlerFunc(func(context.Context, Event) error {
				call()
				return nil
			}), DurableOptions{})
			return err
		})
	})
}

func madeAgainDuringACall(t *testing.T, add func(inf *Informer, call func()) error) {
	w := newWorld(t)
	w.create("a")
	m := w.managed()
	cfg := w.config()
	again := make(chan struct{}, 100) // calls
	make := ForControllerRuntime(m.db, Options{})
	first := make(typedMaps(cfg, ""), &corev1.ConfigMap{}, 0, byNamespace).(*Informer)
	reads, unlock := context.WithCancel(context.Background())
	called, call := context.WithCancel(context.Background())
	if err := add(first, func() { call(); <-reads.Done() }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := start0(first, ctx)
	t.Cleanup(func() { <-done })
	t.Cleanup(unlock)
	eventually(t, "synced", first.HasSynced)
	<-called.Done()
	cancel()
	second, ok := make(typedMaps(cfg, ""), &corev1.ConfigMap{}, 0, byNamespace).(*Informer)
	if !ok {
		t.Fatal("not in the file:", m.db.Fallbacks())
	}
	told := newRecorder(t)
	if _, err := second.AddEventHandler(told); err != nil {
		t.Fatal(err)
	}
	if err := add(second, func() { again <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	start(t, second)
	told.expect("initial a")
	select {
	case <-again:
	case <-time.After(time.Minute):
		t.Error("the second handler is not told what the first one has not returned from")
	}
	select {
	case <-done:
		t.Error("the first one has ended during a call of its handler")
	default:
	}
	unlock()
	<-done
	w.create("b")
	told.expect("add b")
}

// TestLeaseWhileClaimed: whoever finds a source claimed can wait for the informer that is
// being made over it, also while that indexes the file's objects. A claim that fails leaves
// the lease of the informer that has the source, and none if there is no such informer.
func TestLeaseWhileClaimed(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	m := w.managed()
	lw, indexed := typedMaps(m.config(), ""), 0
	leased := func() (*lease, bool) {
		src, _, err := Options{}.Reflector.Identify(lw, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		l, ok := leases.Load(leaseKey{weak.Make(m.db), src.ID()})
		if !ok {
			return nil, false
		}
		return l.(*lease), true
	}
	for _, version := range []string{"1", "2"} { // the second one indexes what the file has
		o := Options{IndexVersions: map[string]string{"test": version},
			Indexers: cache.Indexers{"test": func(any) ([]string, error) {
				indexed++
				if _, ok := leased(); !ok {
					t.Error("no lease while objects are indexed")
				}
				return nil, nil
			}}}
		indexed = 0
		inf, err := NewSharedIndexInformer(m.db, lw, &corev1.ConfigMap{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if version == "2" && indexed == 0 {
			t.Error("nothing was indexed")
		}
		if _, err := NewSharedIndexInformer(m.db, lw, &corev1.ConfigMap{}, o); !errors.Is(err, boltstore.ErrClaimed) {
			t.Fatal(err)
		}
		if l, ok := leased(); !ok || l != inf.lease {
			t.Error("the second claim took the lease")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := start0(inf, ctx)
		eventually(t, "synced", inf.HasSynced)
		cancel()
		<-done
		if _, ok := leased(); ok {
			t.Error("a lease without an informer")
		}
	}
}

// TestLeaseOfTheOneThatClaims: of two informers that are made at once, one gets the source.
// Its lease takes the place of the other's, which may have been there first.
func TestLeaseOfTheOneThatClaims(t *testing.T) {
	m := newWorld(t).managed()
	lw := typedMaps(m.config(), "")
	src, _, err := Options{}.Reflector.Identify(lw, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	other := newLease(m.db, src)
	inf, err := NewSharedIndexInformer(m.db, lw, &corev1.ConfigMap{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	other.end() // since its claim fails
	if l, _ := leases.Load(other.key); l != inf.lease {
		t.Error("the informer that has the source has no lease")
	}
}

// TestOverBeforeItWasSeenEnding: an informer that ends at once may be over before it is
// noted that it was told to end. Its source is free all the same.
func TestOverBeforeItWasSeenEnding(t *testing.T) {
	m := newWorld(t).managed()
	inf := ForControllerRuntime(m.db, Options{})(typedMaps(m.config(), ""), &corev1.ConfigMap{}, 0,
		byNamespace).(*Informer)
	inf.store.Release()
	inf.lease.end()
	if !inf.lease.ends() {
		t.Error("the source is not free")
	}
}

// TestNoLeaseOnceOver: who has waited for an informer finds no lease of it. Otherwise the next
// informer would leave that lease in place of its own, and be unknown while it claims.
func TestNoLeaseOnceOver(t *testing.T) {
	m := newWorld(t).managed()
	for range 1000 {
		l, left := newLease(m.db, boltstore.Source{Version: "v1", Resource: "configmaps"}), make(chan bool)
		go func() {
			<-l.over
			_, ok := leases.Load(l.key)
			left <- ok
		}()
		l.end()
		if <-left {
			t.Fatal("a lease of an informer that is over")
		}
	}
}

func start0(inf cache.SharedIndexInformer, ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	return done
}
