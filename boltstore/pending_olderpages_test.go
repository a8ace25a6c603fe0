package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestHandlersOfOlderPages: some pages of a file are those of earlier commits, as after
// lost writes. A durable handler is told a Reset, or it is as far as its source: with what is
// pending and the next list it comes to know the server's objects. No commit fails. Other
// operations on the file before that change nothing.
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
		"decrypted, and then the process ends": {o: Options{Keyset: sealtest.Keyset()},
			before: func(t *testing.T, path string, o Options) {
				o.decrypt = true
				o.step = func(step string) error {
					if step == "renamed" {
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
				h, _ := claimHandler(t, s, "d")
				keep()
				tookReset(t, h)
				keep()
				for _, p := range pendingOf(t, h)[:2] {
					h.Acknowledge(p.Key, p.Receipt)
				}
				must(t, s.writeMarks())
				keep()
				relist(t, s, "30", RelistOptions{}, lastOf(src, 30), 10)
				keep()
				handled(t, h)
				keep()
			}
			closeTest(t, db)
			if o.boot = c.boot; o.boot == "" {
				keep()
			}
			resets, whole := 0, 0
			for range rounds {
				path := testPath(t)
				must(t, os.WriteFile(path, mixed(rnd, files), 0o600))
				shown, err := precheck(path)
				if !shown && err == nil && rnd.IntN(20) > 0 {
					continue // likely pages that nothing reads
				}
				if c.before != nil {
					c.before(t, path, o)
				}
				db := opened(t, path, o)
				for _, src := range sources {
					if afterOlderPages(t, db, src) {
						resets++
					} else {
						whole++
					}
				}
				if err := db.Close(); err != nil && !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
			}
			if resets == 0 || whole == 0 {
				t.Error("nothing was lost, or everything")
			}
			t.Logf("%d handlers were told a Reset, %d were not", resets, whole)
		})
	}
}

// lastOf are the objects that a source has at last.
func lastOf(src Source, rv int) (objs []runtime.Object) {
	for k := range 3 {
		objs = append(objs, configMap(src.Namespace, fmt.Sprint("o", k), rv+k, nil))
	}
	return objs
}

// afterOlderPages brings the source and its handler up to date. The handler knew the source's
// last objects, unless it is told a Reset.
func afterOlderPages(t *testing.T, db *DB, src Source) (reset bool) {
	t.Helper()
	s := claimTest(t, db, Claim{Source: src})
	h, heard := claimHandler(t, s, "d")
	reset = resetOwed(h)
	objs := lastOf(src, 30)
	objs[1] = configMap(src.Namespace, "o1", 50, nil)
	relistAgain(t, s, "60", objs)
	tookReset(t, h)
	reset = reset || heard.wasReset() > 0
	knows := map[string]string{}
	for _, o := range lastOf(src, 30) {
		if !reset {
			knows[keyOfObject(o)] = rvOf(o)
		}
	}
	for _, p := range pendingOf(t, h) {
		delete(knows, p.Key)
		if p.Object != nil {
			knows[p.Key] = rvOf(p.Object)
		}
	}
	want := map[string]string{}
	for _, o := range objs {
		want[keyOfObject(o)] = rvOf(o)
	}
	if !maps.Equal(knows, want) {
		t.Errorf("%s: the handler knows %v, told a Reset: %t", src.Namespace, knows, reset)
	}
	if err := db.Err(); err != nil {
		t.Error(err)
	}
	return reset
}

func rvOf(o any) string { return o.(*corev1.ConfigMap).ResourceVersion }

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
