package boltstore

import (
	"fmt"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// overwrite writes content into the file at path, as cp does.
func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(content, 0)
	if cerr := f.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}

// TestOverwritten: a file that is overwritten while it is open, by its own earlier content or
// by another file, counts as damaged from the next read or write on. In the next life a list
// brings everything back.
func TestOverwritten(t *testing.T) {
	other := testPath(t)
	foreign := openTest(t, other, Options{})
	relist(t, claimTest(t, foreign, podClaim()), "5", RelistOptions{}, somePods(0, 40), 100)
	closeTest(t, foreign)
	another, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range []bool{false, true} {
		for back := range 9 { // 0 is the other file
			t.Run(fmt.Sprintf("read %v, back %d", read, back), func(t *testing.T) {
				path := testPath(t)
				db := openTest(t, path, Options{Durability: DurabilityProcess, Window: time.Nanosecond})
				s := claimTest(t, db, Claim{})
				p := &testProducer{}
				now := map[int]*corev1.ConfigMap{}
				list := func() (objs []runtime.Object) {
					for i := range 40 {
						objs = append(objs, now[i])
					}
					return objs
				}
				for i := range 40 {
					now[i] = configMap("a", fmt.Sprint("x", i), 10, nil)
				}
				relist(t, s, "10", RelistOptions{}, list(), 100)
				s.Feed.Attach(p)
				states, rv := [][]byte{another}, 10
				put := func(i int) {
					rv++
					now[i] = configMap("a", fmt.Sprint("x", i), rv, nil)
					event(t, s, p, cache.Updated, now[i], nil)
				}
				for i := range 20 {
					put(i)
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					states = append(states, b)
				}
				content := another
				if back > 0 {
					content = states[len(states)-1-back]
				}
				overwrite(t, path, content)
				if read {
					_, _ = s.Page(nil, 100) // what is there now
				} else {
					_ = db.h.update(func(*bolt.Tx) error { return nil }, nil)
				}
				nothingIsWritten(t, db, s)
				killed(t, db)
				db = openTest(t, path, db.opts)
				s = claimTest(t, db, Claim{})
				rv++
				relist(t, s, fmt.Sprint(rv), RelistOptions{}, list(), 100)
				serves(t, s, list())
				if err := s.Err(); err != nil {
					t.Error(err)
				}
				closeTest(t, db)
			})
		}
	}
}
