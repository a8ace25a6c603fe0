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
		name   string
		parked bool // its journal pressed
		damage func(src sourceTx) error
		want   []string // all that is said
	}{
		{"nothing", false, func(sourceTx) error { return nil }, nil},
		{"nothing, parked", true, func(sourceTx) error { return nil }, nil},
		{"a block is gone", false, func(src sourceTx) error { return src.Root.Bucket(layout.BucketJournal).Delete(layout.U64(3)) },
			[]string{"journal: a block starts at 4 and should at 3", "journal: it has "}},
		{"the last block is gone", false, func(src sourceTx) error { return src.Root.Bucket(layout.BucketJournal).Delete(layout.U64(5)) },
			[]string{"journal: it ends before 5 and should end at 5", "journal: it has "}},
		{"blocks in each other's place", false, func(src sourceTx) error {
			j := src.Root.Bucket(layout.BucketJournal)
			two, three := bytes.Clone(j.Get(layout.U64(2))), bytes.Clone(j.Get(layout.U64(3)))
			if err := j.Put(layout.U64(2), three); err != nil {
				return err
			}
			return j.Put(layout.U64(3), two)
		}, []string{"journal block at 2: damaged: checksum", "a block starts at 3 and should at 2", "journal block at 3: damaged: checksum", "a block starts at 4 and should at 2", "journal: it has "}},
		{"a block with two entries for one", false, func(src sourceTx) error {
			j := src.Root.Bucket(layout.BucketJournal)
			drafts, err := src.Owner().UnpackBlock(2, j.Get(layout.U64(2)))
			if err != nil {
				return err
			}
			return j.Put(layout.U64(2), src.Owner().PackBlock(2, append(drafts, drafts...)))
		}, []string{"journal: a block starts at 3 and should at 4", "journal: it has "}},
		{"the size of the journal", false, meta(func(m *sourceMeta) { m.JournalBytes++ }), []string{"journal: it has "}},
		{"the told mark", false, meta(func(m *sourceMeta) { m.Told = m.Seq + 1 }), []string{"told mark 6 is above the last entry 5"}},
		{"a position", false, func(src sourceTx) error {
			return firstOf(src.Root.Bucket(layout.BucketHandlers), func(k, v []byte) error {
				v[9] ^= 1
				return src.Root.Bucket(layout.BucketHandlers).Put(k, v)
			})
		}, []string{`handler "test": `}},
		{"a position above the journal", false, func(src sourceTx) error {
			states, err := src.handlers(&sourceMeta{})
			if err != nil {
				return err
			}
			st := states["test"]
			st.Cursor = 100
			return src.putHandler("test", st)
		}, []string{`handler "test" is at 0 and 100, above the last entry 5`}},
		{"a parked entry", true, func(src sourceTx) error {
			b := src.Root.Bucket(layout.BucketParked).Bucket([]byte("test"))
			return firstOf(b, func(k, v []byte) error {
				v[len(v)/2] ^= 1
				return b.Put(k, v)
			})
		}, []string{`handler "test"`}},
		{"a parked entry is gone", true, func(src sourceTx) error {
			b := src.Root.Bucket(layout.BucketParked).Bucket([]byte("test"))
			return firstOf(b, func(k, _ []byte) error { return b.Delete(k) })
		}, []string{`handler "test"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Window: time.Nanosecond}
			if c.parked {
				o.JournalBytes = 1
			}
			db, err := Open(testPath(t), o)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			s := claimTest(t, db, Claim{})
			defer s.Release()
			p := &testProducer{}
			s.Attach(p)
			_, pos := claimHandler(t, s, "test")
			pos.set(func(p *Position) { p.Replaying = false })
			if c.parked {
				s.SetTold(100)
			}
			for i := range 5 {
				p.add(t, s, configMap("a", fmt.Sprint(i), i+1, nil))
				p.wait(t)
			}
			if st := handlerState1(t, s); c.parked != (st.Parked > 0) {
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

// TestCheckOfTheHeader: Check says that the header is damaged or lost, which the next
// open or close would meet.
func TestCheckOfTheHeader(t *testing.T) {
	for _, want := range []string{"boltstore: header: damaged: checksum differs", "damaged: the file's header is missing"} {
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
