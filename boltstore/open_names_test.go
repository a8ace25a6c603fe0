package boltstore

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestChangedNames: a flipped bit in a name in the file is damage, even in the boot that
// has written it. The data under that name does not count as never written: a durable
// handler that was there is known, or starts over. The next opening sets nothing aside.
func TestChangedNames(t *testing.T) {
	for form, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}} {
		path := testPath(t)
		db := openTest(t, path, o)
		s := claimTest(t, db, Claim{})
		relist(t, s, "5", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
		h, _ := claimHandler(t, s, "handler")
		must(t, h.Release())
		source, err := layout.SourceName(db.h.seal, s.id)
		must(t, err)
		closeTest(t, db)
		file, err := os.ReadFile(path)
		must(t, err)
		for _, name := range [][]byte{layout.BucketSources, source, layout.BucketHandlers, layout.BucketGen, []byte("handler")} {
			t.Run(fmt.Sprintf("%s %.8x", form, name), func(t *testing.T) {
				aside := 0
				for at := bytes.Index(file, name); at >= 0; {
					changed := bytes.Clone(file)
					changed[at+len(name)/2] ^= 1
					path := testPath(t)
					must(t, os.WriteFile(path, changed, 0o600))
					open := func() *DB {
						if string(name) != "handler" {
							return openTest(t, path, o)
						}
						db, err := Open(path, o) // Check goes on to name the handler that nobody is
						must(t, err)
						return db
					}
					db := open()
					aside += len(db.AsidePaths())
					_, err := claimTest(t, db, Claim{}).ClaimHandler("handler", &testPosition{}, func(_ Position, _ uint64, known bool) {
						if !known {
							t.Errorf("changed at %d: the handler is new, set aside %q", at, db.AsidePaths())
						}
					})
					must(t, err)
					must(t, db.Close())
					if db = open(); db.AsidePaths() != nil {
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
