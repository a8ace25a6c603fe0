package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestHandlersOfOlderPages: some pages of a file are those of earlier commits, as after
// lost writes. If anything shows this, no durable handler counts as new: an intact page
// from before its registration would not have it. Other operations on the file before
// that do not hide it.
func TestHandlersOfOlderPages(t *testing.T) {
	rounds := 600
	if few() {
		rounds = 60
	}
	ended := errors.New("the process ends")
	for name, c := range map[string]struct {
		o      Options
		boot   string                                     // in which the file is opened
		before func(t *testing.T, path string, o Options) // it is opened
	}{
		"plain":     {},
		"encrypted": {o: Options{Keyset: sealtest.Keyset()}},
		"no syncs":  {o: Options{Durability: DurabilityProcess}},
		"compacted": {before: func(_ *testing.T, path string, o Options) { _, _ = Compact(t.Context(), path, o, nil) }},
		"decrypted, and then the process ends": {o: Options{Keyset: sealtest.Keyset()}, before: func(t *testing.T, path string, o Options) {
			o.decrypt = true
			o.step = func(step string) error {
				if step == "done" {
					return ended
				}
				return nil
			}
			if db, err := Open(path, o); err == nil {
				closeTest(t, db)
			} else if !errors.Is(err, ended) {
				t.Error(err)
			}
		}},
		"another boot":           {boot: "another"},
		"no syncs, another boot": {o: Options{Durability: DurabilityProcess}, boot: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			o.Logger = new(logr.Discard())
			path := testPath(t)
			db := openTest(t, path, o)
			var files [][]byte
			keep := func() {
				file, err := os.ReadFile(path)
				must(t, err)
				files = append(files, used(file))
			}
			var sources []Source
			for i := range 3 {
				src := configMaps
				src.Namespace = fmt.Sprint("ns", i)
				sources = append(sources, src)
				s := claimTest(t, db, Claim{Source: src})
				keep()
				for n := range 3 {
					var objs []runtime.Object
					for k := range 2 + n {
						objs = append(objs, configMap(src.Namespace, fmt.Sprint("o", k), 10+n, nil))
					}
					relist(t, s, fmt.Sprint(20+n), RelistOptions{}, objs, 10)
					keep()
				}
				claimHandler(t, s, "d")
				keep()
			}
			closeTest(t, db)
			if o.boot = c.boot; o.boot == "" {
				keep()
			}
			lost, leaks := 0, 0
			for range rounds {
				path := testPath(t)
				must(t, os.WriteFile(path, mixed(rnd, files), 0o600))
				shown, err := precheck(path)
				if shown && err == nil {
					leaks++
				}
				shown = shown || err != nil
				if !shown && rnd.IntN(20) > 0 {
					continue // likely pages that nothing reads
				}
				if c.before != nil {
					c.before(t, path, o)
				}
				db := opened(t, path, o)
				r, err := db.Check()
				must(t, err)
				if shown || db.AsidePaths() != nil || !r.Sound() {
					lost++
					for _, src := range sources {
						_, err := claimTest(t, db, Claim{Source: src}).ClaimHandler("d", &testPosition{}, func(_ Position, _ uint64, known bool) {
							if !known {
								t.Errorf("%s: the handler is new; the pages show a loss: %t, the file was set aside: %t, problems: %+v", src.Namespace, shown, db.AsidePaths() != nil, r)
							}
						})
						must(t, err)
					}
				}
				if err := db.Close(); err != nil && !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
			}
			if lost == 0 {
				t.Error("no file has lost anything")
			}
			t.Logf("%d of %d files have lost something, %d only pages that nothing uses", lost, rounds, leaks)
		})
	}
}

// mixed is the last of the files, with some pages of earlier ones.
func mixed(rnd *rand.Rand, files [][]byte) []byte {
	size := os.Getpagesize()
	now := bytes.Clone(files[len(files)-1])
	for range 1 + rnd.IntN(4) {
		from := files[rnd.IntN(len(files))]
		if at := 2*size + size*rnd.IntN(len(now)/size-2); at+size <= len(from) {
			copy(now[at:at+size], from[at:])
		}
	}
	return now
}
