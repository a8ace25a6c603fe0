package boltstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestOwnWriteDuringStagedRelist: an own write while a list is staged stays when the list is
// committed, and is told when the server brings it.
func TestOwnWriteDuringStagedRelist(t *testing.T) {
	for _, first := range []bool{true, false} {
		for name, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}} {
			for _, shown := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " first ", first, " shown ", shown), func(t *testing.T) {
					o.Durability, o.maxCommitBytes = DurabilityProcess, 1
					f := newOwnTest(t, o)
					if !first {
						f.list(5)
					}
					r, err := f.s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
					f.must(err)
					base := "nothing"
					f.must(r.Page([]runtime.Object{configMap("z", "other", 6, nil), configMap("z", "another", 6, nil)}))
					if shown {
						base = "6x"
						f.must(r.Page([]runtime.Object{at(6, "x")}))
					}
					f.must(f.s.Update(at(70, "y")))
					f.must(f.s.Update(configMap("z", "lost", 6, nil)))
					_, err = r.Commit("60", time.Now())
					f.must(err)
					f.from = f.s.State().Seq + 1
					if f.read() != "70y" || f.replay() != base || f.bases() != 1 {
						t.Fatalf("%s is read, %s is shown, %d bases", f.read(), f.replay(), f.bases())
					}
					if r, err := f.db.Check(); err != nil || !r.Sound() {
						t.Fatalf("%+v %v", r, err)
					}
					f.event(cache.Updated, at(70, "y"))
					want := map[bool]string{true: "Updated 6x>70y", false: "Added 70y"}[shown]
					if f.told() != want || f.bases() != 0 || f.read() != "70y" {
						t.Fatalf("told %q, not %q; %d bases", f.told(), want, f.bases())
					}
				})
			}
		}
	}
}

// TestOwnWriteOfNoVersion: an own write with a version that the list has passed does
// not stay, whether the list is kept in memory or staged.
func TestOwnWriteOfNoVersion(t *testing.T) {
	for _, most := range []int{0, 1} {
		for shown, want := range map[string]*corev1.ConfigMap{"5x": at(5, "x"), "6z": at(6, "z"), "nothing": nil} {
			t.Run(fmt.Sprint(most, " ", shown), func(t *testing.T) {
				f := newOwnTest(t, Options{Durability: DurabilityProcess, maxCommitBytes: most})
				list := func(rv int) {
					objs := []*corev1.ConfigMap{configMap("z", "new", rv, nil)}
					if want != nil {
						objs = append(objs, want)
					}
					f.list(rv, objs...)
				}
				f.list(5, at(5, "x"))
				f.must(f.s.Update(at(50, "mine")))
				list(49)
				if got := f.read(); got != "50mine" || f.bases() != 1 || f.replay() != shown {
					t.Fatal(got, f.bases(), f.replay())
				}
				list(50)
				if got := f.read(); got != shown || f.bases() != 0 {
					t.Fatal(got, f.bases())
				}
			})
		}
	}
}

// TestOwnWriteIsKept: a differing object that a relist can no longer get stays with its
// base. So does one that cannot be stored.
func TestOwnWriteIsKept(t *testing.T) {
	for _, o := range []Options{{Durability: DurabilityProcess}, {Durability: DurabilityProcess, maxCommitBytes: 1}} {
		for _, own := range []func(s *Claimed) error{
			func(s *Claimed) error { return s.Update(at(7, "y")) },
			func(s *Claimed) error { return s.Delete(at(5, "x")) },
		} {
			f := newOwnTest(t, o)
			f.list(5, at(5, "x"))
			f.from = f.s.State().Seq + 1
			f.must(own(f.s))
			read := f.read()
			r, err := f.s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
			f.must(err)
			f.must(r.Page([]runtime.Object{configMap("z", "other", 9, nil)}))
			f.must(r.Keep([]listing.Object{{Namespace: "a", Name: "o", UID: "uid-o", ResourceVersion: "9"}}))
			_, err = r.Commit("9", time.Now())
			f.must(err)
			if f.read() != read || f.replay() != "5x" || f.bases() != 1 {
				t.Fatalf("%s is read, not %s; %s is shown; %d bases", f.read(), read, f.replay(), f.bases())
			}
			f.event(cache.Updated, at(10, "z"))
			if f.told() != "Updated 5x>10z" || f.read() != "10z" {
				t.Fatal(f.told(), f.read())
			}
		}
	}
}

// TestPackedBase: packed bases are compared with what the server shows, also by a program
// that packs nothing.
func TestPackedBase(t *testing.T) {
	path := testPath(t)
	objs := somePods(0, 300)
	o := Options{Compression: CompressionZstd, Durability: DurabilityProcess}
	db := openTest(t, path, o)
	s := claimTest(t, db, podClaim())
	relist(t, s, "300", RelistOptions{}, objs, 100)
	for _, obj := range objs {
		pod := obj.DeepCopyObject().(*corev1.Pod)
		pod.Spec.NodeName = "another"
		if err := s.Update(pod); err != nil {
			t.Fatal(err)
		}
	}
	closeTest(t, db)
	o.Compression = CompressionNone
	db = openTest(t, path, o)
	s = claimTest(t, db, podClaim())
	for _, obj := range objs {
		pod := obj.DeepCopyObject().(*corev1.Pod)
		pod.Spec.NodeName = "a third"
		if err := s.Update(pod); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.metaNow().Own.Count; n != 300 {
		t.Fatalf("%d bases", n)
	}
	relist(t, s, "301", RelistOptions{}, objs, 100)
	serves(t, s, objs)
	if n := s.metaNow().Own.Count; n != 0 {
		t.Fatalf("%d bases are left", n)
	}
}

// TestOwnWritesBeforeTheFirstList: only readers see own writes before the first list,
// which they neither end nor spoil.
func TestOwnWritesBeforeTheFirstList(t *testing.T) {
	for name, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}} {
		for _, when := range []string{"before", "meanwhile", "in between", "both"} {
			t.Run(name+" "+when, func(t *testing.T) {
				f := newOwnTest(t, o)
				l := newFirstList(t, listed(100).list(), 10)
				write := func(at string, content string) {
					if when == at || when == "both" {
						f.must(f.s.Update(configMap("a", "o", 3, map[string]string{"words": content})))
						if got := f.read(); got != "3"+content {
							t.Fatalf("read %s", got)
						}
					}
				}
				write("before", "x")
				if f.bases() != 0 {
					t.Fatal("a base is kept where the server has shown nothing")
				}
				r, from := l.begin(f.s)
				f.must(l.read(r, from, 2))
				write("meanwhile", "y")
				f.must(l.read(r, 2, 3))
				r.Abort()
				closeTest(t, f.db)
				f.open()
				write("in between", "z")
				if st := f.s.State(); st.Synced {
					t.Fatalf("%+v", st)
				}
				if p, err := f.s.ServerPage(nil, 100); p.Synced || err != nil {
					t.Fatal("handlers are shown objects before the first list: ", p, err)
				}
				if from := l.attempt(f.s, 1000); from != 3 {
					t.Fatalf("the list went on from page %d", from)
				}
				wants(t, "listed", f.s, listed(100))
			})
		}
	}
}

// TestOwnWritesAlone: a store without lists keeps no bases, and its program states the
// resume point.
func TestOwnWritesAlone(t *testing.T) {
	f := newOwnTest(t, Options{})
	f.must(f.s.Replace([]any{at(5, "x"), configMap("z", "other", 1, nil)}, "5"))
	f.must(f.s.Update(at(6, "y")))
	f.must(f.s.Delete(configMap("z", "other", 1, nil)))
	f.s.Bookmark("9")
	if st := f.s.State(); f.bases() != 0 || st.ResourceVersion != "9" || st.Objects != 1 || f.read() != "6y" {
		t.Fatalf("%d bases, %+v", f.bases(), st)
	}
	closeTest(t, f.db)
	f.open()
	if st := f.s.State(); st.ResourceVersion != "9" || f.read() != "6y" {
		t.Fatalf("%+v", st)
	}
}

// TestDamagedBase: a damaged base, or one that another program has left behind, is
// noticed, and the source is relisted.
func TestDamagedBase(t *testing.T) {
	for name, damage := range map[string]func(src sourceTx, m *sourceMeta) error{
		"flipped": func(src sourceTx, m *sourceMeta) error {
			own := src.gen(m.Generation).Own
			k, v := own.Bucket.Cursor().First()
			v = append([]byte(nil), v...)
			v[len(v)-1] ^= 1
			return own.Bucket.Put(append([]byte(nil), k...), v)
		},
		"gone": func(src sourceTx, m *sourceMeta) error {
			return src.gen(m.Generation).Bucket.DeleteBucket(layout.BucketOwn)
		},
		"left by a program that does not know of it": func(_ sourceTx, m *sourceMeta) error {
			m.Own = digest{}
			return nil
		},
	} {
		for keys, o := range map[string]Options{"plain": {Durability: DurabilityProcess}, "encrypted": {Durability: DurabilityProcess, Keyset: sealtest.Keyset()}} {
			t.Run(name+" "+keys, func(t *testing.T) {
				f := newOwnTest(t, o)
				f.list(5, at(5, "x"))
				f.from = f.s.State().Seq + 1
				f.must(f.s.Update(at(7, "y")))
				f.must(f.s.updateMeta(damage))
				if r, err := f.db.Check(); err != nil || r.Sound() {
					t.Fatalf("not noticed: %+v %v", r, err)
				}
				f.s.Release()
				f.must(f.db.Close())
				f.open()
				if f.s.Err() == nil {
					t.Fatal("not noticed by the next life")
				}
				if f.read() != "7y" {
					t.Fatal(f.read())
				}
				f.list(9, at(9, "z"))
				if err := f.s.Err(); err != nil || f.read() != "9z" || f.bases() != 0 {
					t.Fatal(err, f.read(), f.bases())
				}
				if got := f.told(); !strings.HasSuffix(got, "9z") {
					t.Fatal("told ", got)
				}
			})
		}
	}
}
