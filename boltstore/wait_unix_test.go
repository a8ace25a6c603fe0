//go:build unix

package boltstore

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestWaitsForABusyFile: a file that another process is writing looks damaged
// to one who waits for it. It is not looked at before it is free.
func TestWaitsForABusyFile(t *testing.T) {
	good := filled(t)
	path := testPath(t)
	if err := os.WriteFile(path, good[:100_000], 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{LockTimeout: -1}); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	opened := make(chan *DB, 1)
	go func() {
		db, err := Open(path, Options{LockTimeout: 20 * time.Second, Keyset: sealtest.Default()})
		if err != nil {
			t.Error(err)
		}
		opened <- db
	}()
	waitLocked(t, path)
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
