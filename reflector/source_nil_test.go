package reflector

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestNilListerWatcher: a nil ListerWatcher shows no list, which is an error. If the source
// is stated, it may be nil: a unit test that fills the store itself never lists.
func TestNilListerWatcher(t *testing.T) {
	for _, lw := range []cache.ListerWatcher{nil, (*cache.ListWatch)(nil)} {
		if _, _, err := (Options{}).Identify(lw, &corev1.Pod{}); !errors.Is(err, ErrUnidentified) ||
			!strings.Contains(err.Error(), "nil") {
			t.Error(err)
		}
		src := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}
		if got, _, err := (Options{Source: &src}).Identify(lw, &corev1.Pod{}); err != nil || got != src {
			t.Error(got, err)
		}
	}
}
