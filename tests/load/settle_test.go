//go:build linux

package load

import (
	"fmt"
	"time"
)

// settle starts the program again, and waits until all handlers know the server's state.
// Then the same life takes more changes, to show a leak.
func (r *run) settle() {
	r.t.Helper()
	r.start()
	r.await("its last start", r.isReady)
	r.do(order{Do: doCalm})
	r.catchUp("the load ended")
	r.do(order{Do: doCompare})
	if !raced { // it takes many times as long, and memory says nothing
		r.leaks()
	}
	before := r.status().Size
	r.event("last compaction", r.do(order{Do: doCompact}))
	s := r.status()
	r.t.Logf("in the end: a file of %s, compacted %s; %s of anonymous memory, %s in use, %d goroutines", mb(before),
		mb(s.Size), mb(s.Anon), mb(s.Live), s.Goroutines)
	if most := mostLive(r.spec); s.Live > most && !raced {
		r.t.Errorf("%s are in use, at most %s", mb(s.Live), mb(most))
	}
	if most := mostCompacted(s, r.spec.JournalBytes); s.Size > most {
		r.t.Errorf("compacted it has more than %s", mb(most))
	}
	r.end()
	r.checked(r.spec.DB, "the end")
}

// catchUp waits until all handlers know the server's state and have acknowledged it.
func (r *run) catchUp(since string) {
	r.t.Helper()
	began := time.Now()
	r.moving(since+", for its sources to catch up", r.behind)
	var now [sources][]state
	for src := range sources {
		now[src], _ = r.w.truth[src].last()
	}
	r.event("sources caught up", time.Since(began))
	r.lagging = func() (all []string) {
		for h, of := range handlers() {
			if n, one := r.table.differing(h, now[of.src]); n > 0 {
				all = append(all, fmt.Sprintf("%s differs in %d keys: %s", of.name, n, one))
			}
		}
		return all
	}
	r.moving(since+", for handlers to catch up", func() (n int64) {
		for h, of := range handlers() {
			differ, _ := r.table.differing(h, now[of.src])
			n += int64(differ)
		}
		return n
	})
	r.moving(since+", for handlers to acknowledge", func() int64 {
		s := r.status()
		return int64(s.Keys) + int64(s.Plain[large]+s.Plain[small])
	})
	r.lagging = nil
	r.event("caught up", time.Since(began))
}

// leaks compares the memory in use before and after as many changes as there are objects,
// ten thousand at least, by a program that has caught up.
func (r *run) leaks() {
	r.t.Helper()
	before, writes := r.status(), r.w.writes.Load()
	want := writes + int64(max(10_000, r.spec.Sizes[large]))
	stop := r.write()
	r.moving("more changes began", func() int64 { return max(0, want-r.w.writes.Load()) })
	stop()
	r.catchUp("more changes ended")
	after, n := r.status(), r.w.writes.Load()-writes
	r.t.Logf("%s in use before %d more changes, %s after", mb(before.Live), n, mb(after.Live))
	if most := before.Live + mostGrown; after.Live > most {
		r.t.Errorf("%s are in use after %d more changes, at most %s", mb(after.Live), n, mb(most))
	}
}

// status asks the program how it is.
func (r *run) status() status {
	r.t.Helper()
	r.do(order{Do: doStatus})
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.figures.last
}
