package informer

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestJournalWithoutPlainHandlers: a program that has only durable handlers, and never
// lives as long as a handler's grace, still has a bounded journal.
func TestJournalWithoutPlainHandlers(t *testing.T) {
	const bound = 4 << 10
	w := newWorld(t)
	w.options = boltstore.Options{JournalBytes: bound}
	w.create("a")
	clk := testingclock.NewFakeClock(time.Now())
	for n := range 4 {
		l := w.live(Options{clock: clk})
		if _, err := l.inf.AddDurableHandler("test", newLedger(t), DurableOptions{}); err != nil {
			t.Fatal(err)
		}
		l.run().synced().equal()
		for i := range 20 {
			w.update("a", fmt.Sprint(n, i), rand.Text(), rand.Text(), rand.Text(), rand.Text(), rand.Text(),
				rand.Text(), rand.Text(), rand.Text())
			l.equal()
		}
		l.acknowledged().end()
	}
	db, err := boltstore.Open(w.path, boltstore.Options{ReadOnly: true, Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	states, err := db.States()
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	if st := states[0]; st.Seq < 80 || st.JournalBytes > 2*bound {
		t.Errorf("%d entries were made, and the journal has %d bytes", st.Seq, st.JournalBytes)
	}
}

// crashing keeps the file as it is at the first call, as a crash would leave it.
type crashing struct {
	*recorder
	once sync.Once
	path string
	left string
}

func (c *crashing) OnAdd(obj any, initial bool) {
	c.once.Do(func() {
		b, err := os.ReadFile(c.path)
		if err == nil {
			err = os.WriteFile(c.left, b, 0o600)
		}
		if err != nil {
			c.t.Error(err)
		}
	})
	c.recorder.OnAdd(obj, initial)
}

// TestFirstPlainHandlerIsOwed: from its first call on, a source's first plain handler is
// owed what is deleted later, also if a crash follows that call, and the next life has no
// handler for a while.
func TestFirstPlainHandlerIsOwed(t *testing.T) {
	for name, late := range map[string]bool{"before the first list": false, "in a file that others have filled": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			w.create("b")
			if late {
				w.live(Options{}).run().synced().equal().end()
			}
			clk := testingclock.NewFakeClock(time.Now())
			h := &crashing{recorder: newRecorder(t), path: w.path, left: filepath.Join(t.TempDir(), "left.db")}
			l := w.live(Options{clock: clk}, h).run().synced().equal()
			eventually(t, "all is told", func() bool { return slices.Equal(h.names(), []string{"a", "b"}) })
			l.end()

			w.path = h.left
			w.delete("a")
			w.live(Options{clock: clk}).run().synced().equal().end() // no handler yet
			w.live(Options{}, h.recorder).run().synced().equal()
			eventually(t, "the delete is told", func() bool { return slices.Equal(h.names(), []string{"b"}) })
		})
	}
}
