package informer

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
)

// gapped is a handler after its replay, which has been told of nothing since: of
// three deletes, of which the second one's block is damaged, or gone.
func gapped(t *testing.T, lost bool) (*standing, *listener, *recorder, uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	for i := range 3 {
		s.change(cache.Added, fmt.Sprint("old", i))
	}
	s.change(cache.Added, "stays")
	told := s.flush()
	s.d.inf.store.SetTold(told)
	for i := range 3 {
		s.change(cache.Deleted, fmt.Sprint("old", i))
		s.flush()
	}
	rv := s.rv
	s.end()
	inSource(t, path, func(src *bolt.Bucket) error {
		j, k := src.Bucket([]byte("journal")), []byte{0, 0, 0, 0, 0, 0, 0, byte(told + 2)}
		if lost {
			return j.Delete(k)
		}
		b := slices.Clone(j.Get(k))
		b[len(b)-1] ^= 1
		return j.Put(k, b)
	})
	s = stand(t, path, boltstore.Options{})
	s.rv = rv
	r := newRecorder(t)
	if _, err := s.d.inf.AddEventHandler(r); err != nil {
		t.Fatal(err)
	}
	var l *listener
	for l = range s.d.inf.listeners {
	}
	l.gone, l.replay = t.Context(), walk{}
	return s, l, r, told + 3
}

// TestGapIsReplayed: where the journal has lost entries that a handler has still
// to be told, what follows is told, and all objects again.
func TestGapIsReplayed(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			s, l, r, last := gapped(t, lost)
			for l.cursor.Load() < last && l.entries(last) {
			}
			if !l.replaying() || l.page(&l.replay, func(obj any) { r.OnAdd(obj, true) }) && l.replaying() {
				t.Error("no replay")
			}
			r.expect("delete old0", "delete old2", "initial stays")
			s.end()
		})
	}
}

// TestGapWithinAPage: a page that was read before a gap was found is not the
// first that is told after it.
func TestGapWithinAPage(t *testing.T) {
	s, l, _, _ := gapped(t, false)
	l.replay = walk{active: true, begun: true, next: nil, epoch: s.d.inf.store.Epoch()}
	for range 3 {
		l.page(&l.replay, func(any) { t.Error("told") })
		if !l.replay.begun {
			break
		}
	}
	if l.replay.begun || !l.replay.active {
		t.Errorf("%+v", l.replay)
	}
	s.end()
}

// TestTrimmedIsNoGap: what was trimmed since others had been told of it is not
// missed by a handler that comes later.
func TestTrimmedIsNoGap(t *testing.T) {
	s, l, r, last := gapped(t, true)
	l.owed = last
	for l.cursor.Load() < last && l.entries(last) {
	}
	if l.replaying() {
		t.Error("replayed again")
	}
	r.expect("delete old0", "delete old2")
	s.end()
}
