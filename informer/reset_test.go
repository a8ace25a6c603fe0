package informer

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
)

// TestResetIsWrittenBeforeItIsTold: damage that the handler alone has come
// across may be gone after a crash, and what the handler does about a Reset is
// not.
func TestResetIsWrittenBeforeItIsTold(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	s.change(cache.Added, "a")
	s.flush()
	d.damaged(errors.New("a page was not what it should be"))
	eventually(t, "told to start over", func() bool {
		d.fill()
		hs, err := d.inf.store.Handlers()
		if err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.resetting && !hs[0].Reset {
			t.Fatal("a crash would make it forget what it is told")
		}
		return d.resetting
	})
	s.ackAll()
	for len(d.keys) == 0 && d.fill() {
	}
	if len(d.keys) != 1 {
		t.Errorf("%d objects are shown", len(d.keys))
	}
	s.end()
}
