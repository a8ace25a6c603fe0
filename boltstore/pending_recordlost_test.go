package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestHandlerOfLostRecords: damage has removed records, and nothing is known of them any
// more. If the server deletes their objects before the next list, this cannot be noticed.
// So durable handlers are told a Reset, registered or not. While all records are there, they
// are not.
func TestHandlerOfLostRecords(t *testing.T) {
	ks := sealtest.Keyset()
	type lives struct {
		db *DB
		s  *Claimed
	}
	reopen := func(t *testing.T, path string, o Options) lives {
		db := openTest(t, path, o)
		return lives{db, claimTest(t, db, Claim{Indexers: indexers})}
	}
	write := func(t *testing.T, l lives, fn func(src sourceTx) error) {
		t.Helper()
		must(t, l.db.h.update(func(tx *bolt.Tx) error {
			src, _ := l.db.h.source(tx, configMaps.ID())
			return fn(src)
		}, nil))
	}
	o := Options{Window: time.Nanosecond}
	for name, tc := range map[string]struct {
		open, closed func(t *testing.T, l lives) lives
		lost         bool
	}{
		"nothing": {nil, func(t *testing.T, l lives) lives { return reopen(t, l.db.path, o) }, false},
		"nothing, copied": {nil, func(t *testing.T, l lives) lives {
			must(t, salvageAt(l.db.path, l.db.opts))
			return reopen(t, l.db.path, o)
		}, false},
		"an index": {nil, func(t *testing.T, l lives) lives {
			l = reopen(t, l.db.path, o)
			write(t, l, func(src sourceTx) error { return src.Root.DeleteBucket(layout.BucketIndex) })
			killed(t, l.db)
			must(t, salvageAt(l.db.path, l.db.opts))
			return reopen(t, l.db.path, o)
		}, false},
		"a page of records, open": {nil, func(t *testing.T, l lives) lives {
			l = reopen(t, l.db.path, o)
			ruin(t, l.db.path, itemPages(t, l.db)[1])
			if _, err := l.s.ListErr(); !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			killed(t, l.db)
			return reopen(t, l.db.path, o)
		}, true},
		"a page of records": {nil, func(t *testing.T, l lives) lives {
			l = reopen(t, l.db.path, o)
			page := itemPages(t, l.db)[1]
			closeTest(t, l.db)
			ruin(t, l.db.path, page)
			return reopen(t, l.db.path, o)
		}, true},
		"a record, converted": {nil, func(t *testing.T, l lives) lives {
			b, err := bolt.Open(l.db.path, 0o600, nil)
			must(t, err)
			must(t, b.Update(func(tx *bolt.Tx) error {
				src, _ := l.db.h.source(tx, configMaps.ID())
				return src.contents().Items.Delete(index.AppendKey(nil, "ns/cm007"))
			}))
			must(t, b.Close())
			return reopen(t, l.db.path, Options{Window: time.Nanosecond, Keyset: ks})
		}, true},
		"a write that did not reach the disk": {
			func(t *testing.T, l lives) lives {
				write(t, l, func(src sourceTx) error {
					return src.contents().Items.Delete(index.AppendKey(nil, "ns/cm007"))
				})
				if _, err := l.s.ListErr(); !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
				return l
			},
			func(t *testing.T, l lives) lives {
				l = reopen(t, l.db.path, o)
				write(t, l, func(src sourceTx) error {
					return src.contents().Items.Delete(index.AppendKey(nil, "ns/cm007"))
				})
				if _, err := l.s.ListErr(); !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
				return l
			}, true},
		"a record that is in its place": {
			func(t *testing.T, l lives) lives {
				write(t, l, func(src sourceTx) error {
					return src.contents().Items.Put(index.AppendKey(nil, "ns/cm007"), []byte("no record"))
				})
				if _, err := l.s.ListErr(); !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
				return l
			}, nil, true},
	} {
		for _, registered := range []bool{true, false} {
			if registered && tc.open == nil || !registered && tc.closed == nil {
				continue
			}
			t.Run(fmt.Sprint(name, ", registered: ", registered), func(t *testing.T) {
				path := testPath(t)
				l := reopen(t, path, o)
				srv := server{}
				for i := range 200 {
					srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
				}
				relist(t, l.s, "500", RelistOptions{}, srv.list(), 50)
				p := &testProducer{}
				l.s.Feed.Attach(p)
				h, heard := claimHandler(t, l.s, "test")
				handled(t, h)
				p.add(t, l.s, configMap("ns", "one", 501, nil))
				p.wait(t)
				srv.set(configMap("ns", "one", 501, nil))
				if registered {
					l = tc.open(t, l)
				} else {
					must(t, h.Release())
					l.s.Release()
					closeTest(t, l.db)
					l = tc.closed(t, l)
				}
				delete(srv, "ns/cm007")
				relist(t, l.s, "600", RelistOptions{}, srv.list(), 50)
				if st := handlerState1(t, l.s); st.Reset != tc.lost {
					t.Errorf("%+v", st)
				}
				if registered {
					p.add(t, l.s, configMap("ns", "two", 601, nil))
					p.wait(t)
				}
				if n := heard.wasReset(); n != map[bool]int{true: 1}[registered && tc.lost] {
					t.Errorf("told %d times that a Reset is owed", n)
				}
				if _, err := os.Stat(path); err != nil {
					t.Fatal(err)
				}
				if r, err := l.db.Check(); err != nil || !r.Sound() {
					t.Errorf("%+v %v", r, err)
				}
			})
		}
	}
}

// TestHandlerOfUnmetDamage: damage in records that no read has met before a list compares
// them, in a plain and in an encrypted file. The list begins again, and durable handlers
// are told a Reset: a damaged key no longer says whose record it was.
func TestHandlerOfUnmetDamage(t *testing.T) {
	for name, damage := range map[string]func(items *bolt.Bucket, k, v []byte) error{
		"a record": func(items *bolt.Bucket, k, v []byte) error {
			v[len(v)/2] ^= 1
			return items.Put(k, v)
		},
		"a key": func(items *bolt.Bucket, k, v []byte) error {
			other := bytes.Clone(k)
			other[len(k)-1] ^= 1 << 6
			return errors.Join(items.Delete(k), items.Put(other, v))
		},
		"zeros": func(items *bolt.Bucket, k, v []byte) error {
			return errors.Join(items.Delete(k), items.Put(make([]byte, len(k)), make([]byte, len(v))))
		},
		"gone": func(items *bolt.Bucket, k, v []byte) error { return items.Delete(k) },
	} {
		for what, ks := range map[string]*seal.Keyset{"plain": nil, "encrypted": sealtest.Keyset()} {
			for _, deleted := range []bool{true, false} {
				t.Run(fmt.Sprint(name, ", ", what, ", deleted: ", deleted), func(t *testing.T) {
					db := openTest(t, testPath(t), Options{Window: time.Nanosecond, Keyset: ks})
					s := claimTest(t, db, Claim{Indexers: indexers})
					srv := server{}
					for i := range 20 {
						srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
					}
					relist(t, s, "500", RelistOptions{}, srv.list(), 50)
					p := &testProducer{}
					s.Feed.Attach(p)
					h, heard := claimHandler(t, s, "test")
					handled(t, h)
					p.add(t, s, configMap("ns", "one", 501, nil))
					p.wait(t)
					srv.set(configMap("ns", "one", 501, nil))
					must(t, db.h.update(func(tx *bolt.Tx) error {
						src, _ := db.h.source(tx, configMaps.ID())
						items := src.contents().Items
						k := index.AppendKey(nil, "ns/cm007")
						at, _ := items.Cursor().Seek(nil)
						for c := items.Cursor(); ; {
							if place, r := c.Seek(at); string(r.Key) == string(k) {
								return damage(items.Bucket, bytes.Clone(place), bytes.Clone(r.Stored))
							}
							at, _ = c.Next()
						}
					}, nil))
					if deleted {
						delete(srv, "ns/cm007")
					}
					srv.set(configMap("ns", "two", 600, nil))
					lists := relistAgain(t, s, "600", srv.list())
					if st := handlerState1(t, s); !st.Reset || lists != 2 {
						t.Errorf("%+v after %d lists", st, lists)
					}
					p.add(t, s, configMap("ns", "three", 601, nil))
					p.wait(t)
					if heard.wasReset() == 0 {
						t.Error("the handler was not told that a Reset is owed")
					}
					srv.set(configMap("ns", "three", 601, nil))
					sameObjects(t, "after", srv.anys(), s.List())
					if r, err := db.Check(); err != nil || !r.Sound() || s.Err() != nil {
						t.Errorf("%+v %v %v", r, err, s.Err())
					}
				})
			}
		}
	}
}
