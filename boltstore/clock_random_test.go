package boltstore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/devicetest"
)

// TestAgeIsNeverTooYoung: a reported age is never below the true one, except for a
// server's allowed error, whatever the device's clock does between boots.
func TestAgeIsNeverTooYoung(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		wrong := func() time.Time {
			return []time.Time{time.Unix(0, 0), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
				began.Add(time.Duration(r.IntN(1000)) * time.Hour)}[r.IntN(3)]
		}
		dev := devicetest.New(wrong())
		db := &DB{device: newDevice(Options{Clock: dev})}
		var passed time.Duration // in truth
		var wall int64
		var by *stamp
		var at time.Duration
		for range 40 {
			switch r.IntN(7) {
			case 0, 1:
				d := time.Duration(r.IntN(10000)) * time.Second
				passed += d
				dev.Pass(d)
			case 2:
				passed += time.Minute
				dev.Reboot(wrong())
				db = &DB{device: newDevice(Options{Clock: dev})}
			case 3: // by NTP; times of this life cannot be compared with earlier ones
				dev.Set(began.Add(passed), true)
				db = &DB{device: newDevice(Options{Clock: dev})}
			case 4: // another process of the same boot
				db = &DB{device: newDevice(Options{Clock: dev})}
			case 5:
				db.device.serverTime(began.Add(passed))
			case 6:
				wall, by = db.device.at(dev.Now())
				at = passed
			}
			age, ok := db.device.age(wall, by)
			if truth := passed - at; ok && (age < truth-2*agreement-time.Second || age < 0) {
				t.Fatalf("seed %d: told %s, in truth %s", seed, age, truth)
			}
		}
	}
}

// TestEntryAgeIsTrue: each reported age of a journal entry is the true one, except for
// a server's allowed error.
func TestEntryAgeIsTrue(t *testing.T) {
	type entry struct {
		wall int64
		at   time.Duration // in truth
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	told := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		wrong := func() time.Time {
			return []time.Time{time.Unix(1000, 0), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
				began.Add(time.Duration(r.IntN(1000)) * time.Hour)}[r.IntN(3)]
		}
		dev := devicetest.New(wrong())
		d := newDevice(Options{Clock: dev})
		db := &DB{device: d}
		life := func() { d = newDevice(Options{Clock: dev}); db = &DB{device: d} }
		var passed time.Duration // in truth
		var m sourceMeta
		var entries []entry
		for range 40 {
			switch r.IntN(7) {
			case 0, 1:
				by := time.Duration(r.IntN(10000)) * time.Second
				passed += by
				dev.Pass(by)
			case 2:
				passed += time.Minute
				dev.Reboot(wrong())
				life()
			case 3: // by NTP
				dev.Set(began.Add(passed), true)
				life()
			case 4:
				dev.Set(wrong(), false)
				life()
			case 5:
				db.device.serverTime(began.Add(passed))
			case 6:
				m.date(d)
				entries = append(entries, entry{dev.Now().UnixNano(), passed})
				m.Seq++
			}
			for i, e := range entries {
				if !m.datedBy(d, uint64(i+1)) {
					continue
				}
				told++
				age, truth := dev.Now().Sub(time.Unix(0, e.wall)), passed-e.at
				if off := age - truth; off.Abs() > 2*agreement+time.Second {
					t.Fatalf("seed %d: entry %d is told to be %s old, in truth %s", seed, i+1, age, truth)
				}
			}
		}
	}
	if told < 1000 {
		t.Errorf("%d ages were told", told)
	}
}
