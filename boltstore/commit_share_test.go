package boltstore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestWritesShareCommits: the writes to one source that wait for a commit share the next
// one, in their order. If it fails, each is tried alone.
func TestWritesShareCommits(t *testing.T) {
	for _, memory := range []int64{-1, 1 << 20} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprint("memory ", memory, " fails ", fails), func(t *testing.T) {
				db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: memory})
				s := claimTest(t, db, Claim{Indexers: indexers})
				began, goOn := make(chan struct{}, 1), make(chan struct{})
				var tries atomic.Int64
				db.h.writeMu.Lock()
				db.h.hook = func(*bolt.Tx) error {
					switch tries.Add(1) {
					case 1:
						began <- struct{}{}
						<-goOn
					case 2:
						if fails {
							return errors.New("no space left on device")
						}
					}
					return nil
				}
				db.h.writeMu.Unlock()
				var wg sync.WaitGroup
				write := func(fn func() error) {
					wg.Go(func() {
						if err := fn(); err != nil {
							t.Error(err)
						}
					})
				}
				write(func() error { return s.Add(configMap("a", "first", 1, nil)) })
				<-began
				before := transactions(t, db)
				writes := []func() error{
					func() error { return s.Add(configMap("a", "x", 1, nil)) },
					func() error { return s.Replace([]any{configMap("a", "y", 1, nil)}, "5") },
					func() error { return s.Add(configMap("a", "z", 1, nil)) },
					func() error { return s.Update(configMap("a", "z", 2, nil)) },
					func() error { return s.Delete(configMap("a", "y", 1, nil)) },
					func() error { return s.Add(configMap("a", "y", 3, nil)) },
				}
				for i, fn := range writes {
					write(fn)
					eventually(t, "it waits", func() bool {
						s.mu.Lock()
						defer s.mu.Unlock()
						return len(s.writer.queue) == i+1
					})
				}
				close(goOn)
				wg.Wait()
				want := 2
				if fails {
					want = 1 + len(writes)
				}
				if n := transactions(t, db) - before; n != want {
					t.Errorf("%d transactions, want %d", n, want)
				}
				if memory > 0 {
					loadedInMemory(t, s)
				}
				keys := s.ListKeys()
				slices.Sort(keys)
				if fmt.Sprint(keys) != "[a/y a/z]" || s.State().ResourceVersion != "5" ||
					s.LastStoreSyncResourceVersion() != "3" {
					t.Errorf("%v at %+v, seen %s", keys, s.State(), s.LastStoreSyncResourceVersion())
				}
				closeTest(t, db)
			})
		}
	}
}
