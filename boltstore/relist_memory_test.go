package boltstore

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestRelistLetsObjectsGo: only the first of many differences keep their decoded objects.
// An index that is added meanwhile has all of them, and handlers are told all of them.
func TestRelistLetsObjectsGo(t *testing.T) {
	for _, c := range []Compression{CompressionNone, CompressionZstd} {
		t.Run(fmt.Sprint("compression ", c), func(t *testing.T) {
			db := openTest(t, testPath(t), Options{Compression: c, maxCommitBytes: 100 << 20})
			s := claimTest(t, db, podClaim())
			const n = 400
			objs := somePods(0, n)
			relist(t, s, "500", RelistOptions{}, objs, 100)
			var changed []runtime.Object
			for i, o := range objs {
				p := o.(*corev1.Pod).DeepCopy()
				p.ResourceVersion = fmt.Sprint(1000 + i)
				p.Labels["round"] = "two"
				changed = append(changed, p)
			}
			r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < n; i += 50 {
				if err := r.Page(changed[i : i+50]); err != nil {
					t.Fatal(err)
				}
			}
			kept := 0
			for _, it := range r.found.items {
				if it.c.obj != nil {
					kept += it.c.Size()
				}
			}
			if kept == 0 || kept > keepDecoded+20_000 {
				t.Errorf("%d bytes of changes are kept with their objects", kept)
			}
			if err := s.AddIndexers(cache.Indexers{"round": func(o any) ([]string, error) {
				return []string{o.(*corev1.Pod).Labels["round"]}, nil
			}}); err != nil {
				t.Fatal(err)
			}
			entries, err := r.Commit("2000", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != n {
				t.Fatalf("%d entries", len(entries))
			}
			for _, e := range entries {
				if o, err := e.Object(); err != nil || o.(*corev1.Pod).Labels["round"] != "two" {
					t.Fatal(o, err)
				}
			}
			if got, err := s.ByIndex("round", "two"); err != nil || len(got) != n {
				t.Errorf("%d in the index, %v", len(got), err)
			}
			if rep, err := db.Check(); err != nil || !rep.Sound() {
				t.Errorf("%+v %v", rep, err)
			}
		})
	}
}
