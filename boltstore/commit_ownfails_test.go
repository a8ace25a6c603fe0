package boltstore

import (
	"errors"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	testingclock "k8s.io/utils/clock/testing"
)

// TestFailedWriteIsOver: an own write of the program fails, and the program gets the
// error. Nothing remains to be committed. When the disk works again, Err becomes nil
// although nothing is written, and Close returns no error.
func TestFailedWriteIsOver(t *testing.T) {
	for _, how := range []string{"waits", "closes", "releases and closes"} {
		t.Run(how, func(t *testing.T) {
			clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
			db := openTest(t, testPath(t), Options{Clock: clk})
			s := claimTest(t, db, Claim{})
			must(t, s.Add(configMap("ns", "a", 1, nil)))
			db.h.setHook(func(*bolt.Tx) error { return errRefused })
			if err := s.Add(configMap("ns", "b", 2, nil)); !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
			if err := db.Err(); !errors.Is(err, errRefused) {
				t.Errorf("while the disk fails: %v", err)
			}
			db.h.setHook(nil)
			switch how {
			case "waits":
				for end := time.Now().Add(time.Minute); db.Err() != nil; clk.Step(10 * time.Second) {
					if time.Now().After(end) {
						t.Fatalf("the disk works, and Err is: %v", db.Err())
					}
				}
				if st := db.Stats(); st.Failing != 0 {
					t.Errorf("%+v", st)
				}
			case "releases and closes":
				s.Release()
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
