package informer

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// TestEndWhenMoved: if the options ask for it, an informer ends in order once its file is
// gone from its path; otherwise it goes on. The file that is then at the path is not
// touched, and the next life begins on it.
func TestEndWhenMoved(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]bool{"asked": true, "not asked": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.options.FlushInterval = time.Millisecond // which is when the DB looks
			w.create("one")
			l := w.live(Options{EndWhenMoved: asked}).run().synced()
			if err := os.Rename(w.path, w.path+".away"); err != nil {
				t.Fatal(err)
			}
			if !asked {
				eventually(t, "noticed", func() bool { return errors.Is(l.db.Err(), boltstore.ErrMoved) })
				w.create("two")
				l.equal()
				if l.inf.IsStopped() {
					t.Error("it ended unasked")
				}
				l.end()
				return
			}
			select {
			case <-l.done:
			case <-time.After(time.Minute):
				t.Fatal("it runs on")
			}
			if err := l.db.Err(); !errors.Is(err, boltstore.ErrMoved) || !l.inf.IsStopped() {
				t.Error("ended for another reason: ", err)
			}
			l.end()
			w.create("two")
			w.live(Options{EndWhenMoved: asked}).run().synced().equal()
		})
	}
}

// TestRunBehindMoved: a file that is gone before Run ends it at once.
func TestRunBehindMoved(t *testing.T) {
	w := newWorld(t)
	l := w.live(Options{EndWhenMoved: true})
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	if err := l.db.Err(); !errors.Is(err, boltstore.ErrMoved) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l.inf.RunWithContext(ctx)
	if ctx.Err() != nil {
		t.Error("it ran on")
	}
	if err := l.db.Close(); err != nil {
		t.Error(err)
	}
}
