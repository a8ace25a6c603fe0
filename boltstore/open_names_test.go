package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestChangedNames: a flipped bit in a name in the file is damage, even in the boot that
// has written it. The data under that name does not count as never written: a durable
// handler that was there has its pending keys, or begins with a Reset. The next opening sets
// nothing aside.
func TestChangedNames(t *testing.T) {
	for form, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}} {
		path := testPath(t)
		db := openTest(t, path, o)
		s := claimTest(t, db, Claim{})
		relist(t, s, "5", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
		h, _ := claimHandler(t, s, "handler")
		tookReset(t, h) // ns/a is pending
		must(t, h.Release())
		closeTest(t, db)
		file, err := os.ReadFile(path)
		must(t, err)
		names := [][]byte{layout.BucketSources, []byte(s.id), layout.BucketPending, layout.BucketItems,
			[]byte("handler")}
		for _, name := range names {
			t.Run(fmt.Sprintf("%s %.8x", form, name), func(t *testing.T) {
				aside := 0
				for at := bytes.Index(file, name); at >= 0; {
					changed := bytes.Clone(file)
					changed[at+len(name)/2] ^= 1
					path := testPath(t)
					must(t, os.WriteFile(path, changed, 0o600))
					db := openTest(t, path, o)
					aside += len(db.AsidePaths())
					h, _ := claimHandler(t, claimTest(t, db, Claim{}), "handler")
					if keys := keysOf(t, h); !resetOwed(h) && (len(keys) != 1 || keys[0] != "ns/a") {
						t.Errorf("changed at %d: %q are pending, set aside %q", at, keys, db.AsidePaths())
					}
					must(t, db.Close())
					if db = openTest(t, path, o); db.AsidePaths() != nil {
						t.Errorf("changed at %d: set aside again", at)
					}
					must(t, db.Close())
					next := bytes.Index(file[at+1:], name)
					if next < 0 {
						break
					}
					at += 1 + next
				}
				if aside == 0 && string(name) != "handler" {
					t.Error("nothing was set aside")
				}
			})
		}
	}
}

// TestNamesAreCheckedOnce: first claims verify each source's name once in a file, not once
// for each claim. They still meet a name that changes while the file is open.
func TestNamesAreCheckedOnce(t *testing.T) {
	for form, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}} {
		t.Run(form, func(t *testing.T) {
			const n = 100
			path := testPath(t)
			db := openTest(t, path, o)
			claim := func(name string) *Claimed {
				return claimTest(t, db, Claim{Source: Source{Version: "v1", Resource: name, Form: FormTyped}})
			}
			for i := range n {
				claim(fmt.Sprint("resource", i)).Release()
			}
			if got := db.h.checked.count; got != n-1 {
				t.Errorf("%d names were verified, want %d", got, n-1)
			}
			if _, err := db.Compact(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				claim(fmt.Sprint("more", i)).Release()
			}
			if got := db.h.checked.count; got != n+n-1 {
				t.Errorf("%d names were verified after a compaction, want %d", got, n+n-1)
			}

			lost := Source{Version: "v1", Resource: "resource7", Form: FormTyped}
			name := []byte(lost.ID())
			file, err := os.ReadFile(path)
			must(t, err)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			defer f.Close()
			for at := 0; bytes.Contains(file[at:], name); at++ {
				at += bytes.Index(file[at:], name)
				_, err := f.WriteAt([]byte{name[len(name)-1] ^ 1}, int64(at+len(name)-1)) // the order stays
				must(t, err)
			}
			if _, err := db.Claim(Claim{Source: lost, Example: &corev1.ConfigMap{}}); !errors.Is(err, ErrDamaged) {
				t.Error("the changed name was not met:", err)
			}
			killed(t, db)
			db = openTest(t, path, o)
			s := claim(lost.Resource)
			if h, _ := claimHandler(t, s, "handler"); !resetOwed(h) || !s.Delivery.AwaitsPlain() {
				t.Error("a source whose name has changed counts as new")
			}
			if len(db.AsidePaths()) != 1 {
				t.Errorf("set aside: %q", db.AsidePaths())
			}
		})
	}
}
