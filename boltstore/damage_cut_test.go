package boltstore

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
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
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // there is nothing else to say
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

// TestCutFile: in a truncated file bbolt panics with its locks held. Reads, writes and Close
// return all the same, and the file can be opened again.
func TestCutFile(t *testing.T) {
	for _, first := range []string{"read", "write"} {
		t.Run(first, func(t *testing.T) {
			path := testPath(t)
			db, err := Open(path, Options{ObjectMemory: -1})
			must(t, err)
			s := claimTest(t, db, Claim{})
			var objs []runtime.Object
			for i := range 100 {
				objs = append(objs, configMap("ns", fmt.Sprint("x", i), i+1, nil))
			}
			relist(t, s, "200", RelistOptions{}, objs, 50)
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
			nothingIsWritten(t, db, s)
			returns(t, "close", func() {
				s.Release()
				if err := db.Close(); !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
			})
			s = claimTest(t, openTest(t, path, Options{ObjectMemory: -1}), Claim{})
			relist(t, s, "200", RelistOptions{}, objs, 50)
			serves(t, s, objs)
		})
	}
}

// TestCutBesideReaders: readers that begin after another one has met the end of a truncated
// file return, and so does Close.
func TestCutBesideReaders(t *testing.T) {
	for range 5 {
		path := testPath(t)
		db, err := Open(path, Options{ObjectMemory: -1})
		must(t, err)
		s := claimTest(t, db, Claim{})
		relist(t, s, "200", RelistOptions{}, []runtime.Object{configMap("ns", "x", 1, nil)}, 50)
		var begun sync.WaitGroup
		begun.Add(8)
		for range 8 { // one that ends just then may wait for ever
			go func() {
				_, err := s.Page(nil, 1)
				begun.Done()
				for ; err == nil; _, err = s.Page(nil, 1) {
				}
				if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}()
		}
		begun.Wait()
		cut(t, path)
		returns(t, "read", func() {
			for db.Err() == nil {
				_, _ = s.Page(nil, 1)
			}
		})
		returns(t, "close", func() { s.Release(); _ = db.Close() })
	}
}
