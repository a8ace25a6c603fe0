package boltstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestMaxSize: a full file accepts no commits and loses nothing: the resume point stays
// and reads go on. Commits succeed once the bound is raised. (A delete needs pages
// before it frees some, so it may not fit either.)
func TestMaxSize(t *testing.T) {
	path := testPath(t)
	o := Options{Window: time.Nanosecond, MaxSize: 4 << 20}
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	sized := func(i, kb int) *corev1.ConfigMap {
		return configMap("a", fmt.Sprint("o", i), i+1, map[string]string{"k": strings.Repeat("x", kb<<10)})
	}
	fill := func(from int) (n int) {
		t.Helper()
		for n < 100 {
			if err := s.Add(sized(from+n, 100)); err != nil {
				if !errors.Is(err, berrors.ErrMaxSizeReached) {
					t.Fatal(err)
				}
				return n
			}
			n++
		}
		t.Fatal("there is no bound")
		return 0
	}
	n := fill(0)
	s.Feed.Attach(p)
	p.add(t, s, sized(n, 1000)) // one like the others may fit after all, as pages come free
	owed := func() bool {       // it has been tried: Err is not nil before, of the write that did not fit
		db.commit.mu.Lock()
		defer db.commit.mu.Unlock()
		return db.commit.owed
	}
	for deadline := time.Now().Add(time.Minute); !owed() || !errors.Is(db.Err(), berrors.ErrMaxSizeReached); {
		if time.Now().After(deadline) {
			t.Fatal(db.Err())
		}
	}
	same := func() {
		t.Helper()
		if got, err := s.ListErr(); err != nil || len(got) != n ||
			s.LastStoreSyncResourceVersion() == fmt.Sprint(n+1) || db.Size() > int64(o.MaxSize) {
			t.Fatalf("%d of %d objects at %s, %d bytes, %v", len(got), n, s.LastStoreSyncResourceVersion(), db.Size(),
				err)
		}
		if r, err := db.Check(); err != nil || !r.Sound() {
			t.Fatalf("%+v %v", r, err)
		}
	}
	same()
	s.Release()
	if err := db.Close(); !errors.Is(err, berrors.ErrMaxSizeReached) {
		t.Fatalf("closed with changes that could not be committed: %v", err)
	}

	o.MaxSize *= 2
	if db, err = Open(path, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, db) })
	s = claimTest(t, db, Claim{})
	if len(db.AsidePaths()) > 0 {
		t.Fatal(db.AsidePaths())
	}
	same()
	p = &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, sized(n, 1000)) // fetched again
	p.wait(t)
	if got := s.List(); len(got) != n+1 || s.LastStoreSyncResourceVersion() != fmt.Sprint(n+1) {
		t.Fatalf("%d objects, not %d, at %s", len(got), n+1, s.LastStoreSyncResourceVersion())
	}
}

// TestSmallMaxSize: the file stays below a bound of any size, and can use most of it.
func TestSmallMaxSize(t *testing.T) {
	for _, most := range []int{300_000, 1_000_000} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			db, err := Open(testPath(t), Options{Window: time.Nanosecond, MaxSize: most, JournalBytes: 1,
				Keyset:       sealtest.Default(),
				ObjectMemory: -1}) // a reader that fills memory would keep pages from being used again
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close() // it says that the last commit has failed
			s := claimTest(t, db, Claim{})
			stored := 0
			for i := range most / 1000 {
				if err := s.Add(configMap("a", fmt.Sprint("o", i), i+1,
					map[string]string{"k": strings.Repeat("x", 3000)})); err != nil {
					if !errors.Is(err, berrors.ErrMaxSizeReached) {
						t.Fatal(err)
					}
					break
				}
				stored += 3000
			}
			if size := db.Size(); size > int64(most) {
				t.Errorf("the file has %d bytes", size)
			}
			if stored < most*2/5 { // a page is not full, and some are of the last commits
				t.Errorf("only %d bytes fit", stored)
			}
			if _, err := db.Compact(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if size := db.Size(); size > int64(most) {
				t.Errorf("compacted the file has %d bytes", size)
			}
		})
	}
}

// TestCompactAboveMaxSize: a file that is larger than a bound that was lowered is read, and
// changed as long as it has free pages. If its content exceeds the bound, a compaction leaves it and says what to do.
func TestCompactAboveMaxSize(t *testing.T) {
	path := testPath(t)
	srv := stored(t, path, 300, 150, Options{Keyset: sealtest.Default()})
	db := openTest(t, path, Options{MaxSize: 64 << 10, Keyset: sealtest.Default()})
	s := claimTest(t, db, Claim{})
	if _, err := db.Compact(t.Context(), nil); !errors.Is(err, berrors.ErrMaxSizeReached) ||
		!strings.Contains(err.Error(), "Options.MaxSize is 65536 bytes, raise it") {
		t.Error(err)
	}
	sameObjects(t, "after the compaction", srv.anys(), s.List())
	srv.set(configMap("ns", "cm0000", 1000, nil))
	if err := s.Update(srv["ns/cm0000"]); err != nil {
		t.Error(err)
	}
	sameObjects(t, "after a change", srv.anys(), s.List())
}
