package boltstore

import (
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestLostSource: damage removes a claimed source from the open file, and nothing else. A
// call that meets this makes the file heal, and the source is listed again.
func TestLostSource(t *testing.T) {
	for _, first := range []string{"change", "read", "list"} {
		t.Run(first, func(t *testing.T) {
			db := openTest(t, testPath(t), Options{Window: time.Nanosecond, ObjectMemory: -1})
			s := claimTest(t, db, Claim{})
			srv := server{}
			for i := range 20 {
				srv.set(configMap("ns", fmt.Sprint("x", i), i+1, nil))
			}
			relist(t, s, "500", RelistOptions{}, srv.list(), 50)
			p := &testProducer{}
			s.Attach(p)
			must(t, db.h.update(func(tx *bolt.Tx) error {
				return layout.Drop(tx.Bucket(layout.BucketSources), []byte(s.id))
			}, nil))
			o := configMap("ns", "new", 501, nil)
			switch first {
			case "change":
				p.add(t, s, o)
				p.wait(t)
			case "read":
				_, err := s.ListErr()
				t.Log(err)
			}
			srv.set(o)
			relistAgain(t, s, "501", srv.list())
			if db.replaced.Load() != 1 {
				t.Error("the file was not healed")
			}
			sameObjects(t, "after", srv.anys(), s.List())
			if r, err := db.Check(); err != nil || !r.Sound() || s.Err() != nil {
				t.Errorf("%+v %v %v", r, err, s.Err())
			}
		})
	}
}
