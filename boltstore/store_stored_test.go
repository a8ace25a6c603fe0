package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// storedTimes returns key, content and age of all objects that a program stored.
func storedTimes(t *testing.T, s *Claimed, clk *testingclock.FakeClock) string {
	t.Helper()
	var all []string
	for from, more := []byte(nil), true; more; more = from != nil {
		page, next, err := s.Filled.PageStored(from, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page {
			all = append(all, fmt.Sprintf("%s=%s %s", o.Key, o.Object.(*corev1.ConfigMap).Data["words"],
				clk.Since(o.Time)))
			one, ok, err := s.Filled.GetStored(o.Key)
			if err != nil || !ok || one.Object != o.Object &&
				one.Object.(*corev1.ConfigMap).ResourceVersion != o.Object.(*corev1.ConfigMap).ResourceVersion ||
				!one.Time.Equal(o.Time) || one.Lost {
				t.Fatalf("%+v %v %v, and the page has %+v", one, ok, err, o)
			}
		}
		from = next
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// TestStoredTimes: the times at which a program stored its objects survive all operations
// on the file.
func TestStoredTimes(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, memory := range []int64{-1, 1 << 20} {
		o := Options{Durability: DurabilityProcess, Clock: clk, ObjectMemory: memory}
		path := testPath(t)
		db := openTest(t, path, o)
		s := claimTest(t, db, Claim{})
		add := func(name string, rv int) {
			t.Helper()
			if err := s.Update(configMap("a", name, rv, map[string]string{"words": fmt.Sprint(rv)})); err != nil {
				t.Fatal(err)
			}
		}
		add("x", 1)
		add("y", 2)
		add("z", 3)
		clk.Step(time.Minute)
		add("y", 2) // the same again begins the time again
		clk.Step(time.Second)
		add("x", 1) // an older version, too
		want := "[a/x=1 0s a/y=2 1s a/z=3 1m1s]"
		check := func(what string) {
			t.Helper()
			if got := storedTimes(t, s, clk); got != want {
				t.Errorf("after %s: %s, want %s", what, got, want)
			}
		}
		check("writes")
		if memory > 0 {
			loadedInMemory(t, s)
			check("loading")
		}
		if _, err := db.Compact(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		check("compaction")
		snap, err := db.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(snap)
		taken := filepath.Join(t.TempDir(), "snap.db")
		if err := errors.Join(err, snap.Close(), os.WriteFile(taken, b, 0o600)); err != nil {
			t.Fatal(err)
		}
		reopen := func(path string, o Options) {
			closeTest(t, db)
			db = openTest(t, path, o)
			s = claimTest(t, db, Claim{})
		}
		reopen(path, o)
		check("opening again")
		db = saved(t, db)
		s = claimTest(t, db, Claim{})
		check("salvage")
		reopen(taken, o)
		check("a snapshot")
		o.Keyset = sealtest.Keyset()
		reopen(path, o)
		check("encryption")
		db = rotated(t, db)
		s = claimTest(t, db, Claim{})
		check("rotation")
		closeTest(t, db)
	}
}

// TestDeleteStored: an object is removed only if it is the one that was read.
func TestDeleteStored(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0)) // it stands still
	for _, listed := range []bool{false, true} {
		db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, Clock: clk})
		s := claimTest(t, db, Claim{Indexers: indexers})
		if listed {
			if err := s.Add(at(1, "before the list")); err != nil {
				t.Fatal(err)
			}
			relist(t, s, "2", RelistOptions{}, nil, 1)
		}
		get := func() Stored {
			t.Helper()
			o, ok, err := s.Filled.GetStored("a/o")
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			return o
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(s.Add(at(5, "x")))
		old := get()
		must(s.Add(at(6, "y")))
		must(s.Filled.DeleteStored(old))
		if o := get(); o.Object.(*corev1.ConfigMap).ResourceVersion != "6" {
			t.Fatal(o)
		}
		must(s.Filled.DeleteStored(get(), old))
		if _, ok, err := s.Filled.GetStored("a/o"); ok || err != nil {
			t.Fatal(ok, err)
		}
		must(s.Filled.DeleteStored(old))
		must(s.Filled.DeleteStored())
		if s.Filled.FilledByProgram() == listed {
			t.Error(listed)
		}
		if listed {
			must(s.Add(at(7, "x")))
			if o := get(); !o.Time.IsZero() || !o.Lost {
				t.Errorf("the time of an informer's object: %+v", o)
			}
		}
		s.Release()
		if err := s.Filled.DeleteStored(old); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

// TestFilledByInformer: a source with a queue is not the program's.
func TestFilledByInformer(t *testing.T) {
	s := claimTest(t, openTest(t, testPath(t), Options{Durability: DurabilityProcess}), Claim{})
	if !s.Filled.FilledByProgram() {
		t.Error("nobody else fills it")
	}
	s.Feed.Attach(&testProducer{})
	if s.Filled.FilledByProgram() {
		t.Error("a queue fills it")
	}
	s = claimTest(t, openTest(t, testPath(t), Options{Durability: DurabilityProcess}), Claim{})
	s.Feed.ExpectProducer()
	if err := s.Add(at(5, "x")); err != nil || s.Filled.FilledByProgram() {
		t.Error("a queue will fill it", err)
	}
	if objs, _, err := s.ListWhole(Contents{}); objs != nil || err != nil {
		t.Error("it is whole before a queue has filled it: ", objs, err)
	}
}

// TestKey: Key is the claim's key, and errors and panics of its function are errors.
func TestKey(t *testing.T) {
	s := claimTest(t, openTest(t, testPath(t), Options{Durability: DurabilityProcess}),
		Claim{KeyFunc: func(obj any) (string, error) {
			if obj == nil {
				panic("nil")
			}
			return cache.MetaNamespaceKeyFunc(obj)
		}})
	if key, err := s.Key(at(5, "x")); err != nil || key != "a/o" {
		t.Error(key, err)
	}
	for _, obj := range []any{nil, 5} {
		var keyErr cache.KeyError
		if _, err := s.Key(obj); !errors.As(err, &keyErr) {
			t.Error(err)
		}
	}
}
