package informer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// only is the informer's durable handler.
func (l *life) only() (d *durable) {
	l.inf.mu.Lock()
	defer l.inf.mu.Unlock()
	for d = range l.inf.durables {
	}
	return d
}

// standing is an informer with a durable handler that is never called: nothing
// runs but commits of what goes into the journal.
type standing struct {
	t  *testing.T
	db *boltstore.DB
	q  *fifo.Queue
	d  *durable
	rv int

	uids map[string]types.UID
	rvOf map[string]int
}

func stand(t *testing.T, path string, o boltstore.Options) *standing {
	t.Helper()
	o.Durability, o.Window, o.FlushInterval = boltstore.DurabilityProcess, 1, time.Hour
	db, err := boltstore.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	inf, err := NewSharedIndexInformer(db, &cache.ListWatch{}, &corev1.ConfigMap{}, Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inf.AddDurableHandler("test", newLedger(t), DurableOptions{MaxPending: 1 << 20, PendingBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	return &standing{t: t, uids: map[string]types.UID{}, rvOf: map[string]int{}, db: db, q: fifo.New(inf.store, fifo.Options{MaxBytes: 1 << 30}), d: (&life{inf: inf}).only()}
}

// change commits one, and has it in the backlog.
func (s *standing) change(typ cache.DeltaType, name string) {
	s.t.Helper()
	s.rv++
	if typ == cache.Added {
		s.uids[name] = types.UID(fmt.Sprint(name, s.rv))
	}
	s.rvOf[name] = s.rv
	o := cm(name)
	o.ResourceVersion, o.UID = fmt.Sprint(s.rv), s.uids[name]
	add := map[cache.DeltaType]func(any) error{cache.Added: s.q.Add, cache.Updated: s.q.Update, cache.Deleted: s.q.Delete}[typ]
	if err := add(o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *standing) flush() (last uint64) {
	s.t.Helper()
	if err := s.q.Flush(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	last = s.d.inf.store.State().Seq
	s.d.inf.backlog.Jump(last)
	return last
}

func (s *standing) end() {
	s.t.Helper()
	s.q.Close()
	if err := s.d.h.Release(); err != nil {
		s.t.Fatal(err)
	}
	s.d.inf.store.Release()
	if err := s.db.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// called gives the first of a key to a worker that is not there.
func (s *standing) called(key string) *delivery {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.keys[key]
	d.ready, q.ready, q.busy = nil, false, true
	d.calls++
	return &delivery{d: d, q: q, t: q.tasks[q.told], turn: q.turn}
}

// ackAll acknowledges all that is in hand.
func (s *standing) ackAll() {
	d := s.d
	d.mu.Lock()
	left := map[string]int{}
	for key, q := range d.keys {
		left[key] = len(q.tasks)
	}
	d.mu.Unlock()
	for key, n := range left {
		for range n {
			d.returned(s.called(key), nil)
		}
	}
}

// movedOut waits until what is in hand of a key is in the file only.
func (s *standing) movedOut(key string) {
	s.t.Helper()
	d := s.d
	d.mu.Lock()
	full := d.o.MaxPending
	d.o.MaxPending = 1
	d.block()
	d.mu.Unlock()
	eventually(s.t, "it moved out", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.keys[key].tasks[0].entry == nil
	})
	d.mu.Lock()
	d.o.MaxPending = full
	d.unblock()
	d.mu.Unlock()
}

// parkedTo has the journal press until the file's parked has a key up to a seq.
func (s *standing) parkedTo(key string, last uint64) {
	s.t.Helper()
	s.d.inf.store.SetTold(last)
	eventually(s.t, "parked", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		p, err := s.d.h.ParkedOf([]string{key}, 0)
		return err == nil && len(p.Keys) == 1 && p.Last[0] >= last
	})
}

// unparkAll takes in all that is parked.
func (s *standing) unparkAll() {
	s.t.Helper()
	parked := func() bool {
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		return s.d.parked.active || s.d.mark > s.d.cursor
	}
	for parked() {
		if !s.d.fillParked() {
			s.t.Fatal("nothing to take in")
		}
	}
}

// inHand is what a key has been told of and not acknowledged, and will be told.
func (s *standing) inHand(key string) string {
	s.t.Helper()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	var all []string
	if q := s.d.keys[key]; q != nil {
		for _, x := range q.tasks {
			o, err := x.entry.Object()
			if err != nil {
				s.t.Fatal(err)
			}
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			all = append(all, fmt.Sprintf("%s %s", x.entry.Type, o.(*corev1.ConfigMap).ResourceVersion))
		}
	}
	return strings.Join(all, ", ")
}

// swap sets what a commit under way does not know of yet.
func (s *standing) swap(cursor uint64, settled map[string]uint64) (uint64, map[string]uint64) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	cursor, d.cursor = d.cursor, cursor
	settled, d.settled = d.settled, settled
	return cursor, settled
}
