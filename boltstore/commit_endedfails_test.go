package boltstore

import (
	"errors"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
)

// TestFailuresOfAnEndedSource: a source ends while its changes cannot be committed. They
// are not tried again. When the disk works, Err becomes nil although nothing is written.
func TestFailuresOfAnEndedSource(t *testing.T) {
	for _, how := range []string{"alone", "beside another"} {
		t.Run(how, func(t *testing.T) {
			clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
			db := openTest(t, testPath(t), Options{Clock: clk})
			s, p := claimTest(t, db, Claim{}), &testProducer{}
			s.Feed.Attach(p)
			if how == "beside another" {
				src := s.name
				src.Namespace = "other"
				claimTest(t, db, Claim{Source: src})
			}
			db.h.setHook(func(*bolt.Tx) error { return errRefused })
			c, err := s.Feed.Prepare(cache.Added, configMap("ns", "a", 1, nil))
			must(t, err)
			p.put(&Batch{Changes: []*Change{c}, ResourceVersion: "1"})
			s.wake(true)
			for end := time.Now().Add(time.Minute); db.Err() == nil; {
				if time.Now().After(end) {
					t.Fatal("no error")
				}
			}
			s.Release()
			db.h.setHook(nil)
			for end := time.Now().Add(time.Minute); db.Err() != nil; clk.Step(10 * time.Second) {
				if time.Now().After(end) {
					t.Errorf("the disk works, and Err is: %v", db.Err())
					break
				}
			}
			switch err := db.Close(); {
			case how == "alone" && !errors.Is(err, errRefused):
				t.Errorf("Close does not say that changes were lost: %v", err)
			case how != "alone" && err != nil:
				t.Error(err)
			}
		})
	}
}
