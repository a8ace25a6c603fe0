package boltstore

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// TestConcurrentCloses: once any call of Close returns, the file is closed, with all
// pending changes in it.
func TestConcurrentCloses(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	if err := s.Add(configMap("a", "one", 1, nil)); err != nil {
		t.Fatal(err)
	}
	s.Release()
	begun, end := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(begun) })
	db.h.writeMu.Lock()
	db.h.hook = func(*bolt.Tx) error {
		first()
		<-end
		return nil
	}
	db.h.writeMu.Unlock()
	var closing, closed sync.WaitGroup
	closer := func() {
		closing.Done()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if db.h.now.Load() != nil {
			t.Error("the file is open after Close")
		}
	}
	closing.Add(1)
	closed.Go(closer)
	<-begun
	closing.Add(20)
	for range 20 {
		closed.Go(closer)
	}
	closing.Wait()
	for range 1000 {
		runtime.Gosched() // a Close that does not wait has returned by now
	}
	close(end)
	closed.Wait()
	db = openTest(t, path, Options{})
	if n := len(claimTest(t, db, Claim{}).ListKeys()); n != 1 {
		t.Errorf("%d objects", n)
	}
}

// TestNothingIsWrittenOnceClosed: once the file says that it was closed in order, nothing
// more is written. Without syncs a power failure could otherwise leave a part of it in a
// file that counts as sound.
func TestNothingIsWrittenOnceClosed(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Durability: DurabilityProcess})
	s := claimTest(t, db, Claim{})
	s.Feed.Attach(&testProducer{})
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ kruntime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	db.keeper.wg.Go(func() { // Close waits for it
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if h, ok := headerOf(path); ok && h.Clean {
				break
			}
		}
		_, err := r.Commit("2", time.Now())
		late <- err
	})
	if err := db.Close(); err == nil {
		t.Error("Close does not name the source that was in use")
	}
	if err := <-late; !errors.Is(err, ErrClosed) {
		t.Error("a list after the end: ", err)
	}
}
