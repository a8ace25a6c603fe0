package boltstore

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestProgressOfNoUse: an interrupted list from other conditions, or a damaged one, is not
// continued. The list that begins again leaves nothing of it.
func TestProgressOfNoUse(t *testing.T) {
	change := func(t *testing.T, s *Claimed, fn func(src sourceTx) error) {
		t.Helper()
		if err := s.updateMeta(func(src sourceTx, _ *sourceMeta) error { return fn(src) }); err != nil {
			t.Fatal(err)
		}
	}
	firstItem := func(src sourceTx) (g contentsTx, k, v []byte) {
		g = src.contents()
		at, r := g.Items.Cursor().First()
		return g, slices.Clone(at), slices.Clone(r.Stored)
	}
	for name, tc := range map[string]struct {
		before func(t *testing.T, s *Claimed, l *firstList)
		taken  bool
	}{
		"nothing":         {func(*testing.T, *Claimed, *firstList) {}, true},
		"other type":      {func(_ *testing.T, s *Claimed, _ *firstList) { s.form.typeHash = "other" }, false},
		"other transform": {func(_ *testing.T, s *Claimed, _ *firstList) { s.SetTransformVersion("2") }, false},
		"other cluster":   {func(_ *testing.T, _ *Claimed, l *firstList) { l.o.ClusterUID = "c2" }, false},
		"other address":   {func(_ *testing.T, _ *Claimed, l *firstList) { l.o.Server = "s2" }, true},
		"unknown cluster": {func(_ *testing.T, _ *Claimed, l *firstList) { l.o.ClusterUID = "" }, true},
		"unknown cluster, other address": {func(_ *testing.T, _ *Claimed, l *firstList) {
			l.o.ClusterUID, l.o.Server = "", "s2"
		}, false},
		"not taken up": {func(_ *testing.T, _ *Claimed, l *firstList) { l.o.TakeUp = false }, false},
		"damaged record": {func(t *testing.T, s *Claimed, _ *firstList) {
			change(t, s, func(src sourceTx) error {
				g, k, v := firstItem(src)
				v[len(v)-1] ^= 1
				return g.Items.Bucket.Put(k, v)
			})
		}, false},
		"missing record": {func(t *testing.T, s *Claimed, _ *firstList) {
			change(t, s, func(src sourceTx) error { g, k, _ := firstItem(src); return g.Items.Bucket.Delete(k) })
		}, false},
		"missing objects": {func(t *testing.T, s *Claimed, _ *firstList) {
			change(t, s, func(src sourceTx) error {
				return src.Root.DeleteBucket(layout.BucketItems)
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTest(t, testPath(t), Options{Compression: CompressionZstd})
			s := claimTest(t, db, Claim{Indexers: indexers})
			srv := listed(150)
			l := newFirstList(t, srv.list(), 60)
			l.attempt(s, 2)
			tc.before(t, s, l)
			delete(srv, "ns0/cm000") // had it been taken up it would be there
			r, from := l.begin(s)
			if taken := from > 0; taken != tc.taken {
				t.Fatalf("it began at page %d", from)
			}
			if !tc.taken {
				if st := s.State(); st.Synced || st.Objects > 0 {
					t.Fatalf("%+v", st)
				}
				l.pages[0] = l.pages[0][1:]
				if err := l.read(r, 0, len(l.pages)); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Commit("100", l.began); err != nil {
					t.Fatal(err)
				}
				wants(t, "listed again", s, srv)
			}
		})
	}
}

// TestProgressDropped: what an interrupted list has stored is removed when it is of no use.
func TestProgressDropped(t *testing.T) {
	begun := func(t *testing.T, o Options) (string, *DB, *Claimed, *firstList) {
		path := testPath(t)
		db := openTest(t, path, o)
		s := claimTest(t, db, Claim{Indexers: indexers})
		l := newFirstList(t, listed(150).list(), 60)
		l.attempt(s, 2)
		if !hasProgress(t, s) {
			t.Fatal("nothing was left")
		}
		return path, db, s, l
	}
	gone := func(t *testing.T, s *Claimed, l *firstList) {
		t.Helper()
		if hasProgress(t, s) {
			t.Error("it is still there")
		}
		nothing(t, s)
		if from := l.attempt(s, 0); from != 0 {
			t.Errorf("it was taken up at page %d", from)
		}
	}
	t.Run("said", func(t *testing.T) {
		_, _, s, l := begun(t, Options{})
		for range 2 {
			if err := s.Upstream.DropPartial(); err != nil {
				t.Fatal(err)
			}
		}
		if newest := s.metaNow().NewestPage; newest != "" {
			t.Errorf("objects may be as new as %q", newest)
		}
		gone(t, s, l)
	})
	t.Run("emptied", func(t *testing.T) {
		_, _, s, l := begun(t, Options{})
		if err := s.Upstream.Empty(); err != nil {
			t.Fatal(err)
		}
		gone(t, s, l)
	})
	t.Run("collected", func(t *testing.T) {
		path, db, s, _ := begun(t, Options{TrustClock: true})
		s.Release()
		if _, err := db.collecting().collect(context.Background(), -time.Hour); err != nil {
			t.Fatal(err)
		}
		closeTest(t, db)
		b, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if err := b.View(func(tx *bolt.Tx) error {
			if k, _ := tx.Bucket(layout.BucketSources).Cursor().First(); k != nil {
				t.Errorf("%q is there", k)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("not by compaction", func(t *testing.T) {
		_, db, s, l := begun(t, Options{})
		r, from := l.begin(s) // one is under way
		if _, err := db.Compact(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := l.read(r, from, from+1); err != nil {
			t.Fatal(err)
		}
		if from := l.attempt(s, 4); from != 2 {
			t.Errorf("it was taken up at page %d", from)
		}
		wants(t, "after the compaction", s, listed(150))
	})
	t.Run("not by a snapshot", func(t *testing.T) {
		_, db, _, l := begun(t, Options{})
		path := filepath.Join(t.TempDir(), "snapshot.db")
		snap, err := db.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Close()
		b, err := io.ReadAll(snap)
		if err := errors.Join(err, os.WriteFile(path, b, 0o600)); err != nil {
			t.Fatal(err)
		}
		s := claimTest(t, openTest(t, path, Options{}), Claim{Indexers: indexers})
		nothing(t, s)
		if from := l.attempt(s, 4); from != 2 {
			t.Errorf("it was taken up at page %d", from)
		}
		wants(t, "of the snapshot", s, listed(150))
	})
}
