package boltstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
)

// TestNamelessOfAnAbortedList: a relist in parts that is aborted forgets no unstored object
// whose key is not known.
func TestNamelessOfAnAbortedList(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{maxCommitBytes: 3000})
	c := Claim{KeyFunc: func(obj any) (string, error) {
		o := obj.(*corev1.ConfigMap)
		if o.Name == "bad" {
			return "", errors.New("no key")
		}
		return o.Namespace + "/" + o.Name, nil
	}}
	s := claimTest(t, db, c)
	srv := server{}
	for i := range 10 {
		srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"k": "old"}))
	}
	srv.set(configMap("zz", "bad", 50, nil))
	none := RelistOptions{OnError: func(runtime.Object, error) {}}
	r, err := s.Upstream.BeginRelist(none)
	must(t, err)
	must(t, r.Page(srv.list()))
	_, err = r.Commit("100", time.Now())
	must(t, err)
	if n := s.Feed.UnstoredObjects(); n != 1 {
		t.Fatal(n)
	}
	for k, o := range srv {
		n := o.DeepCopy()
		n.ResourceVersion, n.Data = "200", map[string]string{"k": "new"}
		srv[k] = n
	}
	r, err = s.Upstream.BeginRelist(none)
	must(t, err)
	must(t, r.Page(srv.list()[:8]))
	if r.Journaled() == 0 {
		t.Fatal("not in parts")
	}
	closeTest(t, db)
	db = openTest(t, path, Options{})
	s = claimTest(t, db, c)
	if n := s.Feed.UnstoredObjects(); n != 1 || s.State().ResourceVersion != "100" {
		t.Errorf("at %s, of whose objects one is not stored, %d are noted as unstored", s.State().ResourceVersion, n)
	}
}

// TestOpenListInTheJournal: while a relist journals more than the journal may have, readers
// see the objects of before it, all of one version.
func TestOpenListInTheJournal(t *testing.T) {
	db := openTest(t, testPath(t), Options{JournalBytes: 20 << 10, maxCommitBytes: 1})
	s := claimTest(t, db, Claim{})
	s.Delivery.SetTold(1 << 40)
	rnd := rand.New(rand.NewPCG(1, 2))
	srv := server{}
	set := func(version string) {
		for i := range 100 {
			o := configMap("ns", fmt.Sprintf("cm%03d", i), 0, map[string]string{"k": random(rnd, 2<<10)})
			o.ResourceVersion = version
			srv.set(o)
		}
	}
	set("100")
	relist(t, s, "100", RelistOptions{}, srv.list(), 20)
	set("200")
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(runtime.Object, error) {}})
	must(t, err)
	r.NewestPage("200")
	all := srv.list()
	for i := 0; i < 90; i += 10 {
		must(t, r.Page(all[i:i+10]))
	}
	if st := s.State(); st.NewestPage != "200" || st.ResourceVersion != "100" || st.JournalBytes < 60<<10 {
		t.Errorf("at %s, of pages up to %q, with a journal of %d bytes", st.ResourceVersion, st.NewestPage,
			st.JournalBytes)
	}
	at, _, err := s.Moment("")
	must(t, err)
	keys, objs, _, err := s.PageAt(at, "", nil, 200)
	if err != nil || len(keys) != 100 {
		t.Fatal("list: ", len(keys), err)
	}
	one, _, err := s.GetAt("ns/cm000")
	if err != nil {
		t.Fatal("get: ", err)
	}
	for _, o := range append(objs, one) {
		if o.(*corev1.ConfigMap).ResourceVersion != "100" {
			t.Error("an object of the list that goes on")
		}
	}
	_, err = r.Commit("200", time.Now())
	must(t, err)
	if st := s.State(); st.NewestPage != "" {
		t.Error("after the list, pages up to ", st.NewestPage)
	}
}

// TestGoneUnderAnEarlierTransform: with ServeOutdated, what a durable handler is told of a
// deleted object, while a list under another transform goes on, does not show more than that
// transform leaves.
func TestGoneUnderAnEarlierTransform(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{maxCommitBytes: 3000})
	s := claimTest(t, db, Claim{})
	srv := server{}
	for i := range 10 {
		srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"secret": "old"}))
	}
	relist(t, s, "100", RelistOptions{}, srv.list(), 20)
	h, _ := claimHandler(t, s, "h")
	handled(t, h)
	closeTest(t, db)
	db = openTest(t, path, Options{maxCommitBytes: 3000})
	s = claimTest(t, db, Claim{ServeOutdated: true})
	strip := func(obj any) (any, error) {
		o := obj.(*corev1.ConfigMap)
		o.Data = nil
		return o, nil
	}
	s.SetTransformVersion("2")
	s.Feed.TransformAgain(strip)
	h, _ = claimHandler(t, s, "h")
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(runtime.Object, error) {},
		Transform: func(o runtime.Object) (runtime.Object, error) {
			c := o.DeepCopyObject()
			_, _ = strip(c)
			return c, nil
		}})
	must(t, err)
	for k, o := range srv {
		n := o.DeepCopy()
		n.UID, n.ResourceVersion = "another", "200"
		srv[k] = n
	}
	must(t, r.Page(srv.list()[:8]))
	p, ok, err := h.Read("ns/cm0")
	if err != nil || !ok || len(p.Deleted) != 1 {
		t.Fatal(p, ok, err)
	}
	gone, _ := p.Deleted[0].Object.(cache.DeletedFinalStateUnknown)
	if o, _ := gone.Obj.(*corev1.ConfigMap); o == nil || len(o.Data) > 0 {
		t.Errorf("told that it is gone, with %v", o)
	}
}

// TestLostAndGone: a reader that goes on from the version of before the damage is told of an object whose
// record was lost and that is gone, or has to begin again.
func TestLostAndGone(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	srv := server{}
	for i := range 5 {
		srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, nil))
	}
	relist(t, s, "100", RelistOptions{}, srv.list(), 20)
	must(t, s.db.h.update(func(tx *bolt.Tx) error {
		src, _ := s.db.h.source(tx, s.id)
		return src.contents().Items.Delete(index.AppendKey(nil, "ns/cm1"))
	}, nil))
	s.health.meet(ErrDamaged)
	delete(srv, "ns/cm1")
	srv.set(configMap("ns", "cm2", 150, nil))
	relist(t, s, "200", RelistOptions{}, srv.list(), 20)
	at, _, err := s.MomentFrom("100")
	if err != nil {
		return
	}
	e, err := s.EntriesAfter(at)
	if err != nil {
		return
	}
	keys := []string{}
	for _, x := range e.Entries {
		keys = append(keys, x.Key)
	}
	t.Errorf("a reader of version 100 goes on with changes of %q", keys)
}

// random is a text that cannot be compressed well.
func random(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}
