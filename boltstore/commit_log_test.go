package boltstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	bolt "go.etcd.io/bbolt"
)

// TestAsksOfAHangingLog: the calls of health checks wait for no message. A log may be on
// the disk that hangs, and it may make these calls itself.
func TestAsksOfAHangingLog(t *testing.T) {
	var db *DB
	answers := make(chan error, 2) // of Err at each message
	log := funcr.New(func(_, message string) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			err, st := db.Err(), db.Stats()
			if (err != nil) != (st.Failing > 0) {
				t.Errorf("%v, but failing for %s", err, st.Failing)
			}
			answers <- err // the last one ends the test
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("Err or Stats waits for the message %s", message)
		}
	}, funcr.Options{})
	db = openTest(t, testPath(t), Options{Window: time.Millisecond, Logger: &log})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	var full atomic.Int64
	full.Store(2)
	db.h.writeMu.Lock()
	db.h.hook = func(*bolt.Tx) error {
		if full.Add(-1) >= 0 {
			return errors.New("disk full")
		}
		return nil
	}
	db.h.writeMu.Unlock()
	p.add(t, s, configMap("a", "one", 1, nil))
	p.wait(t)
	if err := <-answers; err == nil {
		t.Error("no error while commits fail")
	}
	if err := <-answers; err != nil {
		t.Error("once they succeed:", err)
	}
}
