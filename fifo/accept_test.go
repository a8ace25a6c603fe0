package fifo

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestUnknownDeletes: a delete of an object that the file does not hold is handed out if
// it is newer than everything accepted and than every page of the last list, since the
// list may have told it already.
func TestUnknownDeletes(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, settings{})
	list := func(rv, newest, target string, names ...string) {
		t.Helper()
		var objs []runtime.Object
		for _, n := range names {
			objs = append(objs, object(n, 5))
		}
		r, err := q.BeginRelist(t.Context(), boltstore.RelistOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Page(objs), r.Commit(t.Context(), rv, newest, target)); err != nil {
			t.Fatal(err)
		}
	}
	list("10", "10", "10", "a", "b")
	list("20", "30", "35", "a") // its last page did not have b any more
	for _, rv := range []int{25, 30, 31, 31, 28, 34} {
		if err := q.Delete(object("b", rv)); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Bookmark("40"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Delete(object("c", 40)), q.Delete(object("a", 41))); err != nil {
		t.Fatal(err)
	}
	var told []string
	for !slices.Contains(told, "Deleted ns/a 41") {
		d := pop(t, q)
		e, ok := d.Object.(*boltstore.Entry)
		if !ok {
			continue
		}
		obj, err := e.Object()
		if err != nil {
			t.Fatal(err)
		}
		if u, missed := obj.(cache.DeletedFinalStateUnknown); missed {
			obj = u.Obj
		}
		told = append(told, fmt.Sprintf("%s %s %s", d.Type, e.Key, versionOf(obj)))
	}
	if want := []string{"Deleted ns/b 5", "Deleted ns/b 31", "Deleted ns/b 34",
		"Deleted ns/a 41"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestDeltaHasPrevious(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, settings{})
	steps := []struct {
		do       func(any) error
		rv       int
		typ      cache.DeltaType
		previous string
	}{
		{q.Add, 1, cache.Added, ""},
		{q.Update, 2, cache.Updated, "1"},
		{q.Add, 3, cache.Updated, "2"}, // a replayed ADDED
		{q.Delete, 4, cache.Deleted, "3"},
		{q.Update, 5, cache.Added, ""}, // a MODIFIED of an unknown object
	}
	for _, st := range steps {
		if err := st.do(object("x", st.rv)); err != nil {
			t.Fatal(err)
		}
		d := pop(t, q)
		e := d.Object.(*boltstore.Entry)
		prev, err := e.Previous()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if prev != nil {
			got = prev.(*corev1.ConfigMap).ResourceVersion
		}
		obj, err := e.Object()
		if err != nil || d.Type != st.typ || got != st.previous ||
			obj.(*corev1.ConfigMap).ResourceVersion != fmt.Sprint(st.rv) {
			t.Fatalf("at %d: %s, previous %q, %v %v", st.rv, d.Type, got, obj, err)
		}
	}
}

// TestUnstorable: an object that cannot be stored is reported and counted, and
// the next one is not held up.
func TestUnstorable(t *testing.T) {
	broken := false
	transform := func(o any) (any, error) {
		switch o.(*corev1.ConfigMap).Name {
		case "fine":
			if broken {
				return nil, errors.New("cannot transform this")
			}
		case "untransformable":
			return nil, errors.New("cannot transform this")
		case "panics":
			panic("boom")
		}
		return o, nil
	}
	q, s := newQueue(t, boltstore.Options{}, settings{transform: transform})
	if err := q.Add(object("unindexable", 1)); err != nil { // it is kept, without values
		t.Fatal(err)
	}
	if d := pop(t, q); d.Object.(*boltstore.Entry).Key != "ns/unindexable" || s.State().Unindexed != 1 {
		t.Errorf("%+v, %+v", d, s.State())
	}
	for i, name := range []string{"untransformable", "panics"} {
		if err := q.Add(object(name, i+2)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if n, err := q.Failed(); n != uint64(i+1) || err == nil {
			t.Errorf("%s: %d failed, %v", name, n, err)
		}
	}
	if err := q.Add(object("fine", 4)); err != nil {
		t.Fatal(err)
	}
	pop(t, q)
	if st := s.State(); st.Unstored != 2 || st.UnstoredReason == "" {
		t.Errorf("%+v", st)
	}
	broken = true
	if err := q.Delete(object("fine", 5)); err == nil {
		t.Error("no error for a final state that cannot be stored")
	}
	if d := pop(t, q); d.Type != cache.Deleted {
		t.Errorf("the delete was lost: %+v", d)
	}
	if err := q.Add("not an object"); err == nil {
		t.Error("a string was accepted")
	}
	if err := q.Add(object("good", 9)); err != nil {
		t.Fatal(err)
	}
	if e := pop(t, q).Object.(*boltstore.Entry); e.Key != "ns/good" || s.LastStoreSyncResourceVersion() != "9" {
		t.Fatalf("%s at %s", e.Key, s.LastStoreSyncResourceVersion())
	}
}

// TestUnstorableFinalState: a delete whose final state cannot be stored removes its
// object, and nothing newer.
func TestUnstorableFinalState(t *testing.T) {
	for name, c := range map[string]struct {
		gone int    // version of the delete
		want string // version that readers see
	}{
		"of the object":                {13, ""},
		"of the one before it":         {10, "12"},
		"of the version that is there": {12, ""},
	} {
		t.Run(name, func(t *testing.T) {
			broken := false
			q, s := newQueue(t, boltstore.Options{}, settings{transform: func(o any) (any, error) {
				if broken {
					return nil, errors.New("cannot transform this")
				}
				return o, nil
			}})
			r, err := q.BeginRelist(t.Context(), boltstore.RelistOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// The pages have versions 9 to 12, so the watch brings the changes in
			// between.
			if err := errors.Join(r.Page([]runtime.Object{object("a", 12)}),
				r.Commit(t.Context(), "9", "12", "12")); err != nil {
				t.Fatal(err)
			}
			broken = true
			if err := q.Delete(object("a", c.gone)); err == nil {
				t.Error("no error for a final state that cannot be stored")
			}
			if err := q.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := ""
			if obj, ok, err := s.GetByKey("ns/a"); err != nil {
				t.Fatal(err)
			} else if ok {
				got = versionOf(obj)
			}
			if got != c.want {
				t.Errorf("readers see version %q, want %q", got, c.want)
			}
		})
	}
}

// TestFullBatchBlocks: if the disk takes no writes, Add blocks at the bound, and Close
// releases it.
func TestFullBatchBlocks(t *testing.T) {
	q, _, file := newFile(t, boltstore.Options{MaxSize: 64 << 10}, settings{most: 200 << 10})
	result := make(chan error, 1)
	accepted := make(chan struct{}, 10_000)
	go func() {
		for i := 0; ; i++ {
			o := object(fmt.Sprint(i), i+1)
			o.Data = map[string]string{"k": strings.Repeat("v", 10_000)}
			if err := q.Add(o); err != nil {
				result <- err
				return
			}
			accepted <- struct{}{}
		}
	}()
	deadline := time.Now().Add(time.Minute)
	for file.Err() == nil {
		if time.Now().After(deadline) {
			t.Fatal("the file's bound was not reached")
		}
	}
	blocked := func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.batch.bytes >= q.most }
	for !blocked() {
		if time.Now().After(deadline) {
			t.Fatal("not blocked")
		}
	}
	q.Close()
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if n := len(accepted); n > 100 {
		t.Fatalf("%d objects of 10 kB accepted", n)
	}
}

// TestFullInAWindow: an Add that is held up by a full queue does not wait for the window
// to pass, even if it was the output that was full.
func TestFullInAWindow(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{Window: time.Hour}, settings{most: 10_000})
	const n = 60 // several times what fits
	failed := make(chan error, 1)
	go func() {
		for i := range n {
			if err := q.Add(object(fmt.Sprint("o", i), i+1)); err != nil {
				failed <- err
			}
		}
		close(failed)
	}()
	full := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.batch.bytes >= q.most && q.output.bytes >= q.most && len(q.batch.inflight) == 0
	}
	for deadline := time.Now().Add(time.Minute); !full(); {
		if time.Now().After(deadline) {
			t.Fatal("it is never full")
		}
		goruntime.Gosched()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		q.mu.Lock()
		accepted, none := q.counts.accepted, len(q.output.deltas) == 0 && len(q.batch.inflight) == 0 &&
			q.batch.bytes < q.most
		q.mu.Unlock()
		switch {
		case !none:
			pop(t, q)
			continue
		case accepted == n: // what is left waits for the window
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			return
		case time.Now().After(deadline):
			t.Fatal("nobody is held up, and not all are accepted")
		}
		goruntime.Gosched() // adding is slower than popping, and there may be too few to be urgent
	}
}

// TestOneChangeFits: a change that is larger than the bound is taken.
func TestOneChangeFits(t *testing.T) {
	for _, most := range []int{1, math.MaxInt} {
		q, _ := newQueue(t, boltstore.Options{Window: time.Nanosecond}, settings{most: most})
		added := make(chan error, 3)
		go func() {
			for i := range 3 {
				added <- q.Add(object(fmt.Sprint("o", i), i+1))
			}
		}()
		for range 3 {
			pop(t, q)
		}
		for range 3 {
			if err := <-added; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestKindOfAnEvent: a source whose objects come by its watch has the kind that the server
// shows, also if the transform gives them another one.
func TestKindOfAnEvent(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // the test looks at the kind only
	s, err := db.Claim(boltstore.Claim{
		Source: boltstore.Source{Group: "example.com", Version: "v1", Resource: "widgets",
			Form: boltstore.FormUnstructured},
		Example: &unstructured.Unstructured{},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Feed.ExpectProducer()
	q := New(s, func(obj any) (any, error) {
		obj.(*unstructured.Unstructured).SetKind("Other")
		return obj, nil
	})
	defer s.Release()
	defer q.Close()
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "a", "namespace": "ns", "resourceVersion": "1"}}}
	if err := q.Add(w); err != nil {
		t.Fatal(err)
	}
	pop(t, q)
	if states, err := db.States(); err != nil || len(states) != 1 || states[0].Kind != "Widget" {
		t.Error(states, err)
	}
}
