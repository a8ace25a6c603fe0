package history

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestAtSetBackClock: the clock of a device without a battery begins again at each boot.
// A time that it has had twice is ambiguous; a time that it has had once is a moment.
func TestAtSetBackClock(t *testing.T) {
	start := time.Unix(1_000, 0)
	clock := testingclock.NewFakeClock(start)
	s := claimPods(t, boltstore.Options{Window: time.Nanosecond, Clock: clock})
	filetest.RelistAt(t, s, "1", clock.Now(), podOf("1", "a:1"))
	q := fifo.New(s, nil)
	for _, c := range []struct {
		at             time.Duration
		version, image string
	}{{0, "2", "a:2"}, {10 * time.Hour, "3", "a:3"}, {time.Hour, "4", "a:4"}, {20 * time.Hour, "5", "a:5"}} {
		clock.SetTime(start.Add(c.at))
		if err := q.Update(podOf(c.version, c.image)); err != nil {
			t.Fatal(err)
		}
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[time.Duration]string{5 * time.Hour: "", 15 * time.Hour: "a:4", 21 * time.Hour: "a:5"} {
		obj, err := At(s.Store, "web/shop", Moment{Time: start.Add(at)})
		switch p, ok := obj.(*corev1.Pod); {
		case want == "" && !errors.Is(err, ErrUnknown):
			t.Errorf("%s: %v, %v", at, obj, err)
		case want != "" && (err != nil || !ok || p.Spec.Containers[1].Image != want):
			t.Errorf("%s: %v, %v, want %s", at, obj, err, want)
		}
	}
}
