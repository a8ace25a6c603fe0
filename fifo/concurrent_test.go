package fifo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
)

// TestListsBesideEvents: events and lists may come from several goroutines at once, as in
// client-go's queue. The file stays sound, and the journal agrees with its objects.
func TestListsBesideEvents(t *testing.T) {
	o := boltstore.Options{Durability: boltstore.DurabilityProcess}
	tuning.SetFile(&o, tuning.File{MaxCommitBytes: 1}) // each list is staged
	q, s, file := newFile(t, o, settings{})
	if err := q.Replace([]any{object("first", 1)}, "1"); err != nil {
		t.Fatal(err)
	}
	var version atomic.Int64
	version.Store(1)
	popping := make(chan struct{})
	go func() {
		defer close(popping)
		for {
			if _, err := q.Pop(func(any, bool) error { return nil }); err != nil {
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 100 {
				v := int(version.Add(1))
				obj := object(fmt.Sprint("o", (i+w)%7), v)
				var err error
				switch {
				case i%9 == w:
					err = q.Replace([]any{obj, object(fmt.Sprint("l", i%5), v)}, fmt.Sprint(v))
				case i%4 == 0:
					err = q.Delete(obj)
				default:
					err = q.Add(obj)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.Close()
	<-popping
	told := map[string]bool{"ns/first": true}
	for e, err := range s.History("") {
		if err != nil {
			t.Fatal(err)
		}
		if told[e.Key] = true; e.Type == cache.Deleted {
			delete(told, e.Key)
		}
	}
	keys := slices.Sorted(slices.Values(s.ListKeys()))
	if got := slices.Sorted(maps.Keys(told)); !slices.Equal(got, keys) {
		t.Errorf("the journal tells %v, and the file has %v", got, keys)
	}
	if r, err := file.Check(); err != nil || !r.Sound() {
		t.Errorf("%+v %v", r, err)
	}
}

// TestEndlessEvents: Flush does not wait for events that come after its call, however
// fast they come.
func TestEndlessEvents(t *testing.T) {
	var wg sync.WaitGroup
	var came atomic.Int64
	var mu sync.Mutex
	var queue *Queue // under mu: set while events follow each other
	o := boltstore.Options{Durability: boltstore.DurabilityProcess}
	tuning.SetFile(&o, tuning.File{MaxCommitBytes: 1, Op: func(name, _ string) error { // each commit takes one event
		mu.Lock() // no goroutine begins once events have ended: wg is waited for then
		defer mu.Unlock()
		q := queue
		if name != "transaction" || q == nil {
			return nil
		}
		before := q.Counted()
		for range 2 {
			v := came.Add(1)
			wg.Go(func() { _ = q.Add(object("o", int(v))) })
		}
		for look := 0; look < 1000 && q.Counted() < before+2; look++ {
			time.Sleep(10 * time.Microsecond) // between two looks: Add blocks while the hook runs, and gives no signal
		}
		return nil
	}})
	q, _ := newQueue(t, o, settings{})
	mu.Lock()
	queue = q
	mu.Unlock()
	wg.Go(func() {
		for {
			if _, err := q.Pop(func(any, bool) error { return nil }); err != nil {
				return
			}
		}
	})
	if err := q.Add(object("first", int(came.Add(1)))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := q.Flush(ctx); err != nil {
		t.Error(err)
	}
	mu.Lock()
	queue = nil
	mu.Unlock()
	q.Close()
	wg.Wait()
}
