package boltstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/listing"
)

// wordsOnly is the claim of failing without the index odd.
func wordsOnly() Claim {
	c := failing(&[]string{})
	delete(c.Indexers, "odd")
	return c
}

// beginLarge begins a relist whose differences are committed as they come.
func beginLarge(t *testing.T, s *Claimed) *Relist {
	t.Helper()
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	must(t, err)
	r.found.spilled = true
	return r
}

// wantOne fails unless one object has the value under the index.
func wantOne(t *testing.T, what string, s *Claimed, name, value string) {
	t.Helper()
	if objs, err := s.ByIndex(name, value); err != nil || len(objs) != 1 {
		t.Errorf("%s: %d objects have %q under index %q: %v", what, len(objs), value, name, err)
	}
}

// TestIndicesAfterEmpty: an index has all objects of a source whose contents were set
// aside: none. It stays complete over the first list.
func TestIndicesAfterEmpty(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, failing(&[]string{}))
	relistSome(t, s, "5", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)})
	complete := func(what string) {
		t.Helper()
		for name := range s.GetIndexers() {
			if !s.indices.built(s.metaNow(), name) {
				t.Errorf("%s: index %s is not complete: %+v", what, name, s.metaNow().Indices)
			}
		}
	}
	must(t, s.Upstream.Empty())
	complete("set aside")
	r := beginLarge(t, s)
	must(t, r.Page([]runtime.Object{configMap("ns", "b", 2, nil)}))
	_, err := r.Commit("9", time.Now())
	must(t, err)
	complete("listed")
	wantOne(t, "listed", s, "odd", "v2")
}

// TestEmptiedWhileListed: the contents are set aside while a list is read. The list,
// which is of the previous cluster, begins again.
func TestEmptiedWhileListed(t *testing.T) {
	for _, large := range []bool{true, false} {
		t.Run(fmt.Sprint("large ", large), func(t *testing.T) {
			db := openTest(t, testPath(t), Options{})
			s := claimTest(t, db, failing(&[]string{}))
			objs := []runtime.Object{configMap("ns", "a", 1, nil)}
			relistSome(t, s, "5", RelistOptions{}, objs)
			r, err := s.Upstream.BeginRelist(RelistOptions{})
			must(t, err)
			if large {
				r = beginLarge(t, s)
			}
			must(t, r.Page(append(objs, configMap("ns", "b", 2, nil))))
			must(t, s.Upstream.Empty())
			if _, err := r.Commit("9", time.Now()); !errors.Is(err, ErrAbandoned) {
				t.Errorf("committed: %v", err)
			}
			if st := s.State(); st.Synced || st.Objects > 0 || s.Upstream.Epoch() != 1 {
				t.Errorf("epoch %d, %+v", s.Upstream.Epoch(), st)
			}
			relistSome(t, s, "9", RelistOptions{}, objs)
			wantOne(t, "listed again", s, "odd", "v1")
		})
	}
}

// TestHandlerForgottenWhileListed: a durable handler that has not been registered for a
// long time is removed while a list is read. If it returns it begins with a Reset.
func TestHandlerForgottenWhileListed(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{FlushInterval: 100 * time.Hour, Clock: clk, HandlerAge: 10 * time.Hour})
	s := claimTest(t, db, Claim{})
	objs := []runtime.Object{configMap("ns", "a", 1, nil)}
	relist(t, s, "5", RelistOptions{}, objs, 5)
	gone, _ := claimHandler(t, s, "gone")
	must(t, gone.Release())
	stays, _ := claimHandler(t, s, "stays")
	r := beginLarge(t, s)
	clk.Step(12 * time.Hour)
	handled(t, stays)
	must(t, stays.Release())
	if st := handlerState1(t, s); st.Name != "stays" {
		t.Fatalf("%+v", st)
	}
	must(t, r.Page(objs))
	_, err := r.Commit("9", clk.Now())
	must(t, err)
	if again, _ := claimHandler(t, s, "gone"); !resetOwed(again) {
		t.Error("it returns without a Reset")
	}
}

// TestDescribedWhileListed: discovery's answers while a list is read stay known.
func TestDescribedWhileListed(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	r := beginLarge(t, s) // the first list
	d := Description{Scope: ScopeNamespaced, Names: []string{"cm"}, Categories: []string{"all"},
		Columns: []Column{{Name: "Size", Type: "integer", JSONPath: ".spec.size"}}}
	must(t, s.Describe(d))
	_, err := r.Commit("9", time.Now())
	must(t, err)
	if st := stateIn(t, db); st.Scope != d.Scope ||
		fmt.Sprint(st.Names, st.Categories, st.Columns) != fmt.Sprint(d.Names, d.Categories, d.Columns) {
		t.Errorf("%+v", st)
	}
}

// TestFactsOfAList: facts noted while a list is read stay, and what its end shows is in the
// file with the end, not before.
func TestFactsOfAList(t *testing.T) {
	for _, large := range []bool{true, false} {
		path := testPath(t)
		db := openTest(t, path, Options{})
		s := claimTest(t, db, Claim{})
		server := func(uid string) func(*listing.Facts) {
			return func(f *listing.Facts) { f.Server.ClusterUID = uid }
		}
		must(t, s.Upstream.WriteFacts(server("c0")))
		if !large {
			relist(t, s, "5", RelistOptions{}, nil, 5)
		}
		r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
		must(t, err)
		r.found.spilled = large
		r.Ended = func(f *listing.Facts) { f.Listed, f.Restored = "9", false }
		must(t, s.Upstream.WriteFacts(func(f *listing.Facts) { f.Restored = true }))
		must(t, r.Page([]runtime.Object{configMap("ns", "a", 7, nil)}))
		s.Upstream.NoteFacts(server("c2"))
		db.h.setHook(func(*bolt.Tx) error { return errRefused })
		if _, err := r.Commit("9", time.Now()); !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		want := listing.Facts{Server: listing.Server{ClusterUID: "c2"}, Restored: true}
		if is := s.Upstream.Facts(); is != want {
			t.Errorf("large %v: %+v before the end", large, is)
		}
		db.h.setHook(nil)
		_, err = r.Commit("9", time.Now())
		must(t, err)
		want.Listed, want.Restored = "9", false
		if is, in := s.Upstream.Facts(), s.metaNow().Facts; is != want || in != want || s.State().ClusterUID != "c2" {
			t.Errorf("large %v: %+v, in the file %+v", large, is, in)
		}
		closeTest(t, db)
		if is := claimTest(t, openTest(t, path, Options{}), Claim{}).Upstream.Facts(); is != want {
			t.Errorf("large %v: %+v in the next life", large, is)
		}
	}
}
