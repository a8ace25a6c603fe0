package serve

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestWatchersThatDoNotRead: 200 clients watch, half of which never read, while 1,000
// changes a second come. Commits are on time, memory is bounded, and clients that read
// get every change. The same holds if the file's owner, in reality another process, has
// the watches.
func TestWatchersThatDoNotRead(t *testing.T) {
	t.Run("own", func(t *testing.T) {
		watchersThatDoNotRead(t, 1000, func(db *boltstore.DB) File { return Own(db, apifile.Options{}) })
	})
	t.Run("owner", func(t *testing.T) {
		watchersThatDoNotRead(t, 500, func(db *boltstore.DB) File { return sharedOf(t, db) })
	})
}

func watchersThatDoNotRead(t *testing.T, changes int, of func(*boltstore.DB) File) {
	const watchers, rate, size = 200, 1000, 4 << 10
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "f.db"),
		boltstore.Options{JournalBytes: 256 << 20, Durability: boltstore.DurabilityProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	store := filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{})
	filetest.Relist(t, store, "10")
	s := start(t, Options{File: of(db)})
	last := 10 + changes
	told := make(chan error, watchers/2)
	for i := range watchers {
		events := watch(t, s)
		if i%2 == 0 {
			continue // it never reads
		}
		go func() {
			for n := 11; ; n++ {
				line, err := events.ReadString('\n')
				if want := fmt.Sprintf(`"resourceVersion":"%d"`, n); err == nil && !strings.Contains(line, want) {
					err = fmt.Errorf("%.100s is not of version %d", line, n)
				}
				if err != nil || n == last {
					told <- err
					return
				}
			}
		}()
	}
	before := heap()
	q := feed(t, store)
	content := strings.Repeat("x", size)
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var slowest time.Duration
	for n := 11; n <= last; n++ {
		<-tick.C
		began := time.Now()
		if err := q.Update(&corev1.ConfigMap{ObjectMeta: object("a", fmt.Sprint("x", n%100), n),
			Data: map[string]string{"k": content}}); err != nil {
			t.Fatal(err)
		}
		if n%rate == 0 {
			if err := q.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		slowest = max(slowest, time.Since(began))
	}
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(4 * time.Minute)
	for range watchers / 2 {
		select {
		case err := <-told:
			if err != nil {
				t.Error(err)
			}
		case <-timeout:
			t.Fatal("not all were told")
		}
	}
	grown := heap() - before // with those that have not read
	t.Logf("the slowest change took %s; memory grew by %d MiB", slowest, grown>>20)
	// Held for each watcher, it would be the changes times 100: 200 MB and more. With an
	// owner it is the memory of both sides.
	if grown > 64<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if slowest > 10*time.Second {
		t.Errorf("a change took %s", slowest)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
