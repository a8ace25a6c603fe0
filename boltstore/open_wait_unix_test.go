//go:build unix

package boltstore

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestWaitsForABusyFile: a file that another process is writing looks damaged, so Open
// does not check it before it is free.
func TestWaitsForABusyFile(t *testing.T) {
	good := filled(t)
	path := testPath(t)
	if err := os.WriteFile(path, good[:100_000], 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := osfile.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{LockTimeout: -1}); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	opened := make(chan *DB, 1)
	go func() {
		db, err := Open(path, Options{LockTimeout: time.Minute, Keyset: sealtest.Default()})
		if err != nil {
			t.Error(err)
		}
		opened <- db
	}()
	waitLocked(t)
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	release()
	db := <-opened
	if db == nil {
		return
	}
	defer closeTest(t, db)
	if s, err := db.View(configMaps); err != nil || len(s.ListKeys()) != 40 || len(db.Aside()) > 0 {
		t.Fatalf("%v, set aside %v", err, db.Aside())
	}
}

// TestWaitsForCompaction opens a file while its holder compacts it. A process that
// waits for the lock must not get the file that lost its name.
func TestWaitsForCompaction(t *testing.T) {
	path := testPath(t)
	wasteful(t, path)
	db := openTest(t, path, Options{})
	opened := make(chan error)
	db.opts.step = func(step string) error {
		if step == "rename" {
			go func() {
				other, err := Open(path, Options{LockTimeout: time.Minute})
				if err == nil {
					var s *Claimed
					if s, err = other.Claim(Claim{Source: configMaps, Example: &corev1.ConfigMap{}}); err == nil {
						err = s.Add(configMap("ns", "other", 9001, nil))
					}
					err = errors.Join(err, s.db.Close())
				}
				opened <- err
			}()
			waitLocked(t)
		}
		return nil
	}
	if _, err := db.Compact(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{Indexers: indexers})
	if err := s.Add(configMap("ns", "mine", 9000, nil)); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	if err := <-opened; err != nil && !strings.Contains(err.Error(), "in use by") {
		t.Fatal(err)
	}
	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{Indexers: indexers})
	for _, key := range []string{"ns/mine", "ns/other"} {
		if _, ok, err := s.GetByKey(key); !ok || err != nil {
			t.Errorf("%s is lost: %v", key, err)
		}
	}
}
