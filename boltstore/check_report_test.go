package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestCheckReports: Check names each way in which journal, marks and handlers can
// disagree. TestCorpus covers the rest of a report.
func TestCheckReports(t *testing.T) {
	meta := func(change func(m *sourceMeta)) func(sourceTx) error {
		return func(src sourceTx) error {
			m, err := src.meta()
			if err != nil {
				return err
			}
			change(m)
			return src.putMeta(m)
		}
	}
	firstOf := func(b *bolt.Bucket, change func(k, v []byte) error) error {
		k, v := b.Cursor().First()
		if k == nil {
			return fmt.Errorf("nothing is there to damage")
		}
		return change(bytes.Clone(k), bytes.Clone(v))
	}
	for _, c := range []struct {
		name    string
		pending bool // the handler was told its Reset
		damage  func(src sourceTx) error
		want    []string // all that is said
	}{
		{"nothing", false, func(sourceTx) error { return nil }, nil},
		{"nothing, pending", true, func(sourceTx) error { return nil }, nil},
		{"a block is gone", false, func(src sourceTx) error {
			return src.Root.Bucket(layout.BucketJournal).Delete(layout.U64(3))
		},
			[]string{"journal: a block starts at 4 and should at 3", "journal: it has "}},
		{"the last block is gone", false, func(src sourceTx) error {
			return src.Root.Bucket(layout.BucketJournal).Delete(layout.U64(5))
		},
			[]string{"journal: it ends before 5 and should end at 5", "journal: it has "}},
		{"blocks in each other's place", false, func(src sourceTx) error {
			j := src.Root.Bucket(layout.BucketJournal)
			two, three := bytes.Clone(j.Get(layout.U64(2))), bytes.Clone(j.Get(layout.U64(3)))
			if err := j.Put(layout.U64(2), three); err != nil {
				return err
			}
			return j.Put(layout.U64(3), two)
		}, []string{"journal block at 2: damaged: checksum", "a block starts at 3 and should at 2",
			"journal block at 3: damaged: checksum", "a block starts at 4 and should at 2", "journal: it has "}},
		{"a block with two entries for one", false, func(src sourceTx) error {
			j := src.Root.Bucket(layout.BucketJournal)
			drafts, err := src.Owner().UnpackBlock(2, j.Get(layout.U64(2)))
			if err != nil {
				return err
			}
			return j.Put(layout.U64(2), src.Owner().PackBlock(2, append(drafts, drafts...)))
		}, []string{"journal: a block starts at 3 and should at 4", "journal: it has "}},
		{"the size of the journal", false, meta(func(m *sourceMeta) {
			m.JournalBytes++
		}), []string{"journal: it has "}},
		{"the told mark", false, meta(func(m *sourceMeta) {
			m.Told = m.Seq + 1
		}), []string{"told mark 6 is above the last entry 5"}},
		{"a pending key", true, func(src sourceTx) error {
			return firstOf(pendingBucket(src), func(k, v []byte) error {
				v[len(v)/2] ^= 1
				return pendingBucket(src).Put(k, v)
			})
		}, []string{`handler "test": pending key`}},
		{"a pending key is gone", true, func(src sourceTx) error {
			return firstOf(pendingBucket(src), func(k, _ []byte) error { return pendingBucket(src).Delete(k) })
		}, []string{`handler "test": damaged: the 4 pending keys are not the 5`}},
		{"all pending keys are gone", true, func(src sourceTx) error {
			return src.Root.DeleteBucket(layout.BucketPending)
		},
			[]string{`handler "test": damaged: the 0 pending keys are not the 5`}},
		{"a key pending above the journal", true, func(src sourceTx) error {
			m, err := src.meta()
			if err != nil {
				return err
			}
			set, err := src.pendingSet("test", m.Handlers["test"])
			if err != nil {
				return err
			}
			err = set.change(100, format.Draft{Type: cache.Added, Key: "a/0"})
			if err := errors.Join(err, set.flush()); err != nil {
				return err
			}
			m.Handlers["test"] = set.hm
			return src.putMeta(m)
		}, []string{`handler "test": "a/0" is pending as of 100, above the last entry 5`}},
		{"keys of no handler", true, meta(func(m *sourceMeta) {
			delete(m.Handlers, "test")
		}), []string{`keys are pending for handler "test", which does not exist`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Window: time.Nanosecond}
			db, err := Open(testPath(t), o)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			s := claimTest(t, db, Claim{})
			defer s.Release()
			p := &testProducer{}
			s.Feed.Attach(p)
			h, _ := claimHandler(t, s, "test")
			if c.pending {
				handled(t, h)
			}
			for i := range 5 {
				p.add(t, s, configMap("a", fmt.Sprint(i), i+1, nil))
				p.wait(t)
			}
			if st := handlerState1(t, s); st.Pending != 5 || c.pending == st.Reset {
				t.Fatalf("%+v", st)
			}
			err = db.h.update(func(tx *bolt.Tx) error {
				src, _ := db.h.source(tx, s.id)
				return c.damage(src)
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := db.Check()
			if err != nil || len(r.Sources) != 1 || len(r.Problems) > 0 {
				t.Fatalf("%+v %v", r, err)
			}
			said := r.Sources[0].Problems
			if !slices.EqualFunc(said, c.want, strings.Contains) || r.Sound() != (c.want == nil) {
				t.Errorf("it says %q, not %q", said, c.want)
			}
		})
	}
}

func pendingBucket(src sourceTx) *bolt.Bucket {
	return src.Root.Bucket(layout.BucketPending).Bucket([]byte("test"))
}

// TestCheckOfTheHeader: Check says that the header is damaged or lost, which the next
// open or close would meet.
func TestCheckOfTheHeader(t *testing.T) {
	for _, want := range []string{"boltstore: header: damaged: checksum differs",
		"damaged: the file's header is missing"} {
		db := openTest(t, testPath(t), Options{})
		claimTest(t, db, Claim{})
		err := db.h.update(func(tx *bolt.Tx) error {
			f := tx.Bucket(layout.BucketFile)
			v := bytes.Clone(f.Get(layout.KeyHeader))
			if strings.Contains(want, "missing") {
				return f.Delete(layout.KeyHeader)
			}
			v[len(v)-1] ^= 1
			return f.Put(layout.KeyHeader, v)
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := db.Check(); err != nil || len(r.Problems) != 1 || r.Problems[0] != want || len(r.Sources) != 1 {
			t.Errorf("%+v %v", r, err)
		}
		if err := db.Close(); !errors.Is(err, ErrDamaged) { // it writes no other header, which would have no keys
			t.Errorf("closed: %v", err)
		}
	}
}
