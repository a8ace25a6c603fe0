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

// TestHandlersOfOlderPages: some pages of a file are those of earlier commits, as a disk
// that loses writes leaves them. Where anything shows that, no durable handler counts as
// new: a page of before its time may be whole, and not have it.
func TestHandlersOfOlderPages(t *testing.T) {
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	for name, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}, "no syncs": {Durability: DurabilityProcess}} {
		t.Run(name, func(t *testing.T) {
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
				files = append(files, file)
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
			keep()
			lost := 0
			for range rounds {
				path := testPath(t)
				must(t, os.WriteFile(path, mixed(rnd, files), 0o600))
				db := opened(t, path, o)
				r, err := db.Check()
				must(t, err)
				if db.AsidePaths() != nil || !r.Sound() {
					lost++
					for _, src := range sources {
						_, err := claimTest(t, db, Claim{Source: src}).ClaimHandler("d", &testPosition{}, func(_ Position, _ uint64, known bool) {
							if !known {
								t.Errorf("%s: the handler is new, set aside %t, %v", src.Namespace, db.AsidePaths() != nil, r.Problems)
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
