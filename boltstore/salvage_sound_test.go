package boltstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
)

// TestSavedIsSound: pages of a file are those of earlier commits, or are at other places, or have a
// flipped bit. Whatever the next Open saves is sound, but for the mark that it is degraded.
func TestSavedIsSound(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 150
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	path := testPath(t)
	o := Options{Window: time.Nanosecond, Logger: new(logr.Discard()), ObjectMemory: -1}
	states := randomCommits(t, rnd, path, o)
	o.boot = "another"
	aside := 0
	for round := range rounds {
		file, what := damagedPages(rnd, states)
		p := fmt.Sprint(path, "-", round)
		must(t, os.WriteFile(p, file, 0o600))
		db, err := Open(p, o)
		if err != nil {
			t.Fatalf("round %d: %s: %v", round, what, err)
		}
		aside += len(db.AsidePaths())
		r, err := db.Check()
		must(t, err)
		problems := r.Problems
		for _, s := range r.Sources {
			for _, problem := range s.Problems {
				if !strings.HasPrefix(problem, "marked degraded") {
					problems = append(problems, fmt.Sprint(s.Source, ": ", problem))
				}
			}
		}
		if len(problems) > 0 {
			t.Fatalf("round %d: %s: set aside %q: %q", round, what, db.AsidePaths(), problems)
		}
		for _, a := range append(db.AsidePaths(), p) {
			must(t, os.Remove(a))
		}
		must(t, db.Close())
	}
	if aside == 0 {
		t.Error("no file was set aside")
	}
}

// randomCommits writes sources with handlers, and changes them. It returns the file after each
// commit. Readers keep some of the pages from being used again.
func randomCommits(t *testing.T, rnd *rand.Rand, path string, o Options) (states [][]byte) {
	t.Helper()
	db := openTest(t, path, o)
	var readers []*bolt.Tx
	keep := func() {
		file, err := os.ReadFile(path)
		must(t, err)
		states = append(states, used(file))
		if rnd.IntN(3) > 0 {
			tx, err := db.h.now.Load().Begin(false)
			must(t, err)
			readers = append(readers, tx)
		}
		if len(readers) > 12 {
			must(t, readers[0].Rollback())
			readers = readers[1:]
		}
	}
	type source struct {
		*Claimed
		p *testProducer
		h *Handler
	}
	var sources []source
	for i := range 12 {
		src := configMaps
		src.LabelSelector = fmt.Sprint("n=", i)
		s := claimTest(t, db, Claim{Source: src, Indexers: indexers})
		srv := server{}
		for k := range map[bool]int{true: 150, false: 5}[i < 3] {
			srv.set(configMap("ns", fmt.Sprintf("cm%03d", k), k+1,
				map[string]string{"words": fmt.Sprint(k % 3), "x": strings.Repeat("x", rnd.IntN(100))}))
		}
		relist(t, s, "500", RelistOptions{}, srv.list(), 50)
		p := &testProducer{}
		s.Feed.Attach(p)
		h, _ := claimHandler(t, s, "d")
		tookReset(t, h)
		sources = append(sources, source{s, p, h})
		keep()
	}
	for rv := range 150 {
		s := sources[rnd.IntN(len(sources))*rnd.IntN(2)]
		obj := configMap("ns", fmt.Sprintf("cm%03d", rnd.IntN(150)), 1001+rv,
			map[string]string{"words": fmt.Sprint(rv % 3), "x": strings.Repeat("y", rnd.IntN(400))})
		typ := []cache.DeltaType{cache.Updated, cache.Added, cache.Deleted}[rnd.IntN(3)]
		var refused error
		if rnd.IntN(20) == 0 && typ != cache.Deleted {
			refused = fmt.Errorf("refused")
		}
		event(t, s.Claimed, s.p, typ, obj, refused)
		if rnd.IntN(10) == 0 {
			for _, p := range pendingOf(t, s.h)[:1] {
				s.h.Acknowledge(p.Key, p.Receipt)
			}
			must(t, s.writeMarks())
		}
		keep()
	}
	for _, tx := range readers {
		must(t, tx.Rollback())
	}
	killed(t, db)
	return states
}

// damagedPages returns one of the last states with some damage, and says what that is.
func damagedPages(rnd *rand.Rand, states [][]byte) (file []byte, what string) {
	size := os.Getpagesize()
	place := func(of []byte) int { return size * (2 + rnd.IntN(len(of)/size-2)) }
	lately := func(n int) []byte { return states[len(states)-1-rnd.IntN(n)] }
	file = bytes.Clone(lately(1 + rnd.IntN(10)))
	for range 1 + rnd.IntN(4) {
		from, at := lately(15), place(file)
		if rnd.IntN(2) == 0 {
			from = lately(len(states))
		}
		switch dice := rnd.IntN(6); {
		case dice == 0: // with the number of the place
			other := place(from)
			copy(file[at+8:at+size], from[other+8:other+size])
			what += fmt.Sprint(" moved ", other/size, " to ", at/size)
		case dice == 1:
			file[at+rnd.IntN(size)] ^= 1 << rnd.IntN(8)
			what += fmt.Sprint(" flipped in ", at/size)
		case at+size <= len(from):
			copy(file[at:at+size], from[at:])
			what += fmt.Sprint(" older ", at/size)
		}
	}
	return file, what
}
