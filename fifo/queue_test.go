package fifo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/sealtest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func newQueue(t *testing.T, db boltstore.Options, o Options) (*Queue, *boltstore.Claimed) {
	t.Helper()
	db.Keyset = sealtest.Default()
	file, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), db)
	if err != nil {
		t.Fatal(err)
	}
	s, err := file.Claim(boltstore.Claim{
		Source:  boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped},
		Example: &corev1.ConfigMap{},
		Indexers: cache.Indexers{"odd": func(o any) ([]string, error) {
			if o.(*corev1.ConfigMap).Name == "unindexable" {
				return nil, errors.New("cannot index this")
			}
			return nil, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Release(); _ = file.Close() })
	q := New(s, o)
	t.Cleanup(q.Close)
	return q, s
}

func object(name string, rv int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", ResourceVersion: fmt.Sprint(rv)}}
}

// pop returns the next delta, at the latest after a while.
func pop(t *testing.T, q *Queue) cache.Delta {
	t.Helper()
	var got cache.Delta
	done := make(chan error, 1)
	go func() {
		_, err := q.Pop(func(obj any, _ bool) error { got = obj.(cache.Deltas)[0]; return nil })
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing to pop")
	}
	return got
}

// TestWrittenAhead is invariant 2: what Pop hands out is in the file, with its
// journal entry and resourceVersion.
func TestWrittenAhead(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{Window: time.Microsecond}, Options{})
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
		if in, err := s.ReadJournal(e.Seq); err != nil || len(in) == 0 || in[0].Key != e.Key {
			t.Fatalf("%s was popped and is not in the journal: %v", e.Key, err)
		}
	}
	if s.LastStoreSyncResourceVersion() != "50" {
		t.Fatal(s.LastStoreSyncResourceVersion())
	}
}

func TestPreviousIsBeside(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, Options{})
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
		{q.Update, 5, cache.Added, ""}, // a MODIFIED of what is not there
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
		if err != nil || d.Type != st.typ || got != st.previous || obj.(*corev1.ConfigMap).ResourceVersion != fmt.Sprint(st.rv) {
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
	q, s := newQueue(t, boltstore.Options{}, Options{Transform: transform})
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

// TestUntransformableInAList: what the file has of such an object stays, since
// it has not been deleted.
func TestUntransformableInAList(t *testing.T) {
	fails := false
	q, s := newQueue(t, boltstore.Options{}, Options{Transform: func(o any) (any, error) {
		if fails && o.(*corev1.ConfigMap).Name == "b" {
			return nil, errors.New("cannot transform this")
		}
		return o, nil
	}})
	if err := q.Replace([]any{object("a", 1), object("b", 2), object("c", 3)}, "4"); err != nil {
		t.Fatal(err)
	}
	fails = true
	if err := q.Replace([]any{object("b", 6), object("c", 3)}, "7"); err != nil {
		t.Fatal(err)
	}
	if keys := s.ListKeys(); len(keys) != 2 || !slices.Contains(keys, "ns/b") || !slices.Contains(keys, "ns/c") {
		t.Fatal(keys)
	}
	if n, err := q.Failed(); n != 1 || err == nil || s.UnstoredObjects() != 1 || q.HasSynced() {
		t.Fatal(n, err, s.UnstoredObjects(), q.HasSynced())
	}
	fails = false
	if err := q.Replace([]any{object("b", 6), object("c", 3)}, "8"); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Failed(); n != 1 || err != nil || s.UnstoredObjects() != 0 {
		t.Fatal(n, err, s.UnstoredObjects())
	}
}

// TestFullBatchBlocks: with a disk that takes nothing Add blocks at the bound,
// and Close lets it go.
func TestFullBatchBlocks(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{MaxSize: 64 << 10, MaxCommitBytes: 1 << 20}, Options{MaxBytes: 200 << 10})
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
	for q.store.DB().Err() == nil {
		if time.Now().After(deadline) {
			t.Fatal("the file's bound was not reached")
		}
	}
	blocked := func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.bytes >= q.o.MaxBytes }
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

func TestPopAfterClose(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, Options{})
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

// TestSynced: the server's word counts, and only once everything up to it has
// been popped.
func TestSynced(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, Options{})
	if err := q.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	pop(t, q)
	if q.HasSynced() {
		t.Fatal("synced before the server said anything")
	}
	q.Confirm("7", time.Now())
	if err := q.Add(object("y", 6)); err != nil {
		t.Fatal(err)
	}
	pop(t, q)
	if q.HasSynced() || q.Reached() || !q.Confirmed().IsZero() {
		t.Fatal("synced behind the server's version")
	}
	if err := q.Add(object("z", 8)); err != nil {
		t.Fatal(err)
	}
	if !q.Reached() || q.HasSynced() {
		t.Fatal("synced before it was popped")
	}
	pop(t, q)
	if !q.HasSynced() || q.Confirmed().IsZero() {
		t.Fatal("not synced")
	}
	q.Confirm("20", time.Now())
	if q.Reached() {
		t.Fatal("behind, and reached")
	}
	if err := q.Bookmark("21"); err != nil {
		t.Fatal(err)
	}
	if !q.Reached() || q.Accepted() != "21" {
		t.Fatal("a bookmark does not count")
	}
}

// TestReplace is a Reflector without a Source: a full list is a diff.
func TestReplace(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{}, Options{})
	if err := q.Replace([]any{object("a", 1), object("b", 2)}, "3"); err != nil {
		t.Fatal(err)
	}
	if d := pop(t, q); d.Type != cache.ReplacedAll {
		t.Fatalf("first list: %+v", d)
	}
	if !q.HasSynced() || len(s.ListKeys()) != 2 {
		t.Fatal(q.HasSynced(), s.ListKeys())
	}
	if err := q.Replace([]any{object("b", 5), object("c", 6)}, "7"); err != nil {
		t.Fatal(err)
	}
	got := ""
	for range 3 {
		d := pop(t, q)
		got += string(d.Type) + " " + d.Object.(*boltstore.Entry).Key + ", "
	}
	if got != "Updated ns/b, Added ns/c, Deleted ns/a, " {
		t.Fatal(got)
	}
	q.ExpectResume("7")
	if err := q.Replace(nil, "7"); err != nil || len(s.ListKeys()) != 2 {
		t.Fatalf("a resume emptied the store: %v", err)
	}
	if err := q.Replace(nil, "8"); err != nil || len(s.ListKeys()) != 0 {
		t.Fatalf("an empty list did not empty the store: %v", err)
	}
}

func TestResyncIsNotJournaled(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{}, Options{})
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
