package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// bucketAt returns the bucket at path in the file f.
func bucketAt(t *testing.T, f *pages.File, path ...[]byte) pages.Bucket {
	t.Helper()
	b := f.Top()
	for _, name := range path {
		var err error
		if b, err = f.Find(b, name); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestBranchKey: a flipped bit in a key of a branch page, which makes bbolt search in
// the wrong page. The file is replaced. All objects are found by key, and deletes are
// told.
func TestBranchKey(t *testing.T) {
	path := testPath(t)
	o := Options{decrypt: true} // the place depends on the names
	srv := stored(t, path, 600, 0, o)
	f, done, err := pages.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	items := bucketAt(t, f, layout.BucketSources, []byte(configMaps.ID()), layout.BucketItems)
	rewritePage(t, path, f, items.Root, func(p pages.Page, b []byte) {
		if p.Flags != pages.Branch {
			t.Fatalf("%+v", p)
		}
		e := b[pages.HeadSize+16*(p.Count/2):]
		pos, size := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
		e[pos+size-1] ^= 4
	})
	db := openTest(t, path, Options{decrypt: true, Window: time.Nanosecond})
	if len(db.AsidePaths()) != 1 {
		t.Error("it was not noticed")
	}
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	for key, cm := range srv {
		if _, ok, err := s.GetByKey(key); !ok || err != nil {
			t.Fatal(key, err)
		}
		if !strings.HasSuffix(key, "7") {
			continue
		}
		c, err := s.Feed.Prepare(cache.Deleted, cm)
		if err != nil {
			t.Fatal(err)
		}
		p.put(&Batch{Changes: []*Change{c}, ResourceVersion: "9999"})
		s.wake(true)
		p.wait(t)
		delete(srv, key)
	}
	if len(p.entries) != 60 {
		t.Errorf("%d of 60 deletes were told", len(p.entries))
	}
	sameObjects(t, "after", srv.anys(), s.List())
}

// TestBranchKeyBeyondPage: a branch page with a key position outside it.
func TestBranchKeyBeyondPage(t *testing.T) {
	path := testPath(t)
	srv := stored(t, path, 600, 0, Options{decrypt: true})
	f, done, err := pages.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	items := bucketAt(t, f, layout.BucketSources, []byte(configMaps.ID()), layout.BucketItems)
	rewritePage(t, path, f, items.Root, func(p pages.Page, b []byte) { b[pages.HeadSize+16*(p.Count/2)+3] ^= 0x80 })
	db := openTest(t, path, Options{decrypt: true})
	if len(db.AsidePaths()) != 1 {
		t.Error("it was not noticed")
	}
	sameObjects(t, "after", srv.anys(), claimTest(t, db, Claim{}).List())
}

// TestSeparatorsAreFirstKeys: bbolt's own files pass the check of separators, whatever
// is put and deleted, and however long the keys are.
func TestSeparatorsAreFirstKeys(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	r := rand.New(rand.NewPCG(1, 2))
	at := 0
	for round := range 25 {
		var ts []cache.Transaction
		for range 400 {
			at = (at + 1 + r.IntN(3)) % 3000
			if r.IntN(20) == 0 {
				at = r.IntN(3000)
			}
			data := map[string]string{"words": fmt.Sprint(r.IntN(5), ",", r.IntN(900))}
			if r.IntN(30) == 0 {
				data["long"] = strings.Repeat("long", r.IntN(6000))
			}
			typ := cache.TransactionTypeAdd
			if r.IntN(2) == 0 {
				typ = cache.TransactionTypeDelete
			}
			ts = append(ts, cache.Transaction{Type: typ,
				Object: configMap("ns", fmt.Sprintf("cm%04d", at), round+1, data)})
		}
		if err := s.Transaction(ts...); err != nil {
			t.Fatal(err)
		}
		if _, err := precheck(path); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		late, err := precheckLate(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := late.In(f); !same || err != nil {
			t.Fatal(same, err)
		}
		if err := errors.Join(late.Rest(), f.Close()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
