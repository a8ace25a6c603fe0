package boltstore

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/internal/devicetest"
)

// aged is a file with one source and its handler, on a device.
type aged struct {
	t    *testing.T
	dev  *devicetest.Device
	o    Options
	path string
	rv   int
}

// life opens the file, and registers the handler if asked to.
func (a *aged) life(registered bool, fn func(db *DB, add func(), s *Claimed)) {
	a.t.Helper()
	db := openTest(a.t, a.path, a.o)
	s := claimTest(a.t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	if registered {
		h, _ := claimHandler(a.t, s, "durable")
		handled(a.t, h)
		defer func() {
			if err := h.Release(); err != nil {
				a.t.Error(err)
			}
			s.Release()
			closeTest(a.t, db)
		}()
	} else {
		defer func() { s.Release(); closeTest(a.t, db) }()
	}
	fn(db, func() {
		a.t.Helper()
		a.rv++
		p.add(a.t, s, configMap("ns", "a", a.rv, nil))
		p.wait(a.t)
	}, s)
}

// handlerOf is the handler's state in the file. It must have an entry to acknowledge.
func handlerOf(t *testing.T, s *Claimed) (h HandlerState, there bool) {
	t.Helper()
	hs, err := s.Handlers()
	if err != nil || len(hs) > 1 {
		t.Fatal(hs, err)
	}
	if len(hs) == 0 {
		return h, false
	}
	return hs[0], true
}

// TestHandlerAgeAcrossBoots: a recently registered durable handler is not removed because
// of a clock that may be wrong.
func TestHandlerAgeAcrossBoots(t *testing.T) {
	begins, right := time.Unix(0, 0).Add(24*time.Hour), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for name, boot := range map[string]func(dev *devicetest.Device){
		"the clock runs ahead":   func(dev *devicetest.Device) { dev.Reboot(begins.Add(90 * 24 * time.Hour)) },
		"the clock is set right": func(dev *devicetest.Device) { dev.Reboot(begins); dev.Set(right, true) },
	} {
		t.Run(name, func(t *testing.T) {
			dev := devicetest.New(begins)
			a := &aged{t: t, dev: dev, path: testPath(t),
				o: Options{Window: time.Nanosecond, Clock: dev, HandlerAge: 10 * time.Hour}}
			a.life(true, func(_ *DB, add func(), _ *Claimed) { add() })
			boot(dev)
			stays := func(when string, want bool) {
				t.Helper()
				a.life(false, func(_ *DB, add func(), s *Claimed) {
					dev.Pass(2 * time.Hour) // a program that has just been started gets some time
					add()
					if _, there := handlerOf(t, s); there != want {
						t.Errorf("%s: there is a handler: %v", when, there)
					}
				})
			}
			stays("at first", true)
			if !dev.Synchronised() {
				dev.Pass(time.Hour)
				dev.Set(right, true)
			}
			stays("with a clock that is right", true)
			dev.Pass(12 * time.Hour)
			stays("after HandlerAge", false)
		})
	}
}

// TestCollectAfterAcrossBoots: nor is a recently claimed source.
func TestCollectAfterAcrossBoots(t *testing.T) {
	begins, right := time.Unix(0, 0).Add(24*time.Hour), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	dev := devicetest.New(begins)
	path := testPath(t)
	collect := func(when string, want int) {
		t.Helper()
		db := openTest(t, path, Options{Clock: dev, CollectAfter: -1})
		defer closeTest(t, db)
		got, err := db.collecting().collect(context.Background(), 24*time.Hour)
		if err != nil || len(got) != want {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	db := openTest(t, path, Options{Clock: dev})
	s, err := db.Claim(Claim{Source: Source{Version: "v1", Resource: "configmaps", Form: FormTyped},
		Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	closeTest(t, db)
	dev.Reboot(begins.Add(90 * 24 * time.Hour))
	collect("the clock runs ahead", 0)
	dev.Reboot(begins)
	dev.Set(right, true)
	collect("the clock is set right", 0)
	dev.Reboot(right.Add(90 * 24 * time.Hour))
	collect("it runs ahead once more", 0)
	dev.Reboot(begins)
	dev.Set(right.Add(23*time.Hour), true)
	collect("not yet a day later", 0)
	dev.Pass(2 * time.Hour)
	collect("more than a day later", 1)
}

// TestDatedAnew: what a clock that may have been wrong has dated is not removed for a while
// once the clock is right. Its age is told only if the device has not rebooted since.
func TestDatedAnew(t *testing.T) {
	begins, right := time.Unix(0, 0).Add(24*time.Hour), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for name, reboots := range map[string]bool{"in the same boot": false, "in another boot": true} {
		t.Run(name, func(t *testing.T) {
			dev := devicetest.New(begins)
			a := &aged{t: t, dev: dev, path: testPath(t), o: Options{Window: time.Nanosecond, Clock: dev}}
			a.life(true, func(db *DB, add func(), _ *Claimed) {
				add()
				claimTest(t, db, Claim{Source: inNamespace("other")}).Release()
			})
			if dev.Pass(time.Hour); reboots {
				dev.Reboot(begins)
			}
			dev.Set(right, true)
			told := func(what string, age *time.Duration) {
				t.Helper()
				if known := age != nil; known == reboots || known && (*age-2*time.Hour).Abs() > 2*time.Minute {
					t.Errorf("%s: age %v", what, age)
				}
			}
			a.life(false, func(db *DB, add func(), s *Claimed) {
				add()
				if _, err := db.collecting().collect(context.Background(), 24*time.Hour); err != nil {
					t.Fatal(err)
				}
				dev.Pass(time.Hour)
				h, there := handlerOf(t, s)
				if !there {
					t.Fatal("the handler is gone")
				}
				told("handler", h.SeenAge)
				all, err := db.States()
				if err != nil || len(all) != 2 {
					t.Fatal(all, err)
				}
				for _, st := range all {
					if st.Source == inNamespace("other") {
						told("claim", st.ClaimedAge)
					}
				}
			})
		})
	}
}

// TestAgesAcrossBoots: the ages of claims and handlers, and a handler's lag, are known
// within a boot, and by a clock that was right all the time. Otherwise they are not
// reported.
func TestAgesAcrossBoots(t *testing.T) {
	begins, right := time.Unix(0, 0).Add(24*time.Hour), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, tc := range []struct {
		name    string
		before  func(dev *devicetest.Device) // the entry
		after   func(dev *devicetest.Device)
		trust   bool
		pending bool // its age is known
		others  bool // those of claim and handler are
	}{
		{name: "in one boot", after: func(dev *devicetest.Device) { dev.Pass(time.Hour) }, pending: true, others: true},
		{name: "the clock is set in the boot", after: func(dev *devicetest.Device) {
			dev.Pass(time.Hour)
			dev.Set(right, true)
		}, others: true},
		{name: "the clock is right later", after: func(dev *devicetest.Device) {
			dev.Reboot(begins)
			dev.Set(right, true)
		}},
		{name: "nobody knows", after: func(dev *devicetest.Device) { dev.Reboot(begins.Add(time.Hour)) }},
		{name: "another boot like this one", after: func(dev *devicetest.Device) {
			dev.Reboot(begins)
			dev.Pass(time.Hour)
		}},
		{name: "trusted", after: func(dev *devicetest.Device) {
			dev.Reboot(begins.Add(time.Hour))
		}, trust: true, pending: true, others: true},
		{name: "right before only", before: func(dev *devicetest.Device) { dev.Set(right, true) },
			after: func(dev *devicetest.Device) { dev.Reboot(right.Add(time.Hour)) }},
		{name: "right both times", before: func(dev *devicetest.Device) { dev.Set(right, true) },
			after: func(dev *devicetest.Device) {
				dev.Reboot(begins)
				dev.Set(right.Add(time.Hour), true)
			}, pending: true, others: true},
		{name: "back", before: func(dev *devicetest.Device) { dev.Set(right, true) },
			after: func(dev *devicetest.Device) { dev.Reboot(begins); dev.Set(right.Add(-time.Hour), true) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dev := devicetest.New(begins)
			if tc.before != nil {
				tc.before(dev)
			}
			a := &aged{t: t, dev: dev, path: testPath(t), o: Options{Window: time.Nanosecond, Clock: dev}}
			a.life(true, func(_ *DB, add func(), _ *Claimed) { add() })
			tc.after(dev)
			db := openTest(t, a.path, Options{Clock: dev, ReadOnly: true, TrustClock: tc.trust})
			defer closeTest(t, db)
			all, err := db.States()
			if err != nil || len(all) != 1 || len(all[0].Handlers) != 1 {
				t.Fatal(all, err)
			}
			hour := func(what string, age *time.Duration, want bool) {
				t.Helper()
				switch {
				case (age != nil) != want:
					t.Errorf("%s: age %v", what, age)
				case want && (*age < time.Hour-time.Minute || *age > time.Hour+2*time.Minute):
					t.Errorf("%s: %s ago", what, *age)
				}
			}
			st, h := all[0], all[0].Handlers[0]
			hour("claimed", st.ClaimedAge, tc.others)
			hour("seen", h.SeenAge, tc.others)
			pending := &h.Age
			if h.AgeUnknown {
				if pending = nil; h.Age != 0 {
					t.Error("an age that is not known is told:", h.Age)
				}
			}
			hour("pending", pending, tc.pending)
		})
	}
}
