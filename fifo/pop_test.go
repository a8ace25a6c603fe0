package fifo

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestWrittenAhead is invariant 2: a change that Pop hands out is in the file, with its
// journal entry and resourceVersion.
func TestWrittenAhead(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{Window: time.Microsecond}, settings{})
	for i := range 50 {
		if err := q.Add(object(fmt.Sprint(i), i+1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		d := pop(t, q)
		e := d.Object.(*boltstore.Entry)
		if e.Key != fmt.Sprint("ns/", i) || d.Type != cache.Added {
			t.Fatalf("popped %s %s as number %d", d.Type, e.Key, i)
		}
		if _, ok, err := s.GetByKey(e.Key); !ok || err != nil {
			t.Fatalf("%s was popped and is not stored: %v", e.Key, err)
		}
		if in, err := s.Feed.ReadJournal(e.Seq); err != nil || len(in) == 0 || in[0].Key != e.Key {
			t.Fatalf("%s was popped and is not in the journal: %v", e.Key, err)
		}
	}
	if s.LastStoreSyncResourceVersion() != "50" {
		t.Fatal(s.LastStoreSyncResourceVersion())
	}
}

func TestPopAfterClose(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, settings{})
	if err := q.Add(object("x", 1)); err != nil {
		t.Fatal(err)
	}
	if err := q.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	q.Close()
	pop(t, q) // what was committed
	if _, err := q.Pop(nil); !errors.Is(err, cache.ErrFIFOClosed) {
		t.Fatal(err)
	}
	if err := q.PopBatch(nil, nil); !errors.Is(err, cache.ErrFIFOClosed) {
		t.Fatal(err)
	}
	if err := q.Add(object("y", 2)); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestResyncIsNotJournaled(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{}, settings{})
	if err := q.Resync(); err != nil {
		t.Fatal(err)
	}
	if d := pop(t, q); d.Type != cache.SyncAll {
		t.Fatal(d.Type)
	}
	if s.State().Seq != 0 {
		t.Fatal("a resync was journaled")
	}
}
