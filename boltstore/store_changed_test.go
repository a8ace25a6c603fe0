package boltstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// watcher follows a store by Changed and ListWhole, as its consumers do.
type watcher struct {
	t    *testing.T
	s    *Store
	last Contents
	next <-chan struct{}
}

// sees returns what a consumer sees now, "-" if there is nothing to act on.
func (w *watcher) sees() string {
	w.t.Helper()
	var ended error
	w.next, ended = w.s.Changed()
	objs, is, err := w.s.ListWhole(w.last)
	switch {
	case err != nil:
		return "error"
	case objs == nil && ended != nil:
		return "end"
	case objs == nil:
		return "-"
	}
	w.last = is
	var all []string
	for _, o := range objs {
		all = append(all, o.(*corev1.ConfigMap).Name+o.(*corev1.ConfigMap).ResourceVersion)
	}
	slices.Sort(all)
	return "[" + strings.Join(all, " ") + "]"
}

// woken fails unless the awaited change has come.
func (w *watcher) woken(want bool) {
	w.t.Helper()
	select {
	case <-w.next:
		if !want {
			w.t.Error("told of a commit, and there was none")
		}
	default:
		if want {
			w.t.Error("not told of the commit")
		}
	}
}

// TestListWhole: a consumer sees whole states only, each once, and is woken for each,
// from the file and from memory.
func TestListWhole(t *testing.T) {
	for _, memory := range []int64{-1, 1 << 20} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			db := openTest(t, testPath(t),
				Options{Window: time.Nanosecond, Durability: DurabilityProcess, ObjectMemory: memory})
			s := claimTest(t, db, Claim{})
			p := &testProducer{}
			s.Feed.Attach(p)
			w := &watcher{t: t, s: s.Store}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			step := func(what, want string, commit func()) {
				t.Helper()
				commit()
				if w.next != nil {
					w.woken(true)
				}
				if memory > 0 {
					waitMemory(s)
				}
				if got := w.sees(); got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
				w.woken(false)
			}
			cm := func(name string, rv int) *corev1.ConfigMap { return configMap("ns", name, rv, nil) }
			step("before the first list", "-", func() {})
			step("the first list", "[a1 b2 own1]", func() {
				relist(t, s, "2", RelistOptions{}, server{"1": cm("a", 1), "2": cm("b", 2), "3": cm("own", 1)}.list(),
					1)
			})
			step("an event", "[a3 b2 own1]", func() { p.add(t, s, cm("a", 3)); p.wait(t) })
			step("a bookmark", "-", func() { p.put(&Batch{ResourceVersion: "9"}); s.Feed.Flush(); p.wait(t) })
			step("another event", "[a3 b11 own1]", func() { p.add(t, s, cm("b", 11)); p.wait(t) })
			step("a list without differences", "-", func() {
				relist(t, s, "11", RelistOptions{},
					server{"1": cm("a", 3), "2": cm("b", 11), "3": cm("own", 1)}.list(), 3)
			})
			step("damage to what was seen", "-", func() {
				damageRecord(t, db, configMaps, "ns/a")
				if _, _, err := s.reader.get("ns/a"); !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
				w.next = nil // nothing was committed
			})
			step("an event beside damage", "error", func() { p.add(t, s, cm("b", 12)); p.wait(t) })
			step("a list that heals", "[a3 b12]", func() {
				relist(t, s, "12", RelistOptions{}, server{"1": cm("a", 3), "2": cm("b", 12)}.list(), 3)
			})
			step("another transform", "-", func() { s.SetTransformVersion("2"); w.next = nil })
			step("its list of the same", "-", func() {
				relist(t, s, "12", RelistOptions{}, server{"1": cm("a", 3), "2": cm("b", 12)}.list(), 3)
			})
			step("another cluster", "-", func() { must(s.Upstream.Empty()) })
			step("an empty list", "[]", func() { relist(t, s, "20", RelistOptions{}, nil, 1) })
			s.Release()
			w.woken(true)
			if got := w.sees(); got != "end" {
				t.Error(got)
			}
		})
	}
}

// TestChangedEnds: consumers are woken when the file is closed under an informer, and a
// view says that it gets no notice.
func TestChangedEnds(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
	s := claimTest(t, db, Claim{})
	s.Feed.Attach(&testProducer{})
	relist(t, s, "5", RelistOptions{}, server{"1": configMap("ns", "a", 1, nil)}.list(), 1)
	v, err := db.View(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Changed(); err == nil || errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if objs, _, err := v.ListWhole(Contents{}); err != nil || len(objs) != 1 {
		t.Error(objs, err)
	}
	w := &watcher{t: t, s: s.Store}
	w.sees()
	if err := db.Close(); err == nil {
		t.Error("closed while in use, and no error says so")
	}
	w.woken(true)
	if _, err := s.Changed(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, _, err := s.ListWhole(Contents{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestListWholeOfAProgram: a source that a program fills itself is whole from its first
// write on, even an empty one.
func TestListWholeOfAProgram(t *testing.T) {
	for _, first := range []func(*Claimed) error{
		func(s *Claimed) error { return s.Add(configMap("ns", "a", 1, nil)) },
		func(s *Claimed) error { return s.Replace(nil, "5") },
		func(s *Claimed) error { return s.Filled.ReplaceByKey(nil, "5") },
		func(s *Claimed) error {
			return s.Filled.TransactionByKey(cache.ThreadSafeStoreTransaction{Key: "k",
				Transaction: cache.Transaction{Type: cache.TransactionTypeAdd, Object: configMap("ns", "a", 1, nil)}})
		},
	} {
		s := claimTest(t, openTest(t, testPath(t), Options{Durability: DurabilityProcess}), Claim{})
		w := &watcher{t: t, s: s.Store}
		if got := w.sees(); got != "-" {
			t.Error("before the first write: ", got)
		}
		if err := first(s); err != nil {
			t.Fatal(err)
		}
		w.woken(true)
		if got := w.sees(); got == "-" || got == "error" {
			t.Error("after it: ", got)
		}
	}
}
