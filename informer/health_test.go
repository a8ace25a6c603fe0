package informer

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// says verifies a check: it says all of the words, or nil if there are none.
func says(t *testing.T, what string, check func(*http.Request) error, words ...string) {
	t.Helper()
	err := check(nil)
	if (err == nil) != (len(words) == 0) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, which does not say %q", what, err, w)
		}
	}
}

// TestHealthWithoutAFile: a check that is given a nil DB, as FileOf gives it for a manager of
// another make, fails and says what to give it.
func TestHealthWithoutAFile(t *testing.T) {
	says(t, "ready", Ready(nil, 0), "boltstore.Open", "controllerruntime.NewManager")
	says(t, "live", Live(nil), "boltstore.Open", "controllerruntime.NewManager")
}

// TestReady: the program is ready once its sources have synced, and while the server has
// confirmed them not too long ago. Live does not depend on the server.
func TestReady(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("one")
		l := w.live(Options{})
		other := cache.NewSharedIndexInformer(listWatch(w.config()), nil, 0, nil)
		ready, named := Ready(l.db, 0), Ready(l.db, 0, l.inf, other)
		fresh, live := Ready(l.db, 5*time.Minute, l.inf), Live(l.db)
		says(t, "before the start", ready, "configmaps/v1 has not synced: starting")
		says(t, "before the start", named, "configmaps/v1 has not synced: starting", "; SharedIndexInformer ",
			" has not synced")
		says(t, "before the start", live)

		if err := w.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		l.run()
		after(time.Minute)
		says(t, "offline from the start", ready, "configmaps/v1 has not synced: offline (")
		if err := fresh(nil); err == nil || strings.Count(err.Error(), "configmaps/v1") != 1 {
			t.Errorf("a source that was named: %v", err)
		}
		says(t, "offline from the start", live)
		if err := w.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Minute)
		says(t, "online", ready)
		says(t, "online", fresh)
		says(t, "another informer that does not run", named, "SharedIndexInformer")

		if err := w.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Minute)
		says(t, "offline for a while", fresh)
		after(20 * time.Minute)
		says(t, "offline for long", fresh, "configmaps/v1 was confirmed 2", " ago, more than 5m0s: offline (")
		says(t, "offline for long, which does not matter", ready)
		says(t, "offline for long", live)
		if err := w.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		after(5 * time.Minute)
		says(t, "online again", fresh)

		l.cancel()
		<-l.done
		says(t, "the informer has ended", ready)
		says(t, "the informer has ended, and was named", fresh, "configmaps/v1 has ended")
		says(t, "the informer has ended", live)
		if err := l.db.Close(); err != nil {
			t.Fatal(err)
		}
		says(t, "closed", ready, "closed")
		says(t, "closed", live, "closed")
	})
}

// TestReadyOfNamed: a named informer must exist: one that is not made yet, and one of
// client-go's that has ended, are not ready.
func TestReadyOfNamed(t *testing.T) {
	w := newWorld(t)
	w.create("one")
	l := w.live(Options{})
	var later cache.SharedIndexInformer
	var ours *Informer
	says(t, "nil", Ready(l.db, 0, later), "nil")
	says(t, "nil of a type", Ready(l.db, 0, ours), "nil")
	stock := cache.NewSharedIndexInformer(listWatch(w.config()), &corev1.ConfigMap{}, 0, nil)
	ready := Ready(l.db, 0, stock)
	l.run().synced()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); stock.RunWithContext(ctx) }()
	if !cache.WaitForCacheSync(ctx.Done(), stock.HasSynced) {
		t.Fatal("not synced")
	}
	says(t, "client-go's", ready)
	stop()
	<-done
	says(t, "client-go's has ended", ready, "SharedIndexInformer", " has ended")
}

// unhashable is an informer that cannot be a map key.
type unhashable struct {
	cache.SharedIndexInformer
	_ []string
}

// TestReadyOfUnhashable: any informer may be named, more than once.
func TestReadyOfUnhashable(t *testing.T) {
	w := newWorld(t)
	l := w.live(Options{})
	named := unhashable{SharedIndexInformer: l.inf}
	says(t, "before the sync", Ready(l.db, 0, named, named, l.inf), "has not synced")
	l.run().synced()
	says(t, "synced", Ready(l.db, 0, named, named, l.inf))
}

// TestReadyOfAStaleFile: with MaxStaleness the program is ready offline; Ready's maxAge
// may still say no.
func TestReadyOfAStaleFile(t *testing.T) {
	w := newWorld(t)
	w.create("one")
	w.live(Options{}).run().synced().end()
	if err := w.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	l := w.live(Options{MaxStaleness: time.Hour}).run().synced()
	says(t, "within the hour", Ready(l.db, time.Hour, l.inf))
	says(t, "within a nanosecond", Ready(l.db, 1), "configmaps/v1 was confirmed ", " ago, more than 1ns: ")
}

// TestHealthOfAFullFile: a file that cannot be written is not ready at once. After five
// minutes it is not live either.
func TestHealthOfAFullFile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.options.MaxSize = 1 << 20
		w.create("one")
		l := w.live(Options{}).run().synced()
		ready, live := Ready(l.db, 0), Live(l.db)
		says(t, "before", ready)
		big := strings.Repeat("0123456789", 10_000)
		for i := range 20 {
			w.create("big"+string(rune('a'+i)), big, string(rune('a'+i)))
		}
		after(time.Minute)
		says(t, "full", ready, "MaxSize")
		says(t, "full for a minute", live)
		after(5 * time.Minute)
		says(t, "full for longer", live, "commits have failed for 6m", "MaxSize")
		l.cancel()
		<-l.done
		if err := l.db.Close(); err == nil {
			t.Error("closing said nothing of changes that could not be written")
		}
	})
}

// TestHealthOfAFileTooFullForARelist: the same if only a relist fails.
func TestHealthOfAFileTooFullForARelist(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.options.MaxSize = 1 << 20
		w.create("one")
		l := w.live(Options{}).run().synced()
		ready, live := Ready(l.db, 0), Live(l.db)
		says(t, "before", ready)
		if err := w.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		big := strings.Repeat("0123456789", 10_000)
		for i := range 20 {
			w.create("big"+string(rune('a'+i)), big, string(rune('a'+i)))
		}
		w.sim.Compact()
		if err := w.sim.Resume(); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		says(t, "full", ready, "MaxSize")
		says(t, "full for a minute", live)
		after(5 * time.Minute)
		says(t, "full for longer", live, "commits have failed for 5m", "MaxSize")
	})
}

// TestHealthOfADamagedFile: a program that has met damage in its file's pages is neither ready
// nor live, though the server is silent and nothing is to be committed. The next life is.
func TestHealthOfADamagedFile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.options.ObjectMemory = -1
		w.create("one")
		l := w.live(Options{}).run().synced()
		ready, live := Ready(l.db, 0), Live(l.db)
		if err := w.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		after(20 * time.Second) // whatever was to be committed
		says(t, "before", ready)
		says(t, "before", live)
		b, err := os.ReadFile(w.path)
		if err != nil {
			t.Fatal(err)
		}
		copy(b[2*os.Getpagesize():], bytes.Repeat([]byte("no page of bbolt's, by any means"), len(b)))
		if err := os.WriteFile(w.path, b, 0); err != nil {
			t.Fatal(err)
		}
		l.inf.GetIndexer().List()
		for _, check := range []func(*http.Request) error{ready, live} {
			says(t, "damaged", check, w.path, "damaged", "start the program again")
		}
		l.cancel()
		<-l.done
		if err := l.db.Close(); err == nil {
			t.Error("closing said nothing of the damage")
		}
		if err := w.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		l = w.live(Options{}).run().synced()
		says(t, "the next life", Ready(l.db, 0))
		says(t, "the next life", Live(l.db))
	})
}

// TestHealthOfAMovedFile: a program whose file is not at its path is neither ready nor
// live until the file is back.
func TestHealthOfAMovedFile(t *testing.T) {
	w := newWorld(t)
	w.create("one")
	l := w.live(Options{}).run().synced()
	ready, live := Ready(l.db, 0), Live(l.db)
	says(t, "before", ready)
	if err := os.Rename(w.path, w.path+".away"); err != nil {
		t.Fatal(err)
	}
	says(t, "moved", ready, "no longer at its path")
	says(t, "moved", live, "no longer at its path")
	if err := live(nil); !errors.Is(err, boltstore.ErrMoved) || !errors.Is(ready(nil), boltstore.ErrMoved) {
		t.Error(err)
	}
	if err := os.Rename(w.path+".away", w.path); err != nil {
		t.Fatal(err)
	}
	says(t, "back", ready)
	says(t, "back", live)
}

// TestReadyOfStrictFallbacks: an informer that never syncs is named; one in memory is the
// program's own.
func TestReadyOfStrictFallbacks(t *testing.T) {
	w := newWorld(t)
	db, err := boltstore.Open(w.path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ready := Ready(db, 0)
	says(t, "no sources", ready)
	db.AddFallback("*v1.Pod", false, errors.New("the config was not wrapped"))
	says(t, "in memory", ready)
	db.AddFallback("*v1.Node", true, errors.New("the config was not wrapped"))
	says(t, "strict", ready, "*v1.Node never syncs: the config was not wrapped")
}

// TestLiveOfAHangingDisk: a disk that does not answer causes no error.
func TestLiveOfAHangingDisk(t *testing.T) {
	for writing, words := range map[time.Duration][]string{
		0: nil, time.Minute: nil,
		6 * time.Minute: {"/x.db: the disk has not answered for 6m"},
	} {
		says(t, writing.String(), func(*http.Request) error {
			return dead("/x.db", boltstore.Stats{Writing: writing}, nil, nil)
		}, words...)
	}
}

// TestLiveSaysAtOnce: a condition that no commit will end is reported at once, even while
// commits fail.
func TestLiveSaysAtOnce(t *testing.T) {
	full := errors.New("no space left on device")
	for _, c := range []struct {
		st         boltstore.Stats
		err, moved error
		want       error
	}{
		{boltstore.Stats{}, boltstore.ErrTaken, nil, boltstore.ErrTaken},
		{boltstore.Stats{Failing: time.Minute}, boltstore.ErrClosed, nil, boltstore.ErrClosed},
		{boltstore.Stats{Failing: time.Minute}, full, boltstore.ErrMoved, boltstore.ErrMoved},
		{boltstore.Stats{Failing: time.Minute}, full, nil, nil},
		{boltstore.Stats{}, full, nil, nil}, // it failed when the stats had been read
	} {
		if err := dead("/x.db", c.st, c.err, c.moved); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v, %v: %v, want %v", c.err, c.moved, err, c.want)
		}
	}
}

// TestLags: how far plain and durable handlers are behind.
func TestLags(t *testing.T) {
	w := newWorld(t)
	w.options.FlushInterval = time.Millisecond
	blocked, entered := make(chan struct{}), make(chan struct{}, 100)
	slow := cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { entered <- struct{}{}; <-blocked }}
	w.create("a")
	w.create("b")
	l := w.live(Options{}, newRecorder(t), slow)
	r := newLedger(t)
	r.answers(func(e Event) error {
		if e.Key == "default/b" && !e.Initial {
			return errors.New("not now")
		}
		return nil
	})
	if _, err := l.inf.AddDurableHandler("mail", r, DurableOptions{}); err != nil {
		t.Fatal(err)
	}
	l.run().synced().replayed()
	eventually(t, "nothing is behind", func() bool {
		lags := l.inf.Lags()
		return len(lags) == 2 && lags[0] == Lag{} && lags[1] == Lag{Handler: "mail"}
	})
	w.update("a", "1")
	w.update("b", "1")
	<-entered
	l.equal()
	eventually(t, "behind", func() bool {
		lags := l.inf.Lags()
		d := lags[1]
		return lags[0] == Lag{Entries: 2} && d.Handler == "mail" && d.Pending == 1 && d.Failing == 1 &&
			d.Failures > 0 && !d.Behind &&
			!d.Since.IsZero() && d.Age > 0
	})
	close(blocked)
	eventually(t, "told", func() bool { return l.inf.Lags()[0] == Lag{} })
}

// TestLagOfPendingKeys: the next life counts the keys that are pending in the file, before it
// runs, too. An error of Ready says how many there are, and how old the oldest is.
func TestLagOfPendingKeys(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := newLedger(t)
		r.answers(func(e Event) error {
			if e.Reset {
				return nil
			}
			return errors.New("not now")
		})
		l := w.durably(DurableOptions{}, r).run().synced()
		for _, name := range []string{"a", "b", "c"} {
			w.create(name)
		}
		after(time.Minute)
		l.end()
		w.sim.Stall(true)
		after(time.Hour)
		l = w.durably(DurableOptions{}, r)
		if lag := l.inf.Lags()[0]; lag.Pending != 3 || !lag.Since.IsZero() {
			t.Errorf("%+v", lag)
		}
		l.run()
		after(time.Second)
		err := Ready(l.db, 0)(nil)
		if err == nil || !strings.Contains(err.Error(),
			`durable handler "test": 3 keys pending, the oldest for 61m, 3 failing`) {
			t.Error(err)
		}
		w.sim.Stall(false)
		l.end()
	})
}
