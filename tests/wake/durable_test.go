package wake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/informer"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// The kinds of handlers of a child, set by envHandler; plain ones by default.
const (
	durableHandlers = "durable"
	durableQueues   = "queue"
)

func register(inf *informer.Informer, resource string) error {
	o := informer.DurableOptions{Workers: 4}
	var h informer.DurableHandler
	switch os.Getenv(envHandler) {
	case durableHandlers:
		h = durableTeller(os.Stdout, resource)
	case durableQueues:
		q := informer.NewDurableQueue(workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second)),
			func(e informer.Event) []string {
				if e.Reset {
					return nil
				}
				return []string{e.Key}
			})
		for range o.Workers {
			go reconcile(inf, resource, q)
		}
		h = q
	default:
		_, err := inf.AddEventHandler(teller(os.Stdout, resource))
		return err
	}
	_, err := inf.AddDurableHandler("test", h, o)
	go reportIdle(context.Background(), os.Stderr, inf, resource)
	return err
}

// resetLine begins the line of a handler that starts over.
const resetLine = "RESET"

// durableTeller writes a line for each delete and each present object of an event; before that
// of an update, which version it says was acknowledged last. Some events fail, some are
// acknowledged later.
func durableTeller(out io.Writer, resource string) informer.DurableHandler {
	return informer.DurableHandlerFunc(func(_ context.Context, e informer.Event) error {
		dice := rand.IntN(20)
		if dice == 0 {
			return errors.New("not now")
		}
		if e.Reset {
			fmt.Fprintf(out, "%s %s\n", resetLine, resource)
			return nil
		}
		var lines strings.Builder
		tell := func(what string, obj any) {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			m, err := meta.Accessor(obj)
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(&lines, "%s %s %s %s %s\n", what, resource, e.Key, m.GetUID(), m.GetResourceVersion())
		}
		for _, d := range e.Deleted {
			tell("DELETED", d.Object)
		}
		if old, err := meta.Accessor(e.Old); err == nil {
			fmt.Fprintf(&lines, "FROM %s %s %s\n", resource, old.GetUID(), old.GetResourceVersion())
		}
		if e.Object != nil {
			tell("SHOWN", e.Object)
		}
		fmt.Fprint(out, lines.String())
		if dice < 5 {
			go e.Ack()
			return informer.ErrAckLater
		}
		return nil
	})
}

// reconcile writes the state of each key that it gets, after some failures.
func reconcile(inf *informer.Informer, resource string, q *informer.DurableQueue[string]) {
	for {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		if rand.IntN(5) == 0 {
			q.AddRateLimited(key)
			q.Done(key)
			continue
		}
		obj, exists, err := inf.GetStore().GetByKey(key)
		switch {
		case err != nil:
			q.AddRateLimited(key)
			q.Done(key)
			continue
		case exists:
			m := obj.(metav1.Object)
			fmt.Printf("RECONCILED %s %s %s %s\n", resource, key, m.GetUID(), m.GetResourceVersion())
		default:
			fmt.Printf("DELETED %s %s - -\n", resource, key)
		}
		q.Forget(key)
		q.Done(key)
	}
}

// TestKillDurable: however the program is killed, a durable handler is told the last state of
// each object in some life, and each delete of an object that it was told.
func TestKillDurable(t *testing.T) { durableRounds(t, durableHandlers, (*writer).toldWithoutGap) }

// TestKillQueue: however the program is killed, the reconciler has handled each key since
// its last change.
func TestKillQueue(t *testing.T) { durableRounds(t, durableQueues, (*writer).reconciledAll) }

// durableRounds kills 20 times, five with -short, or as often as WAKE_ROUNDS
// says.
func durableRounds(
	t *testing.T, handler string, told func(w *writer, path string) func(resource string, cached []any),
) {
	t.Parallel()
	takePlace(t)
	n := times(t, "WAKE_ROUNDS", 20, 5)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	srv := newSimulator(t)
	w := newWriter(t, srv.Config(), seed)
	w.fill(200)
	w.indexers = library.indexers
	what := killed{indexers: library.indexers, cmd: func(db, kubeconfig string) *exec.Cmd {
		cmd := library.cmd(db, kubeconfig)
		cmd.Env = append(cmd.Env, envHandler+"="+handler)
		return cmd
	}}
	p := &program{t: t, what: what, db: filepath.Join(t.TempDir(), "wake.db"), kubeconfig: srv.Kubeconfig(t),
		told: filepath.Join(t.TempDir(), "told")}
	t.Cleanup(p.kill)
	for i := range n {
		w.resume()
		p.start()
		pause(rnd, 500*time.Millisecond) // the first time in the middle of the replay
		if i%5 == 4 {
			if err := srv.Restart(t.Context()); err != nil { // a relist
				t.Fatal(err)
			}
		}
		pause(rnd, 200*time.Millisecond)
		p.kill()
		pause(rnd, 100*time.Millisecond)
		w.pause()
		if i%5 < 4 && i < n-1 {
			continue
		}
		p.start()
		p.until(w.mark())
		p.kill()
		// Changes after the markers count, too, since keys are told side by side.
		p.start()
		p.untilIdle(w.mark())
		p.kill()
		w.verifyFile(p.db, told(w, p.told))
	}
	t.Logf("%d kills, %d writes, %d lines", n, w.writes, strings.Count(p.read(), "\n"))
}

// reportIdle writes up to which version a durable handler has acknowledged everything, each
// time that this is a later one.
func reportIdle(ctx context.Context, out io.Writer, inf *informer.Informer, resource string) {
	for last := ""; ctx.Err() == nil; <-time.After(5 * time.Millisecond) { // nothing signals an acknowledgement
		rv := inf.Store().State().ResourceVersion
		busy := slices.ContainsFunc(inf.Lags(), func(l informer.Lag) bool {
			return l.Entries > 0 || l.Pending > 0 || l.Behind
		})
		if rv != last && !busy {
			last = rv
			fmt.Fprintf(out, "IDLE %s %s\n", resource, rv)
		}
	}
}

// untilIdle waits until the durable handlers have acknowledged all up to the lines of a
// mark.
func (p *program) untilIdle(lines []string) {
	p.t.Helper()
	p.until(lines)
	wants := map[string]uint64{}
	for _, l := range lines {
		f := strings.Fields(l)
		wants[f[0]] = version64(p.t, f[3])
	}
	p.eventually("its handlers have acknowledged everything", func() bool {
		errs, err := os.ReadFile(p.told + ".err")
		if err != nil {
			p.t.Fatal(err)
		}
		return idleAt(p.t, string(errs), wants)
	})
}

// idleAt says whether reportIdle has written at least these versions.
func idleAt(t *testing.T, lines string, wants map[string]uint64) bool {
	t.Helper()
	idle := map[string]uint64{}
	for l := range strings.Lines(lines) {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "IDLE" && strings.HasSuffix(l, "\n") {
			idle[f[1]] = version64(t, f[2])
		}
	}
	for resource, least := range wants {
		if idle[resource] < least {
			return false
		}
	}
	return true
}

func version64(t *testing.T, rv string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// toldWithoutGap: each object has a line with the server's version, or with its delete. No
// version is told after a later one, and no update is from a version that was not told. No
// handler is Reset but at first.
func (w *writer) toldWithoutGap(path string) func(resource string, cached []any) {
	last := map[string]map[string]line{}
	versions, deleted := map[string]bool{}, map[string]bool{}
	seen := map[string]map[string]string{} // uid to key, by resource
	for i, l := range w.lines(path) {
		f := strings.Fields(l)
		switch {
		case len(f) == 2 && f[0] == resetLine:
			if last[f[1]] != nil {
				w.t.Fatalf("line %d: the handler of %s is Reset again", i+1, f[1])
			}
		case len(f) == 4 && f[0] == "FROM":
			if !versions[f[2]+" "+f[3]] {
				w.t.Fatalf("line %d: %s %s is updated from %s, which was not told", i+1, f[1], f[2], f[3])
			}
		case len(f) == 5:
			res, key, n := f[1], f[2], line{what: f[0], uid: f[3], rv: f[4]}
			if was := last[res][key]; was.uid == n.uid && version64(w.t, n.rv) < version64(w.t, was.rv) {
				w.t.Fatalf("line %d: %s %s is told at %s after %s", i+1, res, key, n.rv, was.rv)
			}
			if last[res] == nil {
				last[res], seen[res] = map[string]line{}, map[string]string{}
			}
			last[res][key] = n
			seen[res][n.uid] = key
			versions[n.uid+" "+n.rv] = true
			deleted[n.uid] = deleted[n.uid] || n.what == "DELETED"
		}
	}
	return func(resource string, cached []any) {
		w.t.Helper()
		there := map[string]bool{}
		for _, obj := range cached {
			there[string(obj.(metav1.Object).GetUID())] = true
		}
		for uid, key := range seen[resource] {
			if !there[uid] && !deleted[uid] {
				w.t.Fatalf("%s %s %s is gone, and its delete was not told", resource, key, uid)
			}
		}
		w.toldAll(resource, cached, last[resource])
	}
}

// reconciledAll: the last line of each key is the server's state.
func (w *writer) reconciledAll(path string) func(resource string, cached []any) {
	last := map[string]map[string]line{}
	for _, l := range w.lines(path) {
		if f := strings.Fields(l); len(f) == 5 {
			if last[f[1]] == nil {
				last[f[1]] = map[string]line{}
			}
			last[f[1]][f[2]] = line{what: f[0], uid: f[3], rv: f[4]}
		}
	}
	return func(resource string, cached []any) { w.toldAll(resource, cached, last[resource]) }
}

func (w *writer) lines(path string) []string {
	w.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
