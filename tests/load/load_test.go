//go:build linux

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// setting is a number from the environment.
func setting(t *testing.T, name string, or int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return or
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(name, err)
	}
	return n
}

// run is a test under way.
type run struct {
	*program
	w      *writer
	sim    *kubesim.Server
	rnd    *rand.Rand
	dir    string
	most   int // changes that the server is ahead, and that plain handlers are behind
	last   [sources]uint64
	counts map[string]int
	took   map[string][]time.Duration
	began  time.Time
	// restarted is the version at which the server was last restarted.
	restarted uint64
	life      time.Duration // at most
	retired   string        // a copy of the keyset from before the file's present keys, "" if it had none
}

// TestLoad is described in the package's comment.
func TestLoad(t *testing.T) {
	most, duration := 3000, 10*time.Second
	if raced { // all takes many times as long
		most, duration = 600, 5*time.Second
	}
	objects, rate := setting(t, "LOAD_OBJECTS", most), setting(t, "LOAD_RATE", 5000)
	if s := os.Getenv("LOAD_TIME"); s != "" {
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(setting(t, "LOAD_SEED", int(time.Now().UnixNano())))
	t.Logf("%d objects, %d changes a second for %v, seed %d", objects, rate, duration, seed)
	r := newRun(t, objects, rate, seed, max(duration/6, 3*time.Second))
	if err := r.w.fill(); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.await("its first start", r.isReady)
	began := time.Now()
	r.moving("its first list began", r.behind)
	t.Logf("first sync of %d objects after %v", objects, time.Since(began).Round(time.Millisecond))

	stop := r.write()
	defer stop()
	writesBefore, callsBefore := r.w.writes.Load(), r.table.words[calls].Load()
	for r.began = time.Now(); time.Since(r.began) < duration && !t.Failed(); {
		r.live()
	}
	loaded := time.Since(r.began)
	writes, told := r.w.writes.Load()-writesBefore, r.table.words[calls].Load()-callsBefore
	t.Logf("%d changes in %v, %.0f a second; the server waited %v of it; %.0f handler calls a second", writes,
		loaded.Round(time.Millisecond),
		float64(writes)/loaded.Seconds(), time.Duration(r.w.waited.Load()).Round(time.Millisecond),
		float64(told)/loaded.Seconds())
	r.start()
	r.await("its last start but one", r.isReady)
	r.pause(r.life / 3)
	stop()
	r.kill() // while handlers are behind: no later change hides what this loses
	r.event("killed as the load ended", 0)
	r.checked(r.spec.DB, "the load")
	r.settle()
	t.Logf("what happened: %v; took %v", r.counts, r.took)
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.figures
	t.Logf("at most: %s of anonymous memory, %d goroutines, a file of %s; a plain handler %d entries behind, "+
		"durable ones %d keys (%d failing), the oldest for %v",
		mb(f.anon), f.goroutines, mb(f.size), f.plain, f.keys, f.failing, f.oldest.Round(time.Millisecond))
	t.Log("reads:", f.quantiles())
	for _, broken := range f.broken(r.spec.JournalBytes) {
		t.Error(broken)
	}
}

func newRun(t *testing.T, objects, rate int, seed uint64, life time.Duration) *run {
	t.Helper()
	s := sizes{objects - objects/50, objects / 50}
	sim := kubesim.New(kubesim.Options{WatchCacheSize: 100_000, HistorySize: 100_000})
	var requests atomic.Int64
	sim.OnRequest = func(*http.Request) { requests.Add(1) }
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	dir := t.TempDir()
	r := &run{life: life, w: newWriter(sim, s, seed, rate), sim: sim, rnd: rand.New(rand.NewPCG(seed, 1)), dir: dir,
		counts: map[string]int{}, took: map[string][]time.Duration{}}
	r.program = &program{t: t, log: filepath.Join(dir, "log"), figures: &figures{}, spec: spec{
		Host: sim.URL(), DB: filepath.Join(dir, "load.db"), Keys: filepath.Join(dir, "keys.json"),
		Table: filepath.Join(dir, "table"),
		Sizes: s, Seed: seed, JournalBytes: int64(objects) * 160, // 16 MB for 100,000, which is the default
		Readers: 50, ReadEvery: 100 * time.Millisecond, Stall: r.life,
	}}
	// A plain handler that stalls for longer than this would hold up the server.
	r.most = min(objects, 20_000)
	r.spec.StallPlain = time.Duration(r.most) * time.Second / time.Duration(rate)
	if raced {
		r.spec.ReadEvery *= 5
	}
	t.Cleanup(r.kill)
	if err := seal.Generate(r.spec.Keys); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.table, err = openTable(r.spec.Table, s); err != nil {
		t.Fatal(err)
	}
	r.w.ahead = r.ahead
	r.busily = func() int64 { return requests.Load() + int64(r.table.words[calls].Load()) }
	return r
}

// write changes objects until the function that it returns is called.
func (r *run) write() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := r.w.run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return func() {
		cancel()
		writing.Wait()
	}
}

func (r *run) isReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// ahead says whether the server must wait for the program.
func (r *run) ahead() bool {
	for src := range sources {
		if r.table.words[untold+src].Load() > uint64(r.most) {
			return true
		}
	}
	return r.sim.Revision() > r.table.words[committed].Load()+uint64(r.most)
}

// behind is how many versions the sources are behind the server.
func (r *run) behind() (n int64) {
	for src := range sources {
		_, newest := r.w.truth[src].last()
		n += max(0, int64(newest)-int64(r.table.words[committed+src].Load()))
	}
	return n
}

// event notes that something has happened, and how long it took.
func (r *run) event(what string, took time.Duration) {
	r.t.Logf("%v: %s, %v", time.Since(r.began).Round(time.Millisecond), what, took.Round(time.Millisecond))
	r.counts[what]++
	if took > 0 {
		r.took[what] = append(r.took[what], took.Round(time.Millisecond))
	}
}

// live is a life and what comes between it and the next.
func (r *run) live() {
	r.t.Helper()
	if r.cmd == nil {
		if !r.wake() {
			return
		}
	}
	disturbed := false // once in a life: client-go waits longer each time
	for end := time.Now().Add(r.life/3 + r.random(r.life*2/3)); time.Now().Before(end); {
		r.pause(r.life / 6)
		dice := r.rnd.IntN(6)
		switch { // each run has both
		case r.counts[doSnapshot] == 0:
			dice = 0
		case r.counts[doCompact] == 0:
			dice = 2
		}
		if dice >= 3 && disturbed {
			continue
		}
		if dice == 5 && r.table.words[committed].Load() < r.restarted {
			continue // a repair that no life is long enough for would begin again and again
		}
		disturbed = disturbed || dice >= 3
		switch dice {
		case 0, 1:
			if !r.busy(order{doSnapshot, filepath.Join(r.dir, "snapshot.db")}) {
				return
			}
			r.checked(filepath.Join(r.dir, "snapshot.db"), "a snapshot")
		case 2:
			if !r.busy(order{Do: doCompact}) {
				return
			}
		case 3:
			r.sim.DropConnections()
			r.event("connections broken", 0)
		case 4:
			r.sim.EndWatches(nil)
			r.event("watches ended", 0)
		case 5:
			if err := r.sim.Restart(kubesim.RestartOptions{Initializing: 2}); err != nil {
				r.t.Fatal(err)
			}
			r.restarted = r.sim.Revision()
			r.event("server restarted", 0)
		}
	}
	if r.rnd.IntN(4) == 0 && r.counts["killed"] > 0 {
		began := time.Now()
		r.do(order{Do: doCalm})
		r.end()
		r.event("ended in order", time.Since(began))
	} else {
		r.kill()
		r.event("killed", 0)
	}
	r.checked(r.spec.DB, "a life")
}

// wake begins a life, often with another key. It is false if the program was killed
// meanwhile.
func (r *run) wake() bool {
	r.t.Helper()
	rotated := r.rnd.IntN(2) == 0 || r.counts["keys rotated"] == 0
	before := filepath.Join(r.dir, fmt.Sprint("keys before ", r.spec.Life))
	if rotated {
		keys, err := os.ReadFile(r.spec.Keys)
		if err == nil {
			err = os.WriteFile(before, keys, 0o600)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if err := seal.Rotate(r.spec.Keys); err != nil {
			r.t.Fatal(err)
		}
		r.event("keys rotated", 0)
	}
	began := time.Now()
	r.start()
	if r.rnd.IntN(4) == 0 {
		r.pause(time.Second)
		r.kill()
		r.event("killed at its start", 0)
		r.checked(r.spec.DB, "a short life")
		return false
	}
	r.await("its start", r.isReady)
	what := "opened"
	if rotated {
		what, r.retired = "opened with new keys", before
	}
	r.event(what, time.Since(began))
	r.await("its start, to read changes", func() bool {
		return r.table.words[committed].Load() > r.last[large] || r.behind() == 0
	})
	return true
}

// busy gives an order. It returns false if the program was killed meanwhile.
func (r *run) busy(o order) bool {
	r.t.Helper()
	if r.rnd.IntN(4) > 0 {
		r.event(o.Do, r.do(o))
		return true
	}
	r.ask(o)
	r.pause(500 * time.Millisecond)
	r.kill()
	r.event("killed near a "+o.Do, 0)
	r.checked(r.spec.DB, "a life that ended in a "+o.Do)
	return false
}

// checked compares a file with the truth. No version goes back.
func (r *run) checked(path, what string) {
	r.t.Helper()
	versions, newest := r.w.check(r.t, path, r.spec.Keys, what)
	if r.retired != "" {
		if _, err := boltstore.Open(path,
			boltstore.Options{ReadOnly: true, Keyset: seal.File(r.retired)}); !errors.Is(err, boltstore.ErrKeyset) {
			r.t.Fatalf("%s: the keyset from before the rotation opens the file: %v", what, err)
		}
	}
	for src, v := range versions {
		if v < r.last[src] {
			r.t.Fatalf("%s: %s is at %d, and was at %d", what, resources[src], v, r.last[src])
		}
	}
	r.last = versions
	r.complain()
	if r.cmd != nil {
		return
	}
	for h, of := range handlers() { // no program goes on
		if v := r.table.newest(h); v > newest[of.src] {
			r.t.Fatalf("%s: %s was told version %d, and the file is at %d", what, of.name, v, newest[of.src])
		}
	}
}

func (r *run) random(most time.Duration) time.Duration {
	return time.Duration(r.rnd.Int64N(int64(most)))
}

// pause lets a random time pass: when a program is killed must not depend on what it does.
func (r *run) pause(most time.Duration) { <-time.After(r.random(most)) }
