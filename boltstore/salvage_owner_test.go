package boltstore

import (
	"bytes"
	"os"
	"testing"

	"github.com/go-logr/logr"
	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestPageOfAnotherSource: the disk brings back a page from a time when another source
// used it, with its records or its journal. No object of the other source is served or
// told.
func TestPageOfAnotherSource(t *testing.T) {
	for part, root := range map[string]func(t sourceTx, m *sourceMeta) *bolt.Bucket{
		"items":   func(t sourceTx, m *sourceMeta) *bolt.Bucket { return t.contents().Items.Bucket },
		"journal": func(t sourceTx, _ *sourceMeta) *bolt.Bucket { return t.Root.Bucket(layout.BucketJournal) },
	} {
		for _, memory := range []int64{-1, 1 << 20} {
			t.Run(part, func(t *testing.T) {
				o := Options{Logger: new(logr.Discard()), ObjectMemory: memory}
				path := testPath(t)
				db := openTest(t, path, o)
				var stores []*Claimed
				for _, ns := range []string{"a", "b"} {
					src := configMaps
					src.LabelSelector = "of=" + ns // so that both have the same keys
					s := claimTest(t, db, Claim{Source: src})
					var objs []runtime.Object
					for _, name := range []string{"x", "y", "z"} { // too large to be inlined
						objs = append(objs, configMap("default", name, 5,
							map[string]string{"of": ns, "text": string(bytes.Repeat([]byte("t"), 500))}))
					}
					relist(t, s, "9", RelistOptions{}, objs, 10)
					p := &testProducer{}
					s.Feed.Attach(p)
					for i := range 14 {
						event(t, s, p, "Updated", configMap("default", "x", 10+i,
							map[string]string{"of": ns, "text": string(bytes.Repeat([]byte("u"), 500))}), nil)
					}
					stores = append(stores, s)
				}
				pages := make([]int, 2)
				for i, s := range stores {
					must(t, s.view(func(m *sourceMeta, src sourceTx) error {
						pages[i] = int(root(src, m).Root())
						return nil
					}))
				}
				if pages[0] == 0 || pages[1] == 0 {
					t.Fatal("inlined", pages)
				}
				closeTest(t, db)
				file, err := os.ReadFile(path)
				must(t, err)
				size := os.Getpagesize()
				copy(file[pages[1]*size+8:][:size-8], file[pages[0]*size+8:][:size-8]) // but for the page's own number
				must(t, os.WriteFile(path, file, 0o600))
				db = opened(t, path, o)
				s := claimTest(t, db, Claim{Source: stores[1].Source()})
				for range 2 { // the second time after the damage was met
					for _, obj := range s.List() {
						if of := obj.(*corev1.ConfigMap).Data["of"]; of != "b" {
							t.Errorf("%s of %s is served", obj.(*corev1.ConfigMap).Name, of)
						}
					}
					if obj, ok, err := s.GetByKey("default/y"); err == nil && ok &&
						obj.(*corev1.ConfigMap).Data["of"] != "b" {
						t.Error("it is got")
					}
				}
				for seq := uint64(1); ; {
					entries, err := s.Feed.ReadJournal(seq)
					for _, e := range entries {
						if obj, err := e.Object(); err == nil && obj.(*corev1.ConfigMap).Data["of"] != "b" {
							t.Errorf("entry %d is of another source", e.Seq)
						}
						seq = e.Seq + 1
					}
					if err != nil || len(entries) == 0 {
						break
					}
				}
				must(t, db.Close())
			})
		}
	}
}
