package informer

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
)

// TestNackWhileReady: a key of which the file alone has what was told gets a new
// event, and is refused and due again before a worker comes to it.
func TestNackWhileReady(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.replay, d.o.StuckAfter = walk{}, 0
	s.change(cache.Added, "a")
	s.flush()
	for len(d.keys) == 0 && d.fill() {
	}
	told := s.called("default/a")
	d.returned(told, ErrAckLater)
	s.movedOut("default/a")
	s.change(cache.Updated, "a")
	s.flush()
	for d.fill() {
	}
	q := d.keys["default/a"]
	if !q.ready {
		t.Fatalf("%+v", q)
	}
	Event{delivery: told}.Nack(errors.New("no"))
	d.mu.Lock()
	q.waiting = false // it is time
	d.schedule(q)
	d.mu.Unlock()
	go d.work()
	eventually(t, "it is told from the file", func() bool {
		d.fill()
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.keys["default/a"] == nil
	})
	d.cancel()
	d.wakeAll()
	var got []cache.DeltaType
	for _, e := range d.handler.(*ledger).taken() {
		if e.Key == "default/a" {
			got = append(got, e.Type)
		}
	}
	if len(got) != 2 || got[0] != cache.Added || got[1] != cache.Updated {
		t.Errorf("told %v", got)
	}
	s.end()
}
