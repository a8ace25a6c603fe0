package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
)

// TestOwnerIsAskedAtOnce: a read does not wait for the lock of a file whose owner answers.
func TestOwnerIsAskedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	owner, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := owner.Close(); err != nil {
			t.Error(err)
		}
	}()
	read := make(chan error, 1)
	go func() {
		r, err := (&dbFile{path: path, wait: time.Hour}).read()
		if err == nil {
			err = r.Close()
		}
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for the lock")
	}
}
