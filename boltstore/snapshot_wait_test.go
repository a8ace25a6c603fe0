package boltstore

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestNobodyWaitsForSnapshot: while a snapshot is written and a swap of the file waits
// for it, all other readers and writers go on.
func TestNobodyWaitsForSnapshot(t *testing.T) {
	for name, swap := range map[string]func(db *DB) error{
		"compact": func(db *DB) error { _, err := db.Compact(t.Context(), nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			begun, end := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(end) })
			defer release()
			db := openTest(t, testPath(t),
				Options{Keyset: sealtest.Keyset(), Window: time.Nanosecond, op: func(op, path string) error {
					if op == "write" && strings.Contains(path, ".snapshot-") {
						close(begun)
						<-end
					}
					return nil
				}})
			s := claimTest(t, db, Claim{Indexers: indexers})
			if err := s.Add(configMap("ns", "a", 1, nil)); err != nil {
				t.Fatal(err)
			}
			snapped, swapped, used := make(chan error, 1), make(chan error, 1), make(chan error, 1)
			go func() {
				snap, err := db.Snapshot()
				if err == nil {
					err = snap.Close()
				}
				snapped <- err
			}()
			<-begun
			was := db.h.now.Load()
			go func() { swapped <- swap(db) }()
			for deadline := time.Now().Add(time.Minute); db.h.now.Load() == was; {
				if time.Now().After(deadline) {
					t.Fatal("the swap waits for the snapshot")
				}
			}
			go func() {
				_, err := s.ListErr()
				if err == nil {
					err = s.Add(configMap("ns", "b", 2, nil))
				}
				if err == nil {
					_, err = db.States()
				}
				used <- err
			}()
			select {
			case err := <-used:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("a reader or writer waits for the snapshot")
			}
			release()
			for what, done := range map[string]chan error{"snapshot": snapped, name: swapped} {
				select {
				case err := <-done:
					if err != nil {
						t.Error(what, err)
					}
				case <-time.After(time.Minute):
					t.Fatal(what, "does not end")
				}
			}
			if keys := s.ListKeys(); len(keys) != 2 {
				t.Error(keys)
			}
		})
	}
}
