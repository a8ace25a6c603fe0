package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestLargeChangesNotRead: 200 clients watch and do not read while 40 changes of an object
// of 1 MB come. Each may hold a piece of a change, not a change. A client that reads, even
// one that takes its time, gets all of them as they are.
func TestLargeChangesNotRead(t *testing.T) {
	for _, start := range []string{"resourceVersion=10",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
		t.Run(start[:5], func(t *testing.T) { largeChangesNotRead(t, start) })
	}
	t.Run("leaves", func(t *testing.T) { largeChangesNotRead(t, "labelSelector=in&resourceVersion=10") })
}

func largeChangesNotRead(t *testing.T, query string) {
	const watchers, changes = 200, 40
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
	s := start(t, Options{File: Own(db, apifile.Options{})})
	content := func(n int) string { return strings.Repeat(fmt.Sprintf("%04d", n), 256<<10) }
	initial, leaves := strings.HasPrefix(query, "send"), strings.HasPrefix(query, "label")
	changed := func(n int) *corev1.ConfigMap { // every other one leaves the selection
		o := &corev1.ConfigMap{ObjectMeta: object("a", "x", n), Data: map[string]string{"k": content(n)}}
		if n%2 == 0 {
			o.Labels = map[string]string{"in": "yes"}
		}
		return o
	}
	version := 10
	if initial {
		var maps []kruntime.Object
		for ; version < 10+changes; version++ {
			maps = append(maps, &corev1.ConfigMap{ObjectMeta: object("a", fmt.Sprintf("x%02d", version), version),
				Data: map[string]string{"k": content(version)}})
		}
		filetest.Relist(t, store, fmt.Sprint(version), maps...)
	} else {
		filetest.Relist(t, store, "10", changed(10))
	}
	before := heap()
	var most atomic.Int64
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond): // a sample
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), int64(m.HeapInuse+m.StackInuse)))
		}
	}()
	var others []*bufio.Reader
	for range watchers {
		others = append(others, watchOf(t, s, query))
	}
	events := watchOf(t, s, query)
	if !initial {
		q := feed(t, store)
		for n := 11; n <= 10+changes; n++ {
			if err := q.Update(changed(n)); err != nil {
				t.Fatal(err)
			}
			if err := q.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := 11
	if initial {
		first = 10
	}
	for n := range changes {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		shows := first + n
		if leaves && shows%2 == 1 {
			shows-- // the last state in the selection
		}
		want := fmt.Sprintf(`"resourceVersion":"%d"`, first+n)
		if !strings.Contains(line, want) || !strings.Contains(line, content(shows)) {
			t.Fatalf("%.100s is not of version %d, or not whole", line, first+n)
		}
		if n == changes/2 {
			runtime.GC() // what this client is being sent is in no cache
		}
	}
	for i := 0; leaves && i < watchers/2; i++ { // the next change is in no cache for any of these
		for range 2 {
			if _, err := others[i].ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
	}
	grown := heap() - before
	t.Logf("memory grew by %d MiB, at most %d MiB", grown>>20, (most.Load()-before)>>20)
	if grown > 64<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
}

// hasty is a clock on which each look takes a second.
type hasty struct {
	clock.RealClock
	looks *atomic.Int64
}

// Now implements clock.PassiveClock.
func (h hasty) Now() time.Time {
	return h.RealClock.Now().Add(time.Duration(h.looks.Add(1)) * time.Second)
}

// TestLargeRow: a large object that is sent in pieces as a row of a table comes whole, although
// only the first event has the columns, and the object grows older meanwhile.
func TestLargeRow(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	content := strings.Repeat("x", 300<<10)
	made := metav1.NewTime(time.Now().Add(-5 * time.Second))
	var maps []kruntime.Object
	for _, name := range []string{"x", "y"} {
		o := &corev1.ConfigMap{ObjectMeta: object("a", name, 9), Data: map[string]string{"k": content}}
		o.CreationTimestamp = made
		maps = append(maps, o)
	}
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{}), "10", maps...)
	s := start(t, Options{File: Own(db, apifile.Options{Clock: hasty{looks: &atomic.Int64{}}})})
	const rows = "application/json;as=Table;v=v1;g=meta.k8s.io"
	a := s.get("/api/v1/configmaps?watch=true&includeObject=Object&timeoutSeconds=1", "Accept", rows)
	lines := strings.SplitAfter(a.body, "\n")
	if len(lines) != 3 || strings.Count(a.body, content) != 2 || strings.Count(a.body, `"columnDefinitions":[`) != 1 {
		t.Errorf("%d, %d lines, %.200q", a.code, len(lines), a.body)
	}
	for _, line := range lines[:len(lines)-1] {
		if !json.Valid([]byte(line)) {
			t.Errorf("%.200q is no JSON", line)
		}
	}
}
