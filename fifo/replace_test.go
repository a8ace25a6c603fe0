package fifo

import (
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
)

// TestReplaceByForeignObjects: a list with something that is no API object is
// refused as a whole. That object is not taken for one that is gone.
func TestReplaceByForeignObjects(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{}, Options{})
	if err := q.Replace([]any{object("a", 1), object("b", 2)}, "3"); err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []any{"b", nil, cache.DeletedFinalStateUnknown{Key: "ns/b", Obj: object("b", 2)}} {
		err := q.Replace([]any{object("a", 1), foreign}, "4")
		if err == nil || !strings.Contains(err.Error(), "runtime.Object") {
			t.Errorf("%T: %v", foreign, err)
		}
		if n := len(s.ListKeys()); n != 2 || q.Accepted() != "3" {
			t.Errorf("%T: %d objects at %s", foreign, n, q.Accepted())
		}
	}
}
