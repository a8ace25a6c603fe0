package fifo

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestUnknownDeletes: a delete of what the file does not hold is handed out if
// it is newer than everything accepted, and than every page of the last list:
// the list may have told it.
func TestUnknownDeletes(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, Options{})
	list := func(rv, newest string, names ...string) {
		t.Helper()
		var objs []runtime.Object
		for _, n := range names {
			objs = append(objs, object(n, 5))
		}
		r, err := q.BeginRelist(t.Context(), boltstore.RelistOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Page(objs), r.Commit(t.Context(), rv, newest)); err != nil {
			t.Fatal(err)
		}
	}
	list("10", "10", "a", "b")
	list("20", "30", "a") // its last page did not have b any more
	for _, rv := range []int{25, 30, 31, 31, 28} {
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
	if want := []string{"Deleted ns/b 5", "Deleted ns/b 31", "Deleted ns/a 41"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
