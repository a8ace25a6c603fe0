package boltstore

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
)

// returns fails the test if fn does not return.
func returns(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: it waits for ever", what)
	}
}

// cut truncates the open file at path, as cp does before it writes.
func cut(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 0); err != nil {
		t.Skip(err) // Windows does not allow a mapped file to be truncated
	}
}

// TestCutFile: in a truncated file bbolt panics with its locks held. Even if the file
// cannot be healed yet, reads, writes and Close return, and it is healed later.
func TestCutFile(t *testing.T) {
	for _, first := range []string{"read", "write"} {
		for _, end := range []string{"healed", "closed"} {
			t.Run(first+", "+end, func(t *testing.T) {
				clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
				path := testPath(t)
				db, err := Open(path, Options{Clock: clk, ObjectMemory: -1})
				if err != nil {
					t.Fatal(err)
				}
				s := claimTest(t, db, Claim{})
				var objs []runtime.Object
				for i := range 100 {
					objs = append(objs, configMap("ns", fmt.Sprint("x", i), i+1, nil))
				}
				relist(t, s, "200", RelistOptions{}, objs, 50)
				db.heals.mu.Lock()
				db.heals.last = clk.Now() // it was just healed
				db.heals.mu.Unlock()
				cut(t, path)
				do := map[string]func(){
					"read": func() {
						if _, err := s.ListErr(); !errors.Is(err, ErrDamaged) {
							t.Error("read:", err)
						}
					},
					"write": func() {
						if err := db.h.update(func(*bolt.Tx) error { return nil }, nil); !errors.Is(err, ErrDamaged) {
							t.Error("write:", err)
						}
					},
				}
				for range 2 {
					returns(t, first, do[first])
					for what, fn := range do {
						returns(t, first+", then "+what, fn)
					}
				}
				if db.replaced.Load() != 0 {
					t.Error("it was healed within a minute")
				}
				if end == "healed" {
					clk.Step(minHeal)
					returns(t, "heal", do[first])
					if db.replaced.Load() != 1 {
						t.Error("it was not healed")
					}
					relist(t, s, "200", RelistOptions{}, objs, 50)
					serves(t, s, objs)
				}
				s.Release()
				returns(t, "close", func() {
					if err := db.Close(); end == "healed" && err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestCutBesideReaders: readers that begin while another one meets the end of a
// truncated file do not keep it from being healed.
func TestCutBesideReaders(t *testing.T) {
	for range 5 {
		path := testPath(t)
		db := openTest(t, path, Options{})
		s := claimTest(t, db, Claim{})
		relist(t, s, "200", RelistOptions{}, []runtime.Object{configMap("ns", "x", 1, nil)}, 50)
		var begun, ended sync.WaitGroup
		begun.Add(8)
		for range 8 {
			ended.Go(func() {
				_, err := s.Page(nil, 1)
				begun.Done()
				for ; db.replaced.Load() == 0; _, err = s.Page(nil, 1) {
				}
				if err != nil && !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
			})
		}
		begun.Wait()
		cut(t, path)
		returns(t, "heal", ended.Wait)
	}
}
