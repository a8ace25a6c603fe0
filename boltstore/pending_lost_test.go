package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// setDamages are ways in which a set of pending keys is damaged in the file. met says that
// the next change of a/0 meets it.
var setDamages = map[string]struct {
	met    bool
	damage func(src sourceTx, m *sourceMeta) error
}{
	"the key is damaged": {true, func(src sourceTx, _ *sourceMeta) error {
		return changePending(src, "a/0", func(v []byte) []byte { v[len(v)/2] ^= 1; return v })
	}},
	"another key is damaged": {false, func(src sourceTx, _ *sourceMeta) error {
		return changePending(src, "a/1", func(v []byte) []byte { v[len(v)/2] ^= 1; return v })
	}},
	"a key in the place of another": {true, func(src sourceTx, _ *sourceMeta) error {
		other := bytes.Clone(src.pending("test").Get(index.AppendKey(nil, "a/1")))
		return changePending(src, "a/0", func([]byte) []byte { return other })
	}},
	"a key is gone": {false, func(src sourceTx, _ *sourceMeta) error {
		return src.pending("test").Delete(index.AppendKey(nil, "a/1"))
	}},
	"the set is gone": {true, func(src sourceTx, _ *sourceMeta) error {
		return src.Root.Bucket(layout.BucketPending).DeleteBucket([]byte("test"))
	}},
	"all sets are gone": {true, func(src sourceTx, _ *sourceMeta) error {
		return src.Root.DeleteBucket(layout.BucketPending)
	}},
	"a value in the place of the set": {true, func(src sourceTx, _ *sourceMeta) error {
		b := src.Root.Bucket(layout.BucketPending)
		return errors.Join(b.DeleteBucket([]byte("test")), b.Put([]byte("test"), []byte("not a bucket")))
	}},
	"a value in the place of all sets": {true, func(src sourceTx, _ *sourceMeta) error {
		return errors.Join(src.Root.DeleteBucket(layout.BucketPending),
			src.Root.Put(layout.BucketPending, []byte("not a bucket")))
	}},
	"nothing is known of the handler": {true, func(_ sourceTx, m *sourceMeta) error {
		delete(m.Handlers, "test")
		return nil
	}},
}

func changePending(src sourceTx, key string, change func(v []byte) []byte) error {
	box, k := src.pending("test"), index.AppendKey(nil, key)
	return box.Put(k, change(bytes.Clone(box.Get(k))))
}

// lossOf is a file with ten objects, one of them deleted. Its handler has acknowledged some.
type lossOf struct {
	t     *testing.T
	db    *DB
	s     *Claimed
	p     *testProducer
	h     *Handler
	heard *heard
	rv    int
}

func newLoss(t *testing.T, ks *seal.Keyset) *lossOf {
	l := &lossOf{t: t, rv: 100}
	l.db = openTest(t, testPath(t), Options{Window: time.Nanosecond, Logger: new(logr.Discard()), Keyset: ks})
	l.s = claimTest(t, l.db, Claim{})
	var objs []runtime.Object
	for i := range 10 {
		objs = append(objs, configMap("a", fmt.Sprint(i), i+1, nil))
	}
	relist(t, l.s, "100", RelistOptions{}, objs, 10)
	l.p = &testProducer{}
	l.s.Feed.Attach(l.p)
	l.h, l.heard = claimHandler(t, l.s, "test")
	handled(t, l.h)
	event(t, l.s, l.p, "Deleted", configMap("a", "9", 101, nil), nil)
	for i := range 5 {
		l.change(i)
	}
	return l
}

func (l *lossOf) change(i int) {
	l.t.Helper()
	l.rv++
	l.p.add(l.t, l.s, configMap("a", fmt.Sprint(i), l.rv, nil))
	l.p.wait(l.t)
}

func (l *lossOf) damaged(damage func(src sourceTx, m *sourceMeta) error) {
	l.t.Helper()
	must(l.t, l.s.updateMeta(damage))
}

// tellsAll checks that the handler is told a Reset, and then every object.
func (l *lossOf) tellsAll(h *Handler) {
	l.t.Helper()
	if st := handlerState1(l.t, l.s); !resetOwed(h) || !st.Reset || !st.Behind || st.Pending != 9 ||
		len(keysOf(l.t, h)) > 0 {
		l.t.Errorf("before the Reset: %+v, %q", st, keysOf(l.t, h))
	}
	tookReset(l.t, h)
	var keys []string
	for _, p := range pendingOf(l.t, h) {
		if !p.Initial || len(p.Deleted) > 0 || p.Object == nil {
			l.t.Errorf("%+v", p)
		}
		keys = append(keys, p.Key)
	}
	want := []string{"a/0", "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7", "a/8"}
	if !slices.Equal(keys, want) {
		l.t.Errorf("told %q", keys)
	}
	handled(l.t, h)
	must(l.t, l.db.Err())
}

// TestDamagedSet: a handler's pending keys are damaged in the file. It is told a Reset and
// all objects, once a commit, a read, or the next registration meets the damage. No commit
// fails.
func TestDamagedSet(t *testing.T) {
	for form, ks := range map[string]*seal.Keyset{"plain": nil, "encrypted": sealtest.Keyset()} {
		for name, tc := range setDamages {
			t.Run(fmt.Sprint(form, ", ", name, ", registered"), func(t *testing.T) {
				l := newLoss(t, ks)
				l.damaged(tc.damage)
				l.change(0)
				if n := l.heard.wasReset(); n != map[bool]int{true: 1}[tc.met] {
					t.Errorf("told %d times that a Reset is owed", n)
				}
				if !tc.met {
					must(t, l.h.Release())
					l.h, _ = claimHandler(t, l.s, "test")
				}
				l.change(1)
				l.tellsAll(l.h)
				must(t, l.s.Err())
			})
			t.Run(fmt.Sprint(form, ", ", name, ", in the next life"), func(t *testing.T) {
				l := newLoss(t, ks)
				must(t, l.h.Release())
				l.damaged(tc.damage)
				l.change(0)
				l.s.Release()
				must(t, l.db.Close())
				l.db = openTest(t, l.db.path, l.db.opts)
				l.s = claimTest(t, l.db, Claim{})
				h, _ := claimHandler(t, l.s, "test")
				l.tellsAll(h)
			})
		}
	}
}

// TestDamagedKeyIsRead: a read meets a pending key that is damaged. The read fails, and the
// handler is told a Reset; it does not stay without that key.
func TestDamagedKeyIsRead(t *testing.T) {
	l := newLoss(t, nil)
	l.damaged(setDamages["another key is damaged"].damage)
	if _, ok, err := l.h.Read("a/1"); !errors.Is(err, ErrDamaged) {
		t.Fatal(ok, err)
	}
	if _, _, err := l.h.Keys(nil, 100); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	l.change(5)
	l.tellsAll(l.h)
	var objs []runtime.Object
	for _, o := range l.s.List() {
		objs = append(objs, o.(runtime.Object))
	}
	relist(t, l.s, "300", RelistOptions{}, objs, 10) // as for any damage that a read meets
	must(t, l.s.Err())
}

// TestPagesOfASetAreLost: a page of a set, of the sets, or of the source is lost, in an open
// file or in one at rest. Each handler has its pending keys, or is told a Reset. If nothing
// was lost, none is.
func TestPagesOfASetAreLost(t *testing.T) {
	for _, where := range []string{"nothing", "a set", "the sets", "the source"} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprint(where, ", open: ", open), func(t *testing.T) {
				path, o := testPath(t), Options{Window: time.Nanosecond, Logger: new(logr.Discard())}
				db := openTest(t, path, o)
				s := claimTest(t, db, Claim{})
				var objs []runtime.Object
				for i := range 200 { // too many to be inlined
					objs = append(objs, configMap("a", fmt.Sprintf("%03d", i), i+1, nil))
				}
				relist(t, s, "300", RelistOptions{}, objs, 100)
				for i := range 3 {
					h, _ := claimHandler(t, s, fmt.Sprint("handler-", i))
					tookReset(t, h)
					must(t, h.Release())
				}
				page := 0
				must(t, db.h.view(func(tx *bolt.Tx) error {
					src, _ := db.h.source(tx, configMaps.ID())
					b := src.Root
					if where != "the source" {
						b = b.Bucket(layout.BucketPending)
					}
					if where == "a set" {
						b = b.Bucket([]byte("handler-1"))
					}
					page = int(b.Root())
					return nil
				}))
				if page == 0 {
					t.Fatal("an inline bucket")
				}
				lose := func() {
					if where != "nothing" {
						ruin(t, path, page)
					}
				}
				if open {
					lose()
					killed(t, db)
				} else {
					closeTest(t, db)
					lose()
				}
				db = openTest(t, path, o)
				s = claimTest(t, db, Claim{})
				resets := 0
				for i := range 3 {
					h, _ := claimHandler(t, s, fmt.Sprint("handler-", i))
					if resetOwed(h) {
						resets++
						continue
					}
					if keys := keysOf(t, h); len(keys) != 200 {
						t.Errorf("handler-%d has %d pending keys", i, len(keys))
					}
				}
				if lost := where == "the sets"; lost && resets != 3 || where == "a set" && resets != 1 ||
					where == "nothing" && resets > 0 {
					t.Errorf("%d handlers are told a Reset", resets)
				}
			})
		}
	}
}
