package informer

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// stockLife is one life of client-go's own informer, with JSON and its default WatchList.
func (w *world) stockLife() (inf cache.SharedIndexInformer, end func()) {
	cfg := w.sim.RESTConfig()
	cfg.UserAgent = "stock"
	inf = cache.NewSharedIndexInformer(listWatch(cfg), &corev1.ConfigMap{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	return inf, func() { cancel(); <-done }
}

// TestDayOfEdgeLife: days ($KUBEWAKE_DAYS) of outages, faults, restarts and changes, each
// drawn by a seed. At its end the cache and what its handler has been told, over all
// lives of the process, equal the server; the test reports the bytes on the link beside
// those of client-go's informer, which lived through the same. The first day's series of
// them goes into the file $KUBEWAKE_DAY_SERIES, which the benchmark draws.
func TestDayOfEdgeLife(t *testing.T) {
	days, length := uint64(1), 24*time.Hour
	if n := os.Getenv("KUBEWAKE_DAYS"); n != "" {
		if _, err := fmt.Sscan(n, &days); err != nil {
			t.Fatal("KUBEWAKE_DAYS:", err)
		}
	} else if testing.Short() {
		length = 6 * time.Hour
	}
	for seed := range days {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			day := &series{}
			if seed == 0 {
				day.path = os.Getenv("KUBEWAKE_DAY_SERIES")
			}
			bubble(t, func(t *testing.T, w *world) {
				dayOfEdgeLife(t, w, rand.New(rand.NewPCG(seed, 42)), length, day)
			})
		})
	}
}

// series has the bytes that two informers received over a day, as CSV: seconds, and the
// bytes of kubewake's and of client-go's so far.
type series struct {
	path string // of its file, "" for none
	rows []string
}

func (s *series) add(w *world, since time.Duration) {
	if s.path != "" {
		bytes := w.received()
		s.rows = append(s.rows, fmt.Sprintf("%.0f,%d,%d\n", since.Seconds(), bytes[false], bytes[true]))
	}
}

func (s *series) write(t *testing.T) {
	t.Helper()
	if s.path == "" {
		return
	}
	if err := os.WriteFile(s.path, []byte("seconds,kubewake,client-go\n"+strings.Join(s.rows, "")), 0o644); err != nil {
		t.Error(err)
	}
}

// received adds up the bytes of all bodies so far, of client-go's informer (true) and
// of kubewake's.
func (w *world) received() map[bool]int64 {
	bytes := map[bool]int64{}
	for _, q := range w.sim.Requests() {
		bytes[q.UserAgent == "stock"] += q.BodyBytes
	}
	return bytes
}

func dayOfEdgeLife(t *testing.T, w *world, r *rand.Rand, length time.Duration, day *series) {
	const objects = 400
	have := map[string]bool{}
	text := func() string {
		b := make([]byte, 1000+r.IntN(1000))
		for i := range b {
			b[i] = byte('a' + r.IntN(26))
		}
		return string(b)
	}
	change := func() {
		name := fmt.Sprintf("cm%03d", r.IntN(objects+50))
		switch {
		case !have[name]:
			w.create(name, text())
			have[name] = true
		case r.IntN(4) == 0:
			w.delete(name)
			delete(have, name)
		default:
			w.update(name, text())
		}
	}
	for i := range objects {
		name := fmt.Sprintf("cm%03d", i)
		w.create(name, text())
		have[name] = true
	}
	rec := newRecorder(t)
	live := func() *life {
		l := w.live(Options{}, rec)
		l.run()
		return l
	}
	ours := live()
	theirs, endTheirs := w.stockLife()
	down, lives, relists := 0, 1, map[string]uint64{}
	count := func() {
		for why, n := range ours.inf.State().Relists {
			relists[why] += n
		}
	}
	began := time.Now()
	for time.Since(began) < length {
		day.add(w, time.Since(began))
		for range r.IntN(4) {
			change()
		}
		switch r.IntN(40) {
		case 0: // the link is down
			if err := w.sim.RefuseConnections(true); err != nil {
				t.Fatal(err)
			}
			wait := time.Duration(r.IntN(3600)) * time.Second
			for range wait / (5 * time.Minute) {
				change()
				after(5 * time.Minute)
			}
			if err := w.sim.RefuseConnections(false); err != nil {
				t.Fatal(err)
			}
			down++
		case 1:
			if err := w.sim.Restart(kubesim.RestartOptions{Down: time.Duration(r.IntN(60)) * time.Second,
				Initializing: r.IntN(5)}); err != nil {
				t.Fatal(err)
			}
			down++
		case 2, 3, 4:
			w.sim.DropConnections()
			down++
		case 5: // half-open, until the kernel gives up
			w.sim.Mute()
			for range 4 {
				change()
				after(4 * time.Minute)
			}
			w.sim.DropConnections()
			down++
		case 6:
			w.sim.Stall(true)
			after(time.Duration(r.IntN(300)) * time.Second)
			w.sim.Stall(false)
			down++
		case 7:
			w.sim.Compact()
		case 8:
			w.sim.SetBandwidth(2000 << r.IntN(8))
		case 9, 10: // the process is restarted, and is down for a while
			count()
			ours.end()
			endTheirs()
			wait := time.Duration(r.IntN(600)) * time.Second
			for range r.IntN(5) {
				change()
			}
			after(wait)
			ours = live()
			theirs, endTheirs = w.stockLife()
			lives++
		}
		after(time.Duration(r.IntN(240)) * time.Second)
	}
	day.add(w, time.Since(began))
	day.write(t)
	w.sim.SetBandwidth(0)
	w.sim.DropConnections()
	after(30 * time.Minute)
	want, _, err := w.sim.List(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(want, ours.inf.GetStore().List()); d != "" {
		t.Error("the cache:", d)
	}
	if d := difference(want, theirs.GetStore().List()); d != "" {
		t.Error("client-go's cache:", d)
	}
	if told := rec.names(); !slices.Equal(told, slices.Sorted(maps.Keys(have))) {
		t.Errorf("the handler was told that there are %d objects, there are %d", len(told), len(have))
	}
	if st := ours.inf.State(); st.Phase != reflector.PhaseLive || st.Degraded != "" {
		t.Error(st)
	}
	count()
	ours.end()
	endTheirs()
	bytes, requests, full := w.received(), map[bool]int{}, map[bool]int{}
	for _, q := range w.sim.Requests() {
		stock := q.UserAgent == "stock"
		requests[stock]++
		if q.FullRead() && q.Query.Get("continue") == "" {
			full[stock]++
		}
	}
	t.Logf("%d faults, %d lives: %d bytes in %d requests, %d full reads %v; client-go %d bytes in %d requests, %d "+
		"full reads",
		down, lives, bytes[false], requests[false], full[false], relists, bytes[true], requests[true], full[true])
	if bytes[false] > bytes[true]/2 {
		t.Errorf("%d bytes, client-go %d", bytes[false], bytes[true])
	}
}
