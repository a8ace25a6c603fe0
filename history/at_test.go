package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/filetest"
)

// shown has the states of one object that a file was shown.
type shown struct {
	version int // of the state
	at      time.Time
	image   string // "" for a delete
}

// TestAt: after random changes, lists and trims, At returns the state that the file was
// shown, for each version and at each time, or says that it does not know. It knows all
// states in the journal.
func TestAt(t *testing.T) {
	for seed := range uint64(40) {
		testAt(t, seed)
	}
}

// claimPods claims the pods of a new file until the test ends.
func claimPods(t *testing.T, o boltstore.Options) *boltstore.Claimed {
	t.Helper()
	db, err := boltstore.Open(t.TempDir()+"/at.db", o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "pods",
		Form: boltstore.FormTyped}, Example: &corev1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Release()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func podOf(version, image string) *corev1.Pod {
	return pod(version, "u1", func(p *corev1.Pod) { p.Spec.Containers[1].Image = image })
}

func testAt(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	clock := testingclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	o := boltstore.Options{Window: time.Nanosecond, Clock: clock}
	if seed%3 == 0 {
		o.JournalBytes = 1 // as few blocks as may be
	}
	s := claimPods(t, o)
	q := fifo.New(s, nil)
	object := func(version int, image string) *corev1.Pod { return podOf(fmt.Sprint(version), image) }
	version, began := 10, clock.Now()
	var seen []shown
	var there string // the object's image on the server
	var shownImage string
	note := func(version int) {
		shownImage = there
		seen = append(seen, shown{version, clock.Now(), there})
	}
	flush := func(err error) {
		t.Helper()
		if err == nil {
			err = q.Flush(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	relist := func() {
		next := object(1, "a:1")
		next.Name = "shop-2" // its key begins with the object's
		pods := []runtime.Object{next}
		if there != "" {
			pods = append(pods, object(version, there))
		}
		filetest.RelistAt(t, s, fmt.Sprint(version+1), clock.Now(), pods...)
	}
	change := func() {
		version++
		if there = fmt.Sprint("a:", version); rnd.IntN(4) == 0 {
			there = ""
		}
	}
	if rnd.IntN(2) == 0 {
		change()
	}
	relist()
	version++
	note(version)
	for range 1 + rnd.IntN(12) {
		clock.Step(time.Second)
		switch before := there; rnd.IntN(5) {
		case 0: // seen by a list only
			change()
			relist()
			version++
			if there != "" || shownImage != "" {
				note(version)
			}
		default:
			change()
			switch {
			case there == "" && before == "":
				continue
			case there == "":
				flush(q.Delete(object(version, before)))
			case before == "":
				flush(q.Add(object(version, there)))
			default:
				flush(q.Update(object(version, there)))
			}
			note(version)
		}
	}
	known := 0
	ask := func(m Moment, want string, sure bool) {
		t.Helper()
		obj, err := At(s.Store, "web/shop", m)
		got := ""
		if p, ok := obj.(*corev1.Pod); ok {
			got = p.Spec.Containers[1].Image
		}
		switch {
		case errors.Is(err, ErrUnknown):
			if sure {
				t.Fatalf("seed %d: %v; shown %v", seed, err, seen)
			}
		case err != nil:
			t.Fatal(err)
		case got != want:
			t.Fatalf("seed %d: %q at %s, want %q; shown %v", seed, got, m, want, seen)
		default:
			known++
		}
	}
	reached, err := strconv.Atoi(s.State().ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	for v := reached + 1; v <= reached+2; v++ {
		if obj, err := At(s.Store, "web/shop", Moment{ResourceVersion: fmt.Sprint(v)}); !errors.Is(err, ErrUnknown) {
			t.Errorf("seed %d: at version %d, which the file has not reached: %v, %v", seed, v, obj, err)
		}
	}
	for v := 9; v <= version+2; v++ {
		want, sure := "", false
		for _, c := range seen {
			if c.version <= v {
				want, sure = c.image, o.JournalBytes == 0 && v <= reached
			}
		}
		ask(Moment{ResourceVersion: fmt.Sprint(v)}, want, sure)
	}
	for at := began.Add(-time.Second); !at.After(clock.Now()); at = at.Add(time.Second / 2) {
		want, sure := "", false
		for i, c := range seen {
			if !c.at.After(at) {
				want, sure = c.image, i > 0 && o.JournalBytes == 0
			}
		}
		ask(Moment{Time: at}, want, sure)
	}
	if known == 0 {
		t.Errorf("seed %d: nothing is known; shown %v", seed, seen)
	}
	if _, err := At(s.Store, "web/shop", Moment{ResourceVersion: "opaque"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("a version that cannot be compared: %v", err)
	}
	if _, err := At(s.Store, "web/none", Moment{ResourceVersion: "10"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("an object that the file never had: %v", err)
	}
}
