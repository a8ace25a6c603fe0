package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// broken damages what a handler depends on.
func broken(t *testing.T, s *Claimed, fn func(src sourceTx) error) {
	t.Helper()
	if err := s.updateMeta(func(src sourceTx, _ *sourceMeta) error { return fn(src) }); err != nil {
		t.Fatal(err)
	}
}

func brokenPosition(src sourceTx) error {
	return src.HandlerBox(src.Root.Bucket(layout.BucketHandlers)).Put([]byte("test"), []byte("not a position, and long enough for one"))
}

// startingOver returns a store with three entries and a handler that has started over
// at the third. The file says so.
func startingOver(t *testing.T) (*Claimed, func(), *testPosition) {
	t.Helper()
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour, JournalBytes: 1})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	h, pos := claimHandler(t, s, "test")
	rv := 0
	change := func() {
		t.Helper()
		rv++
		h.Changed()
		p.add(t, s, configMap("a", fmt.Sprint(rv), rv, nil))
		p.wait(t)
	}
	for range 3 {
		change()
	}
	pos.set(func(p *Position) { p.Reset, p.StartedOver, p.Cursor = true, true, 3 })
	return s, change, pos
}

// TestStartsOverByItself: a handler starts over before the file says so. Later entries
// are kept for it.
func TestStartsOverByItself(t *testing.T) {
	s, change, pos := startingOver(t)
	broken(t, s, brokenPosition)
	change()
	if st := handlerState1(t, s); st.Mark != 3 || !st.Reset || pos.lost != 0 {
		t.Errorf("%+v, lost %d times", st, pos.lost)
	}
	if got := journalFrom(t, s, 4); len(got) != 1 {
		t.Errorf("%d entries", len(got))
	}
}

// TestStartsOverAgain: damage while a handler starts over, or after it has and before
// the file says so. Its reports are about the time before.
func TestStartsOverAgain(t *testing.T) {
	for name, damage := range map[string]func(s *Claimed, src sourceTx) error{
		"the position":       func(_ *Claimed, src sourceTx) error { return brokenPosition(src) },
		"what is parked":     brokenParked,
		"what is to be told": brokenJournal,
	} {
		for _, acked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", acknowledged ", acked), func(t *testing.T) {
				s, change, pos := startingOver(t)
				change()
				if st := handlerState1(t, s); st.Mark != 3 || !st.Reset || pos.lost != 0 {
					t.Fatalf("%+v, lost %d times", st, pos.lost)
				}
				pos.set(func(p *Position) { p.StartedOver, p.Reset = false, !acked })
				s.SetTold(4)
				broken(t, s, func(src sourceTx) error { return damage(s, src) })
				for i := 1; i < 4; i++ { // until it has started over
					pos.set(func(p *Position) { p.Settled = map[string]uint64{"a/1": 2} })
					change()
					if st := handlerState1(t, s); !st.Reset || st.Parked > 0 || pos.lost != i {
						t.Errorf("%+v, lost %d times", st, pos.lost)
					}
				}
				last := s.State().Seq
				pos.set(func(p *Position) { p.StartedOver, p.Reset, p.Cursor = true, true, last })
				change()
				pos.set(func(p *Position) { p.StartedOver, p.Reset = false, false })
				change()
				if st := handlerState1(t, s); st.Reset || st.Mark != last || pos.lost != 3 {
					t.Errorf("%+v, lost %d times, started over at %d", st, pos.lost, last)
				}
			})
		}
	}
}

// brokenParked makes a parked key unreadable.
func brokenParked(_ *Claimed, src sourceTx) error {
	b, err := src.createParked("test")
	if err != nil {
		return err
	}
	box := src.HandlerBox(src.Root.Bucket(layout.BucketHandlers))
	st, err := parseHandlerState(box.Get([]byte("test")))
	if err != nil {
		return err
	}
	st.Parked, st.ParkedBytes = 1, 4
	return errors.Join(src.putHandler("test", st), b.Put(index.AppendKey(nil, "a/1"), []byte("junk")))
}

// brokenJournal damages the oldest block that the handler needs, when the journal must
// be collapsed.
func brokenJournal(_ *Claimed, src sourceTx) error {
	j := src.Journal()
	_, v := j.Cursor().Seek(layout.U64(4))
	v = bytes.Clone(v)
	v[len(v)-1] ^= 1
	return j.Put(layout.U64(4), v)
}

// TestDamagedParkedIsNotReplaced: an unreadable parked key may contain a delete. The
// handler starts over, whatever meets it.
func TestDamagedParkedIsNotReplaced(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	for name, fn := range map[string]func(st *handlerState, b *layout.Box) error{
		"parked over": func(st *handlerState, b *layout.Box) error {
			return st.parkKey(b, "a/1", 0, numbered{7, format.Draft{Type: cache.Added, Key: "a/1"}})
		},
		"settled": func(st *handlerState, b *layout.Box) error { return st.settle(b, map[string]uint64{"a/1": 7}) },
	} {
		t.Run(name, func(t *testing.T) {
			broken(t, s, func(src sourceTx) error {
				b, err := src.createParked("test")
				if err != nil {
					return err
				}
				k := index.AppendKey(nil, "a/1")
				if err := b.Put(k, []byte("junk")); err != nil {
					return err
				}
				if err := fn(&handlerState{Parked: 1, ParkedBytes: 4}, b); !errors.Is(err, ErrDamaged) {
					t.Errorf("%v", err)
				}
				if string(b.Get(k)) != "junk" {
					t.Error("it is gone")
				}
				return src.dropParked("test")
			})
		})
	}
}
