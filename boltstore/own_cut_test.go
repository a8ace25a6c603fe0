package boltstore

import (
	"fmt"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// belief is a handler's knowledge, by key.
type belief map[string]string

// shownNow is the state that a handler would be shown.
func shownNow(t *testing.T, s *Claimed) belief {
	t.Helper()
	p, err := s.ServerPage(nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	b := belief{}
	for i, key := range p.Keys {
		b[key] = shortly(p.Objects[i])
	}
	return b
}

func sameBelief(t *testing.T, what string, got, want belief) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// TestOwnWritesCutAtEachCommit: a program makes own writes, events can be stored or not,
// lists are committed at once or staged. It may die after each transaction. The state
// that a handler knew and what is pending for it add up to the server's
// state, even if the journal is trimmed. The next list leaves no notes and nothing
// untold.
func TestOwnWritesCutAtEachCommit(t *testing.T) {
	for name, o := range map[string]Options{"journaled": {}, "trimmed": {JournalBytes: 1}, "trimmed, encrypted": {JournalBytes: 1, Keyset: sealtest.Keyset(), Compression: CompressionZstd}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Window, o.Durability, o.maxCommitBytes, o.compactRatio = time.Nanosecond, DurabilityProcess, 1500, -1
			path := testPath(t)
			db := openTest(t, path, o)
			s := claimTest(t, db, Claim{Indexers: indexers})
			srv := server{}
			set := func(i, rv int, words string) *corev1.ConfigMap {
				c := configMap("ns", fmt.Sprintf("cm%02d", i), rv, map[string]string{"words": words})
				srv.set(c)
				return c
			}
			for i := range 20 {
				set(i, i+1, "old")
			}
			relist(t, s, "100", RelistOptions{}, srv.list(), 5)
			p := &testProducer{}
			s.Attach(p)
			h, _ := claimHandler(t, s, "behind")
			before := shownNow(t, s)
			handled(t, h)
			event(t, s, p, cache.Updated, set(19, 101, "first"), nil)
			s.SetTold(s.State().Seq)

			var files [][]byte
			db.h.writeMu.Lock()
			db.h.hook = func(*bolt.Tx) error {
				file, err := os.ReadFile(path)
				files = append(files, file)
				return err
			}
			db.h.writeMu.Unlock()
			own := func(i, rv int) *corev1.ConfigMap {
				return configMap("ns", fmt.Sprintf("cm%02d", i), rv, map[string]string{"words": "own"})
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			gone := func(i, rv int) *corev1.ConfigMap {
				c := srv[fmt.Sprintf("ns/cm%02d", i)].DeepCopy()
				c.ResourceVersion = fmt.Sprint(rv)
				delete(srv, "ns/"+c.Name)
				return c
			}
			for i := range 6 {
				must(s.Update(own(i, 150+i)))
			}
			must(s.Delete(srv["ns/cm06"]))
			must(s.Delete(srv["ns/cm07"]))
			must(s.Add(own(30, 170)))
			must(s.Add(own(31, 900)))
			event(t, s, p, cache.Updated, set(8, 110, "refused"), errRefused)
			event(t, s, p, cache.Updated, set(0, 120, "refused"), errRefused)
			event(t, s, p, cache.Updated, set(1, 121, "behind the program's"), nil)
			event(t, s, p, cache.Deleted, gone(2, 122), nil)
			event(t, s, p, cache.Updated, set(3, 160, "ahead of the program's"), nil)
			event(t, s, p, cache.Updated, set(6, 161, "there"), nil)
			event(t, s, p, cache.Deleted, gone(7, 162), nil)
			event(t, s, p, cache.Updated, set(30, 171, "came"), nil)
			relistSome(t, s, "180", RelistOptions{Transform: refusing("cm09")}, srv.list())
			must(s.Update(own(4, 190)))
			for i := 10; i < 18; i++ {
				set(i, 200+i, "listed")
			}
			delete(srv, "ns/cm05")
			relistSome(t, s, "300", RelistOptions{Transform: refusing("cm10")}, srv.list())
			s.SetTold(s.State().Seq)
			event(t, s, p, cache.Updated, set(11, 301, "last"), nil)
			closeTest(t, db)

			for k, file := range files {
				if err := os.WriteFile(path, file, 0o600); err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("cut before transaction %d of %d", k+1, len(files))
				db := openTest(t, path, o)
				if len(db.AsidePaths()) > 0 {
					t.Fatal(what, ": set aside")
				}
				if r, err := db.Check(); err != nil || !r.Sound() {
					t.Fatalf("%s: %+v %v", what, r, err)
				}
				s := claimTest(t, db, Claim{Indexers: indexers})
				knows := func() belief {
					b := belief{}
					for key, v := range before {
						b[key] = v
					}
					h, _ := claimHandler(t, s, "behind")
					defer h.Release()
					tookReset(t, h)
					for _, p := range pendingOf(t, h) {
						delete(b, p.Key)
						if p.Object != nil {
							b[p.Key] = shortly(p.Object)
						}
					}
					return b
				}
				sameBelief(t, what, knows(), shownNow(t, s))
				relist(t, s, "400", RelistOptions{}, srv.list(), 7)
				want := belief{}
				for key, obj := range srv {
					want[key] = shortly(obj)
				}
				sameBelief(t, what+", shown after a list", shownNow(t, s), want)
				sameBelief(t, what+", told", knows(), want)
				expectNoted(t, what, s)
				if r, err := db.Check(); err != nil || !r.Sound() {
					t.Fatalf("%s, after a list: %+v %v", what, r, err)
				}
				closeTest(t, db)
			}
			t.Logf("%d transactions", len(files))
		})
	}
}
