package durable

import (
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestReach: while a commit is under way, a handler that is behind is told only entries
// that the commit knows of.
func TestReach(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.replay.walk = walk{} // as after it
	for i := range 2*aheadOfCommit + 10 {
		s.change(cache.Added, fmt.Sprint("o", i))
	}
	last := s.flush()
	if err := d.claim.Release(); err != nil { // no commit asks it any more but we
		t.Fatal(err)
	}
	for _, want := range []uint64{aheadOfCommit, 2 * aheadOfCommit, last} {
		p := d.Position()
		if again := d.Position(); again.Reach != p.Reach {
			t.Errorf("a commit that fails may be in the file: reach %d, then %d", p.Reach, again.Reach)
		}
		for d.fillEntries(last) {
		}
		if d.pos.cursor > p.Reach || d.pos.cursor != want {
			t.Errorf("at %d of %d, reach %d, want %d", d.pos.cursor, last, p.Reach, want)
		}
		tick := d.host.Backlog.Tick()
		d.Persisted(0)
		if d.pos.cursor < last && d.host.Backlog.Tick() == tick {
			t.Error("it waits on")
		}
	}
	s.end()
}
