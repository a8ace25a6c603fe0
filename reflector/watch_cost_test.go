package reflector

import (
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestWakeWithNothingMissed: it costs one question and one watch, whatever is already
// known of the server. A list of few objects is the question, unless bytes matter more; with
// ConfirmList it comes beside the watch.
// The served form is not asked for.
func TestWakeWithNothingMissed(t *testing.T) {
	for confirm, most := range map[Confirm]kubesim.Cost{
		ConfirmAuto:     {FullReads: 1, Watches: 1, Bytes: 1300},
		ConfirmBookmark: {Questions: 1, Watches: 1, Bytes: 450},
		ConfirmList:     {Questions: 2, FullReads: 1, Watches: 1, Bytes: 2200}, // the watch may take another connection
	} {
		f := newFixture(t, 5)
		f.proving.mode = confirm
		f.list()
		f.watch().Stop()
		f.restart()
		f.proving.mode = confirm
		f.forget()
		f.list()
		f.watch()
		f.costs("the wake", most)
	}
}

// TestCustomWakeWithNothingMissed: a custom resource's wake costs no more, even if its
// definition may not be read.
func TestCustomWakeWithNothingMissed(t *testing.T) {
	for _, denied := range []bool{false, true} {
		f := newCustomFixture(t)
		f.denied.Store(denied)
		f.list()
		if err := f.sim.Create(widget("other", "none")); err != nil { // the server's versions move
			t.Fatal(err)
		}
		w := f.watch()
		if ev := f.next(w); ev.Type == watch.Added {
			if err := f.queue.Add(ev.Object); err != nil {
				t.Fatal(err)
			}
		}
		w.Stop()
		f.restart()
		f.forget()
		f.list()
		f.watch().Stop()
		f.costs("the wake", kubesim.Cost{FullReads: 1, Watches: 1, Bytes: 1100})
	}
}
