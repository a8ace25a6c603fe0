package boltstore

import (
	"context"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// TestAsksOfAHangingDisk: the calls of metrics and health checks do not wait for a
// commit.
func TestAsksOfAHangingDisk(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Millisecond})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	tried, goOn := make(chan struct{}, 100), make(chan struct{})
	db.h.writeMu.Lock()
	db.h.hook = func(*bolt.Tx) error {
		tried <- struct{}{}
		<-goOn
		return nil
	}
	db.h.writeMu.Unlock()
	p.add(t, s, configMap("a", "one", 1, nil))
	<-tried
	late, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, ask := range map[string]func(){
		// they only have to return
		"Stats": func() { db.Stats() }, "Err": func() { _ = db.Err() }, "AtPath": func() { _ = db.AtPath() },
		"Size": func() {
			db.Size()
		}, "Aside": func() {
			db.Aside()
		}, "AsidePaths": func() { db.AsidePaths() }, "Fallbacks": func() { db.Fallbacks() },
		"State": func() { s.State() }, "Store.Err": func() { _ = s.Err() }, // their answers do not matter
	} {
		done := make(chan struct{})
		go func() { defer close(done); ask() }()
		select {
		case <-done:
		case <-late.Done():
			t.Errorf("%s waits for the disk", name)
		}
	}
	close(goOn)
	p.wait(t)
}
