package reflector

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestExpiredWatchError: a 410 as an HTTP error is repaired before the watch opens.
func TestExpiredWatchError(t *testing.T) {
	f := newFixture(t, 4)
	f.list()
	f.cost()
	f.create("more")
	f.sim.FailNext(isWatch, 1, kubesim.Answer(apierrors.NewResourceExpired("too old resource version")))
	w := f.watch()
	if diff := f.differs(); diff != "" {
		t.Fatal(diff)
	}
	f.create("live")
	if ev := f.next(w); ev.Type != watch.Added || ev.Object.(*corev1.ConfigMap).Name != "live" {
		t.Fatalf("%+v", ev)
	}
	f.costs("in all", kubesim.Cost{FullReads: 2, Watches: 2, Others: 1, Forms: 2, Bytes: 2100})
}

// TestExpiredWatchEvent: the ERROR event ends the watch, and the next one has repaired.
func TestExpiredWatchEvent(t *testing.T) {
	bubble(t, 4, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		w := f.watch()
		f.cost()
		f.sim.EndWatches(apierrors.NewResourceExpired("too old resource version"))
		if _, open := <-w.ResultChan(); open {
			t.Fatal("the stream goes on")
		}
		f.create("missed")
		began := time.Now()
		f.watch()
		if diff := f.differs(); diff != "" || time.Since(began) > 100*time.Millisecond {
			t.Fatalf("%s, after %s", diff, time.Since(began))
		}
		f.costs("in all", kubesim.Cost{FullReads: 1, Watches: 1, Others: 1, Forms: 2, Bytes: 1600})
		// A second time, soon after, backs off.
		f.link.expired()
		began = time.Now()
		f.watch()
		if n := f.State().Relists[ReasonExpired]; n != 2 || time.Since(began) < 200*time.Millisecond {
			t.Fatalf("%d relists after %s", n, time.Since(began))
		}
		f.costs("in all", kubesim.Cost{FullReads: 1, Watches: 1, Forms: 2, Bytes: 1100})
	})
}

// TestPace: a relist waits for the backoff since the end of the last one, and no longer than
// what is left of that.
func TestPace(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	p := pace{clock: clk, backoff: newBackoff()}
	if d := p.left(); d > 0 {
		t.Errorf("the first one waits for %s", d)
	}
	for _, least := range []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond} {
		p.ended()
		if d := p.left(); d < least || d > 2*least {
			t.Errorf("the next one waits for %s, not for %s to %s", d, least, 2*least)
		}
		clk.Step(2 * least)
		if err := p.wait(t.Context()); err != nil || p.left() > 0 {
			t.Errorf("%s later it waits for %s more, %v", 2*least, p.left(), err)
		}
	}
	clk.Step(backoffReset + 1)
	p.ended()
	if d := p.left(); d > 1600*time.Millisecond {
		t.Errorf("after a rest the next one waits for %s", d)
	}
}
