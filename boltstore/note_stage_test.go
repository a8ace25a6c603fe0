package boltstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestStagedNotes: a staged relist has its own notes, and leaves none behind if it is
// aborted.
func TestStagedNotes(t *testing.T) {
	db := openTest(t, testPath(t), Options{maxCommitBytes: 4000})
	bad := []string{"cm7"}
	s := claimTest(t, db, failing(&bad))
	srv := server{}
	for i := range 30 {
		srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"words": strings.Repeat("w", 300)}))
	}
	relistSome(t, s, "100", RelistOptions{Transform: refusing("cm1", "cm2")}, srv.list())
	expectNoted(t, "the first list", s, "ns/cm1 at 2", "ns/cm2 at 3", "ns/cm7 odd")
	for i := range 20 {
		srv.set(configMap("ns", fmt.Sprint("cm", i+10), i+101, map[string]string{"words": strings.Repeat("x", 300)}))
	}
	delete(srv, "ns/cm2")
	r, err := s.BeginRelist(RelistOptions{Transform: refusing("cm1", "cm12"), OnError: func(runtime.Object, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page(srv.list()); err != nil {
		t.Fatal(err)
	}
	if r.stage == nil {
		t.Fatal("not staged")
	}
	r.Abort()
	expectNoted(t, "aborted", s, "ns/cm1 at 2", "ns/cm2 at 3", "ns/cm7 odd")
	relistSome(t, s, "200", RelistOptions{Transform: refusing("cm1", "cm12")}, srv.list())
	expectNoted(t, "staged", s, "ns/cm1 at 2", "ns/cm12 at 103", "ns/cm7 odd")
	if obj, _, err := s.GetByKey("ns/cm12"); err != nil || obj.(*corev1.ConfigMap).ResourceVersion != "13" {
		t.Errorf("%v %v", obj, err)
	}
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Errorf("%+v %v", r, err)
	}
}

// TestNotesOfAnInterruptedList: a relist that continues an interrupted first list knows
// its unstored objects.
func TestNotesOfAnInterruptedList(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	var objs []runtime.Object
	for i := range 9 {
		objs = append(objs, configMap("ns", fmt.Sprint("cm", i), i+1, nil))
	}
	l := newFirstList(t, objs, 3)
	l.o.Transform, l.o.OnError = refusing("cm1"), func(runtime.Object, error) {}
	r, _ := l.begin(s)
	if err := r.PageTo(l.pages[0], l.to(1)); err != nil {
		t.Fatal(err)
	}
	r.Abort()
	closeTest(t, db)
	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{})
	r, n := l.begin(s)
	if n != 1 {
		t.Fatalf("%d pages were taken up", n)
	}
	for ; n < len(l.pages); n++ {
		if err := r.PageTo(l.pages[n], l.to(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Commit("100", time.Now()); err != nil {
		t.Fatal(err)
	}
	expectNoted(t, "taken up", s, "ns/cm1 at 2")
}
