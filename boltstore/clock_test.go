package boltstore

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/devicetest"
	"github.com/kubewake/kubewake/internal/listing"
)

// TestThisMachinesClock: this machine's boot and uptime look like those of a running machine.
func TestThisMachinesClock(t *testing.T) {
	m := machine{}
	up := m.Uptime()
	if m.Boot() != "" && up <= 0 || m.Slept() < 0 || m.Slept() > up {
		t.Errorf("boot %q, up for %s, slept for %s", m.Boot(), up, m.Slept())
	}
	if boot := m.Boot(); boot != (machine{}).Boot() || m.Uptime() < up {
		t.Error("time runs back")
	}
	if d := newDevice(Options{Clock: clock.RealClock{}}); d.boots == nil {
		t.Error("the real clock is taken for a test's")
	}
}

// TestAgeOfOlderConfirmations: a confirmation by an earlier version has an age by a clock that is
// right.
func TestAgeOfOlderConfirmations(t *testing.T) {
	dev := devicetest.New(time.Unix(1000, 0))
	d := newDevice(Options{Clock: dev})
	then := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if age, ok := d.age(then.UnixNano(), nil); ok {
		t.Errorf("%s by a clock of 1970", age)
	}
	dev.Set(then.Add(time.Hour), false)
	if age, ok := d.age(then.UnixNano(), nil); ok {
		t.Errorf("%s by a clock that nobody vouches for", age)
	}
	dev.Set(then.Add(time.Hour), true)
	if age, ok := d.age(then.UnixNano(), nil); !ok || age < time.Hour || age > time.Hour+time.Minute {
		t.Errorf("%s, known %v", age, ok)
	}
	if age, ok := d.age(0, nil); ok {
		t.Errorf("%s of what never was", age)
	}
}

// TestServerTime: a server with the device's time vouches for its clock until the clock
// is set.
func TestServerTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dev := devicetest.New(now)
	db := openTest(t, testPath(t), Options{Clock: dev})
	right := func(when string, want bool) {
		t.Helper()
		if db.device.right() != want {
			t.Errorf("%s: right is %v", when, !want)
		}
	}
	right("at first", false)
	db.device.serverTime(now.Add(2 * time.Minute))
	right("another time", false)
	db.device.serverTime(now.Add(30 * time.Second))
	right("the same time", true)
	dev.Pass(time.Hour)
	db.device.serverTime(dev.Now())
	right("later", true)
	db.device.serverTime(now)
	right("a server that is behind", false)
}

// TestJumpedClock: a clock that restarts and is set later removes nothing that was in
// use recently: no sources, handlers or journal.
func TestJumpedClock(t *testing.T) {
	right := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	begins := time.Unix(0, 0).Add(time.Hour)
	dev := devicetest.New(begins)
	path, o := testPath(t), Options{Window: time.Nanosecond, Clock: dev, HandlerAge: 48 * time.Hour,
		CollectAfter: 24 * time.Hour, JournalAge: 2 * time.Hour}
	other := Source{Version: "v1", Resource: "others", Form: FormTyped}
	claim := func(db *DB, src Source) *Claimed {
		t.Helper()
		s, err := db.Claim(Claim{Source: src, Example: &corev1.ConfigMap{}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	life := func(fn func(db *DB, s *Claimed)) {
		t.Helper()
		db := openTest(t, path, o)
		s := claim(db, Source{Version: "v1", Resource: "configmaps", Form: FormTyped})
		fn(db, s)
		s.Release()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add := func(s *Claimed, rv int) {
		t.Helper()
		p := &testProducer{}
		s.Feed.Attach(p)
		p.add(t, s, configMap("ns", "a", rv, nil))
		p.wait(t)
		s.Delivery.SetTold(s.State().Seq)
		p.add(t, s, configMap("ns", "b", rv, nil))
		p.wait(t)
	}
	oldest := func(s *Claimed) uint64 {
		t.Helper()
		es, err := s.Feed.ReadJournal(0)
		if err != nil || len(es) == 0 {
			t.Fatal("nothing is journaled", err)
		}
		return es[0].Seq
	}
	life(func(db *DB, s *Claimed) {
		add(s, 1)
		add(s, 2)
		o := claim(db, other)
		add(o, 1)
		o.Release()
	})
	for _, set := range []func(){
		func() { dev.Reboot(begins.Add(30 * 24 * time.Hour)) }, // the clock says so, and nothing vouches for it
		func() { dev.Reboot(begins); dev.Set(right, true) },
	} {
		set()
		life(func(db *DB, s *Claimed) {
			if !dev.Synchronised() {
				before := oldest(s)
				add(s, 3)
				if oldest(s) != before {
					t.Error("the journal has been trimmed by a clock that is not right")
				}
			}
			got, err := db.collecting().collect(context.Background(), 24*time.Hour)
			if err != nil || len(got) > 0 {
				t.Errorf("collected %+v, %v", got, err)
			}
		})
	}
	dev.Pass(25 * time.Hour)
	life(func(db *DB, _ *Claimed) {
		got, err := db.collecting().collect(context.Background(), 24*time.Hour)
		if err != nil || len(got) != 1 || got[0].Source != other {
			t.Errorf("collected %+v, %v", got, err)
		}
	})
}

// TestFirstListAcrossBoots: the time of an interrupted list's first request is known
// within a boot, or by a clock that is right.
func TestFirstListAcrossBoots(t *testing.T) {
	right := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		before bool
		later  func(d *devicetest.Device)
		ago    time.Duration // 0: not known
	}{
		{"same boot", false, func(d *devicetest.Device) { d.Pass(time.Hour) }, time.Hour},
		{"another boot", false, func(d *devicetest.Device) { d.Reboot(time.Unix(5000, 0)) }, 0},
		{"right both times", true, func(d *devicetest.Device) {
			d.Reboot(time.Unix(1, 0))
			d.Set(right.Add(time.Hour), true)
		}, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dev := devicetest.New(time.Unix(1000, 0))
			if tc.before {
				dev.Set(right, true)
			}
			path := testPath(t)
			db := openTest(t, path, Options{Clock: dev})
			src := Source{Version: "v1", Resource: "configmaps", Form: FormTyped}
			s, err := db.Claim(Claim{Source: src, Example: &corev1.ConfigMap{}})
			if err != nil {
				t.Fatal(err)
			}
			onError := func(_ runtime.Object, err error) { t.Error(err) }
			r, err := s.Upstream.BeginRelist(RelistOptions{TakeUp: true, OnError: onError})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.PageTo([]runtime.Object{configMap("ns", "a", 1, nil)},
				listing.Progress{ResourceVersion: "1", Newest: "1", Continue: "more", Began: dev.Now()}); err != nil {
				t.Fatal(err)
			}
			s.Release()
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			tc.later(dev)
			db = openTest(t, path, Options{Clock: dev})
			if s, err = db.Claim(Claim{Source: src, Example: &corev1.ConfigMap{}}); err != nil {
				t.Fatal(err)
			}
			if r, err = s.Upstream.BeginRelist(RelistOptions{TakeUp: true, OnError: onError}); err != nil {
				t.Fatal(err)
			}
			at, ok := r.TakenUp()
			if !ok {
				t.Fatal("not taken up")
			}
			switch ago := dev.Now().Sub(at.Began); {
			case tc.ago == 0 && at.Began.Unix() != 0:
				t.Errorf("asked for %s ago, which nobody knows", ago)
			case tc.ago > 0 && (ago < tc.ago-time.Minute || ago > tc.ago+time.Minute):
				t.Errorf("asked for %s ago", ago)
			}
		})
	}
}
