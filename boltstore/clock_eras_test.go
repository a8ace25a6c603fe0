package boltstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/devicetest"
)

// TestStoredAgeIsTrue: the age of each record that the program stored is true, up to a
// server's allowed error, however the device's clock behaves. It is known within the
// boot. A lost age is never known again, and an age known from right clocks is not lost.
func TestStoredAgeIsTrue(t *testing.T) {
	type record struct {
		stored    int64
		at        time.Duration // in truth
		boot      string
		right     bool // when it was stored
		lost, out bool // out: of an era that was let go
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	told, across, lost := 0, 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		wrong := func() time.Time {
			return []time.Time{time.Unix(1000, 0), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
				began.Add(time.Duration(r.IntN(1000)-500) * time.Hour)}[r.IntN(3)]
		}
		dev := devicetest.New(wrong())
		d := newDevice(Options{Clock: dev})
		var passed time.Duration // in truth
		m := &sourceMeta{}
		var records []*record
		for range 60 {
			switch r.IntN(8) {
			case 0, 1:
				by := time.Duration(r.IntN(10000)) * time.Second
				passed += by
				dev.Pass(by)
			case 2:
				passed += time.Minute
				dev.Reboot(wrong())
				d = newDevice(Options{Clock: dev})
			case 3: // by NTP; times of this life cannot be compared with earlier ones
				dev.Set(began.Add(passed), true)
				d = newDevice(Options{Clock: dev})
			case 4:
				dev.Set(wrong(), false)
				d = newDevice(Options{Clock: dev})
			case 5:
				d.serverTime(began.Add(passed))
			default:
				m = m.clone()
				stored := m.stamp(d)
				if n := len(records); n > 0 && stored < records[n-1].stored {
					t.Fatalf("seed %d: Stored goes back", seed)
				}
				records = append(records, &record{stored: stored, at: passed, boot: dev.Boot(), right: d.right()})
			}
			if len(m.Eras) > maxEras {
				t.Fatalf("seed %d: %d eras", seed, len(m.Eras))
			}
			for i, rec := range records {
				at, gone := m.storedAt(d, rec.stored)
				rec.out = rec.out || rec.stored < m.Eras[0].From
				switch {
				case gone != rec.lost && rec.lost:
					t.Fatalf("seed %d: record %d was lost", seed, i)
				case gone && !rec.out && (rec.boot == dev.Boot() || rec.right):
					t.Fatalf("seed %d: record %d is lost, of this boot or a right clock", seed, i)
				case gone && !at.IsZero():
					t.Fatalf("seed %d: record %d is lost at %s", seed, i, at)
				case at.IsZero() && !gone && (rec.boot == dev.Boot() || d.right() && !now(dev, began, passed)):
					t.Fatalf("seed %d: the age of record %d is not known", seed, i)
				}
				if rec.lost = gone; gone {
					lost++
				}
				if at.IsZero() {
					continue
				}
				told++
				if rec.boot != dev.Boot() {
					across++
				}
				age, truth := dev.Since(at), passed-rec.at
				if off := age - truth; off.Abs() > 2*agreement+2*time.Second {
					t.Fatalf("seed %d: record %d is told to be %s old, in truth %s", seed, i, age, truth)
				}
			}
		}
	}
	if told < 10000 || across < 1000 || lost < 1000 {
		t.Errorf("%d ages were told, %d of them of another boot; %d were lost", told, across, lost)
	}
}

// now says whether the clock is behind the true time, by a server's allowed error.
func now(dev *devicetest.Device, began time.Time, passed time.Duration) bool {
	return dev.Now().Before(began.Add(passed))
}

// TestErasOfBoots: on a machine whose clock is right, records of all boots have an age,
// and the file keeps few eras.
func TestErasOfBoots(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dev := devicetest.New(began)
	dev.Set(began, true)
	m := &sourceMeta{}
	var all []int64
	for i := range 100 {
		all = append(all, m.stamp(newDevice(Options{Clock: dev})))
		dev.Reboot(began.Add(time.Duration(i+1) * time.Hour))
		dev.Set(dev.Now(), true)
	}
	if len(m.Eras) > 3 {
		t.Errorf("%d eras", len(m.Eras))
	}
	d := newDevice(Options{Clock: dev})
	for i, stored := range all {
		if at, lost := m.storedAt(d, stored); lost || dev.Since(at)-time.Duration(100-i)*time.Hour > time.Minute {
			t.Fatalf("record of boot %d: %s, lost %v", i, at, lost)
		}
	}
	if at, lost := m.storedAt(d, all[0]-1); !lost || !at.IsZero() {
		t.Errorf("a record from before has a time: %s", at)
	}
}

// TestErasWithoutBoots: if the system names no boot, setting the clock back hides no
// record that is stored afterwards.
func TestErasWithoutBoots(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	d := newDevice(Options{Clock: clk})
	m := &sourceMeta{}
	first := m.stamp(d)
	clk.SetTime(clk.Now().Add(-time.Hour))
	second := m.stamp(d)
	clk.Step(time.Minute)
	third := m.stamp(d)
	if !slices.IsSorted([]int64{first, second, third}) || first == second {
		t.Fatal(first, second, third)
	}
	at := func(stored int64) string {
		at, lost := m.storedAt(d, stored)
		if at.IsZero() {
			return fmt.Sprint("unknown ", lost)
		}
		return clk.Since(at).String()
	}
	if a, b, c := at(first), at(second), at(third); a != "unknown false" || b != "1m0s" || c != "0s" {
		t.Error(a, b, c)
	}
	clk.Step(2 * time.Hour)
	if a := at(first); a != "1h1m0s" {
		t.Error(a)
	}
}

// TestEraFoundRight: when a server vouches for a clock that has not been set since, its
// earlier times in this boot are right, too. A commit that fails leaves the era as it
// was.
func TestEraFoundRight(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dev := devicetest.New(began)
	m := &sourceMeta{}
	stored := m.stamp(newDevice(Options{Clock: dev}))
	d := newDevice(Options{Clock: dev})
	d.serverTime(dev.Now())
	if next := m.clone(); next.stamp(d) < stored || !next.Eras[0].Right || m.Eras[0].Right {
		t.Fatalf("%+v after %+v", next.Eras, m.Eras)
	}
	m.stamp(d)
	dev.Reboot(began.Add(time.Hour))
	dev.Set(dev.Now(), true)
	d = newDevice(Options{Clock: dev})
	if at, lost := m.storedAt(d, stored); lost || at.IsZero() || (dev.Since(at)-time.Hour).Abs() > time.Minute {
		t.Error(at, lost)
	}
}
