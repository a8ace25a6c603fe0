package boltstore

import (
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestParkedKeysAreLost: parked keys are not in the file any more, and no checksum shows
// that, as with a page that leads to another bucket. The handler starts over.
func TestParkedKeysAreLost(t *testing.T) {
	for name, lose := range map[string]func(parked *bolt.Bucket) error{
		"none": func(*bolt.Bucket) error { return nil },
		"one key": func(parked *bolt.Bucket) error {
			b := parked.Bucket([]byte("test"))
			k, _ := b.Cursor().First()
			return b.Delete(k)
		},
		"all": func(parked *bolt.Bucket) error { return parked.DeleteBucket([]byte("test")) },
	} {
		t.Run(name, func(t *testing.T) {
			path, o := testPath(t), Options{Window: time.Nanosecond, JournalBytes: 1}
			db := openTest(t, path, o)
			s := claimTest(t, db, Claim{})
			p := &testProducer{}
			s.Attach(p)
			h, pos := claimHandler(t, s, "test")
			pos.set(func(p *Position) { p.Replaying = false })
			must(t, h.Release())
			for rv := range uint64(5) {
				p.add(t, s, configMap("a", string(rune('a'+rv)), int(rv)+1, nil))
				p.wait(t)
				s.SetTold(rv + 1)
			}
			if st := handlerState1(t, s); st.Parked < 2 {
				t.Fatalf("%+v", st)
			}
			must(t, db.h.update(func(tx *bolt.Tx) error {
				src, _ := db.h.source(tx, configMaps.ID())
				return lose(src.Root.Bucket(layout.BucketParked))
			}, nil))
			s.Release()
			must(t, db.Close()) // it is not sound
			db = openTest(t, path, o)
			s = claimTest(t, db, Claim{})
			h, pos = claimHandler(t, s, "test")
			if over := name != "none"; pos.p.Reset != over {
				t.Errorf("%+v", pos.p)
			}
			must(t, h.Release())
			if st := handlerState1(t, s); st.Reset == (st.Parked > 0) {
				t.Errorf("%+v", st)
			}
		})
	}
}
