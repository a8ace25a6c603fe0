package informer

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
)

// TestSyncDoesNotWaitForWindow: an agent that spares its flash syncs as soon as any other,
// however much it has missed, ends at once, and finds its last changes in the
// file.
func TestSyncDoesNotWaitForWindow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.options = boltstore.Options{Window: 5 * time.Minute, FlushInterval: time.Hour}
		tuning.SetFile(&w.options, tuning.File{BookmarkInterval: 24 * time.Hour})
		const n = 20
		for i := range n {
			w.create(fmt.Sprint("o", i))
		}
		plain, lasting := newRecorder(t), newLedger(t)
		for life := range 4 {
			l := w.live(Options{}, plain)
			reg, err := l.inf.AddDurableHandler("test", lasting, DurableOptions{})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			l.run().synced()
			eventually(t, "the handler has, too", reg.HasSynced)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("life %d: synced after %s", life, took)
			}
			l.equal()
			if got := len(lasting.taken()); got < n || got > n+3 { // and what came last, and a Reset
				t.Errorf("life %d: told %d events", life, got)
			}
			if st := l.inf.State(); life > 0 && (len(st.Relists) > 0 || st.Resumes != 1) {
				t.Errorf("life %d: %v relists, %d resumes", life, st.Relists, st.Resumes)
			}
			w.update("o0", "late ", fmt.Sprint(life))
			w.update("o1", "late ", fmt.Sprint(life))
			after(time.Second)
			began = time.Now()
			l.end()
			if took := time.Since(began); took > time.Second {
				t.Errorf("life %d: it took %s to end", life, took)
			}
			// The late ones may have been committed at the end, when nothing is told any more.
			if hs := handlersOf(t, w.path); len(hs) != 1 || hs[0].Pending > 2 {
				t.Errorf("life %d: %+v", life, hs)
			}
			lasting.taken()
			for i := range n {
				w.update(fmt.Sprint("o", i), "missed ", fmt.Sprint(life))
			}
		}
	})
}
