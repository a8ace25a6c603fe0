package boltstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

type askingPosition struct {
	testPosition
	ask func()
}

func (p *askingPosition) Position() Position {
	if p.ask != nil {
		p.ask()
	}
	return p.testPosition.Position()
}

// TestHandlerPositionDamaged: changes that a handler must still be told are damaged in an
// open file. The handler starts over, registered or not, and its old reports do not undo
// that.
func TestHandlerPositionDamaged(t *testing.T) {
	gone := uint64(0)
	damages := map[string]func(src sourceTx) error{
		"position is gone": func(src sourceTx) error { return src.Root.Bucket(layout.BucketHandlers).Delete([]byte("test")) },
		"position is damaged": func(src sourceTx) error {
			return src.Root.Bucket(layout.BucketHandlers).Put([]byte("test"), []byte("this is no position at all"))
		},
		"block is damaged": func(src sourceTx) error {
			j := src.Root.Bucket(layout.BucketJournal)
			return j.Put(layout.U64(2), make([]byte, len(j.Get(layout.U64(2)))))
		},
		"block is gone": func(src sourceTx) error {
			j := src.Root.Bucket(layout.BucketJournal)
			gone = uint64(len(j.Get(layout.U64(2))))
			return j.Delete(layout.U64(2))
		},
	}
	for name, damage := range damages {
		for _, registered := range []bool{true, false} {
			if !registered && name == "position is gone" {
				continue // nothing says that it existed
			}
			t.Run(fmt.Sprint(name, registered), func(t *testing.T) {
				db := openTest(t, testPath(t), Options{Window: time.Nanosecond, JournalBytes: 1})
				s := claimTest(t, db, Claim{})
				p := &testProducer{}
				s.Attach(p)
				h, pos := claimHandler(t, s, "test")
				rv := 0
				commit := func(fn func(p *Position)) {
					t.Helper()
					pos.set(fn)
					rv++
					p.add(t, s, configMap("a", fmt.Sprint("o", rv), rv, nil))
					p.wait(t)
				}
				for range 5 {
					commit(func(p *Position) { p.Replaying = false })
				}
				if !registered {
					if err := h.Release(); err != nil {
						t.Fatal(err)
					}
				}
				err := db.h.update(func(tx *bolt.Tx) error {
					src, _ := db.h.source(tx, configMaps.ID())
					return damage(src)
				}, nil)
				if err != nil {
					t.Fatal(err)
				}
				m := s.metaNow().clone()
				m.JournalBytes -= gone
				s.setMeta(m)
				gone = 0
				s.SetTold(5)
				for range 4 {
					commit(func(*Position) {})
				}
				if st := handlerState1(t, s); !st.Reset || !st.Replaying || st.Parked > 0 || st.Mark < 5 {
					t.Errorf("%+v", st)
				}
				if !registered {
					_, pos = claimHandler(t, s, "test")
					if !pos.p.Reset {
						t.Errorf("it is not told: %+v", pos.p)
					}
				} else if pos.lost == 0 {
					t.Error("it is not told")
				}
				lost := pos.lost
				say := func(reset, over bool) {
					t.Helper()
					commit(func(p *Position) {
						*p = Position{Epoch: p.Epoch, Cursor: s.State().Seq, Replaying: true, Reset: reset, StartedOver: over}
					})
					if st := handlerState1(t, s); st.Reset != reset || pos.lost != lost {
						t.Errorf("%+v, lost %d, before %d", st, pos.lost, lost)
					}
				}
				say(true, registered)
				say(false, false)
				say(false, false)
				commit(func(p *Position) { p.Replaying, p.Cursor = false, s.State().Seq })
				if st := handlerState1(t, s); st.Replaying || st.Mark < 5 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestParkedEntriesDamaged: handlers whose parked entries or journal are lost start over.
func TestParkedEntriesDamaged(t *testing.T) {
	for _, bucket := range [][]byte{layout.BucketHandlers, layout.BucketParked} {
		t.Run(string(bucket), func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{Window: time.Nanosecond, JournalBytes: 1})
			s := claimTest(t, db, Claim{})
			p := &testProducer{}
			s.Attach(p)
			_, pos := claimHandler(t, s, "test")
			pos.set(func(p *Position) { p.Replaying = false })
			s.SetTold(1000)
			for rv := range 300 {
				c, err := s.Prepare(cache.Added, configMap("a", fmt.Sprint("o", rv), rv, map[string]string{"a": strings.Repeat("b", 100)}))
				if err != nil {
					t.Fatal(err)
				}
				p.put(&Batch{Changes: []*Change{c}})
				s.wake(false)
				p.wait(t)
			}
			pos.set(func(p *Position) {
				p.Pending = map[string]uint64{}
				for i := range 2000 {
					p.Pending[fmt.Sprint("a/pending", i)] = 1
				}
			})
			c, err := s.Prepare(cache.Added, configMap("a", "last", 1000, nil))
			if err != nil {
				t.Fatal(err)
			}
			p.put(&Batch{Changes: []*Change{c}})
			s.wake(false)
			p.wait(t)
			if st := handlerState1(t, s); st.Parked < 250 {
				t.Fatalf("%+v", st)
			}
			ruinBucket(t, db, bucket)
			db.healing().heal(errTripped, db.h.now.Load())
			before := pos.lost
			p.add(t, s, configMap("a", "after", 1001, nil))
			p.wait(t)
			if st := handlerState1(t, s); !st.Reset || st.Parked > 0 || pos.lost == before {
				t.Errorf("%+v, lost %d", st, pos.lost)
			}
		})
	}
}

// ruinBucket overwrites a leaf page of the source's bucket called name.
func ruinBucket(t *testing.T, db *DB, name []byte) {
	t.Helper()
	page := 0
	err := db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		b := src.Root.Bucket(name)
		if sub := b.Bucket([]byte("test")); sub != nil {
			b = sub
		}
		page = int(b.Root())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if page == 0 {
		t.Fatal("an inline bucket")
	}
	ruin(t, db.path, page)
}
