package fifo

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestRelistEndsWithTheQueue: a relist that the disk does not take ends when
// the queue does.
func TestRelistEndsWithTheQueue(t *testing.T) {
	failing := make(chan struct{}, 1)
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "A relist could not be committed") {
			select {
			case failing <- struct{}{}:
			default:
			}
		}
	}, funcr.Options{})
	q, _ := newQueue(t, boltstore.Options{MaxSize: 128 << 10, Logger: &log}, settings{})
	if err := q.Replace([]any{object("x", 1)}, "1"); err != nil {
		t.Fatal(err)
	}
	var objs []any
	for i := range 100 {
		o := object(fmt.Sprint("o", i), i+1)
		o.Data = map[string]string{"k": string(make([]byte, 5000))}
		objs = append(objs, o)
	}
	done := make(chan error, 1)
	go func() { done <- q.Replace(objs, "200") }()
	select {
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-failing:
	}
	q.Close()
	select {
	case err := <-done:
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// TestListBehindAFailingDisk: a list waits for an event that the disk does not take. Close
// ends the wait, and lists that come later are refused.
func TestListBehindAFailingDisk(t *testing.T) {
	q, s, file := newFile(t, boltstore.Options{MaxSize: 256 << 10}, settings{})
	for i := range 100 {
		o := object(fmt.Sprint("o", i), i+1)
		o.Data = map[string]string{"k": string(make([]byte, 5000))}
		if err := q.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); file.Err() == nil; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the disk takes all")
		}
	}
	before := s.ListKeys()
	done := make(chan error, 1)
	go func() { done <- q.Replace([]any{object("listed", 200)}, "200") }()
	deadline := time.Now().Add(time.Minute)
	for listing := false; !listing; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the list does not begin")
		}
		q.mu.Lock()
		listing = q.listing
		q.mu.Unlock()
	}
	q.Close()
	select {
	case err := <-done:
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if err := q.Replace([]any{object("later", 300)}, "300"); !errors.Is(err, ErrClosed) {
		t.Errorf("a list after Close: %v", err)
	}
	if after := s.ListKeys(); len(after) != len(before) {
		t.Errorf("%d objects, before the lists %d", len(after), len(before))
	}
}

// TestReplace is a Reflector without a Source: a full list is a diff.
func TestReplace(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{}, settings{})
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
	if err := q.Replace(nil, "8"); err != nil || len(s.ListKeys()) != 0 {
		t.Fatalf("an empty list did not empty the store: %v", err)
	}
}

// TestUntransformableInAList: what the file has of such an object stays, since
// it has not been deleted.
func TestUntransformableInAList(t *testing.T) {
	fails := false
	q, s := newQueue(t, boltstore.Options{}, settings{transform: func(o any) (any, error) {
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
	if n, err := q.Failed(); n != 1 || err == nil || s.Feed.UnstoredObjects() != 1 || q.HasSynced() {
		t.Fatal(n, err, s.Feed.UnstoredObjects(), q.HasSynced())
	}
	fails = false
	if err := q.Replace([]any{object("b", 6), object("c", 3)}, "8"); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Failed(); n != 1 || err != nil || s.Feed.UnstoredObjects() != 0 {
		t.Fatal(n, err, s.Feed.UnstoredObjects())
	}
}

// TestReplaceByForeignObjects: a list with something that is no API object is
// refused as a whole. That object is not taken for one that is gone.
func TestReplaceByForeignObjects(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{}, settings{})
	if err := q.Replace([]any{object("a", 1), object("b", 2)}, "3"); err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []any{"b", nil, cache.DeletedFinalStateUnknown{Key: "ns/b", Obj: object("b", 2)}} {
		err := q.Replace([]any{object("a", 1), foreign}, "4")
		if err == nil || !strings.Contains(err.Error(), "runtime.Object") {
			t.Errorf("%T: %v", foreign, err)
		}
		if n := len(s.ListKeys()); n != 2 || q.AcceptedVersion() != "3" {
			t.Errorf("%T: %d objects at %s", foreign, n, q.AcceptedVersion())
		}
	}
}
