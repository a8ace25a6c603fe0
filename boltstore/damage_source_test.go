package boltstore

import (
	"errors"
	"fmt"
	stdruntime "runtime"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestLostSource: damage removes a claimed source from the open file, and nothing else. A
// call that meets this is told of damage, and in the next life the source is listed again.
func TestLostSource(t *testing.T) {
	for _, first := range []string{"change", "read", "list"} {
		t.Run(first, func(t *testing.T) {
			o := Options{Window: time.Nanosecond, ObjectMemory: -1}
			db := openTest(t, testPath(t), o)
			s := claimTest(t, db, Claim{})
			srv := server{}
			for i := range 20 {
				srv.set(configMap("ns", fmt.Sprint("x", i), i+1, nil))
			}
			relist(t, s, "500", RelistOptions{}, srv.list(), 50)
			p := &testProducer{}
			s.Feed.Attach(p)
			must(t, db.h.update(func(tx *bolt.Tx) error {
				return layout.Drop(tx.Bucket(layout.BucketSources), []byte(s.id))
			}, nil))
			obj := configMap("ns", "new", 501, nil)
			switch first {
			case "change":
				p.add(t, s, obj)
				for db.Err() == nil {
					stdruntime.Gosched()
				}
			case "read":
				_, err := s.ListErr()
				t.Log(err)
			case "list":
				relistFails(t, s, srv.list())
			}
			nothingIsWritten(t, db, s)
			killed(t, db)
			db = openTest(t, db.path, o)
			s = claimTest(t, db, Claim{})
			if !s.Delivery.AwaitsPlain() {
				t.Error("the source counts as new")
			}
			srv.set(obj)
			relist(t, s, "501", RelistOptions{}, srv.list(), 50)
			sameObjects(t, "after", srv.anys(), s.List())
			if r, err := db.Check(); err != nil || !r.Sound() || s.Err() != nil {
				t.Errorf("%+v %v %v", r, err, s.Err())
			}
		})
	}
}

// relistFails lists, and meets damage.
func relistFails(t *testing.T, s *Claimed, objs []runtime.Object) {
	t.Helper()
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err == nil {
		err = r.Page(objs)
	}
	if err == nil {
		_, err = r.Commit("999", time.Now())
	}
	if r != nil {
	}
	if !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}
