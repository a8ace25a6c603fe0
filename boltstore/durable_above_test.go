package boltstore

import (
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
)

// TestPositionAboveTheJournal: after lost writes, pages with a handler's position may be
// newer than the source's. The handler has not been told the entries that get the seqs in
// between, so it starts over.
func TestPositionAboveTheJournal(t *testing.T) {
	for events := range 5 { // that the next life stores in one commit before the handler is registered
		t.Run(fmt.Sprint(events, " events first"), func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{Window: time.Nanosecond})
			s := claimTest(t, db, Claim{})
			p := &testProducer{}
			s.Attach(p)
			h, pos := claimHandler(t, s, "test")
			p.add(t, s, configMap("a", "one", 1, nil))
			p.wait(t)
			pos.set(func(p *Position) { p.Cursor, p.Replaying = 1, false })
			h.Changed()
			must(t, h.Release())
			s.Release()
			must(t, db.h.update(func(tx *bolt.Tx) error {
				src, _ := db.h.source(tx, s.id)
				st, err := src.handler("test")
				if err != nil {
					return err
				}
				st.mark, st.Cursor = 3, 3 // of commits that are lost
				return src.putHandler("test", st)
			}, nil))
			must(t, db.Close()) // the file is not sound

			db = openTest(t, path, Options{Window: time.Nanosecond})
			s = claimTest(t, db, Claim{})
			p = &testProducer{}
			s.Attach(p)
			var objs []*corev1.ConfigMap
			for i := range events {
				objs = append(objs, configMap("a", fmt.Sprint("new", i), 2+i, nil))
			}
			if events > 0 {
				p.add(t, s, objs...)
				p.wait(t)
			}
			_, pos = claimHandler(t, s, "test")
			if !pos.p.Reset || !pos.p.Replaying {
				t.Errorf("it goes on at %+v, the last entry is %d", pos.p, s.State().Seq)
			}
			if r, err := db.Check(); err != nil || !r.Sound() {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}
