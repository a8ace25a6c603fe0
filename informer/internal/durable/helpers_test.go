package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/informer/internal/backlog"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/internal/waittest"
)

var errUnwilling = errors.New("unwilling")

// standing is a file with one handler that does not run. Only commits of changes into the
// journal run; a test takes the handler's steps by hand.
type standing struct {
	t     *testing.T
	db    *boltstore.DB
	store *boltstore.Claimed
	q     *fifo.Queue
	d     *Handler
	rv    int

	uids map[string]types.UID
	rvOf map[string]int

	mu     sync.Mutex
	answer func(Telling) error // nil: acknowledge
	told   []Telling
}

func stand(t *testing.T, path string, o boltstore.Options) *standing {
	t.Helper()
	o.Durability, o.Window, o.FlushInterval = boltstore.DurabilityProcess, 1, time.Hour
	db, err := boltstore.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &standing{t: t, uids: map[string]types.UID{}, rvOf: map[string]int{}, db: db}
	s.store, err = db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	host := Host{Store: s.store, Backlog: backlog.New(s.store.State().Seq, 8<<20), Clock: clock.RealClock{}, Page: pageObjects, Synced: func() (uint64, bool) { return 0, false }}
	if s.d, err = New(host, "test", s.tell, Options{MaxPending: 1 << 20, PendingBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	// A test ends even if its handler is never done.
	soon, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	context.AfterFunc(soon, s.d.cancel)
	context.AfterFunc(s.d.ctx, s.d.wakeAll)
	s.q = fifo.New(s.store, nil)
	tuning.SetQueue(s.q, 1<<30)
	return s
}

// pageObjects is how many objects of a replay are read at a time.
const pageObjects = 256

func (s *standing) tell(_ context.Context, t Telling) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, t)
	if s.answer != nil {
		return s.answer(t)
	}
	return nil
}

func (s *standing) answers(fn func(Telling) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = fn
}

// change commits a change, and puts it into the backlog.
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
	last = s.store.State().Seq
	s.d.host.Backlog.Jump(last)
	return last
}

func (s *standing) end() {
	s.t.Helper()
	s.q.Close()
	if err := s.d.claim.Release(); err != nil {
		s.t.Fatal(err)
	}
	s.store.Release()
	if err := s.db.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// until takes steps until cond holds, or there is none left.
func (s *standing) until(cond, step func() bool) {
	s.t.Helper()
	for !cond() && step() {
		if s.d.ctx.Err() != nil {
			s.t.Fatal("the handler is still being filled")
		}
	}
}

// fillUntil fills the handler's queues until cond holds, or nothing is left.
func (s *standing) fillUntil(cond func() bool) {
	s.t.Helper()
	s.until(cond, s.d.fill)
}

// takeIn takes in entries up to a seq.
func (s *standing) takeIn(upto uint64) {
	s.t.Helper()
	s.until(func() bool { return s.d.pos.cursor >= upto }, func() bool { return s.d.fillEntries(upto) })
	if s.d.pos.cursor < upto {
		s.t.Fatalf("at %d of %d", s.d.pos.cursor, upto)
	}
}

// load takes in entries that are due again and were moved to the file.
func (s *standing) load() {
	s.t.Helper()
	s.until(func() bool { return len(s.d.queues.loads) == 0 }, func() bool { return s.d.fillLoads(1) })
}

// called gives the first event of a key to an imaginary worker.
func (s *standing) called(key string) *Delivery {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues.ofKey[key]
	d.queues.due, q.ready, q.busy = nil, false, true
	d.queues.calls++
	return &Delivery{s: &d.queues, q: q, t: q.tasks[q.told], turn: q.turn}
}

// ackAll acknowledges everything in hand.
func (s *standing) ackAll() {
	d := s.d
	d.mu.Lock()
	left := map[string]int{}
	for key, q := range d.queues.ofKey {
		left[key] = len(q.tasks)
	}
	d.mu.Unlock()
	for key, n := range left {
		for range n {
			d.queues.returned(s.called(key), nil)
		}
	}
}

// movedOut waits until the events in hand of a key are only in the file.
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
		return d.queues.ofKey[key].tasks[0].entry == nil
	})
	d.mu.Lock()
	d.o.MaxPending = full
	d.queues.unblock()
	d.mu.Unlock()
}

// parkedTo puts the journal under pressure until the file has a parked key up to a seq.
func (s *standing) parkedTo(key string, last uint64) {
	s.t.Helper()
	s.store.SetTold(last)
	eventually(s.t, "parked", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		p, err := s.d.claim.ParkedOf([]string{key}, 0)
		return err == nil && len(p.Keys) == 1 && p.Last[0] >= last
	})
}

// unparkAll takes in everything parked.
func (s *standing) unparkAll() {
	s.t.Helper()
	parked := func() bool {
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		return s.d.parked.active || s.d.pos.mark > s.d.pos.cursor
	}
	s.until(func() bool { return !parked() }, s.d.fillParked)
	if parked() {
		s.t.Fatal("nothing to take in")
	}
}

// inHand returns a key's unacknowledged events, and the events that it will be told.
func (s *standing) inHand(key string) string {
	s.t.Helper()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	var all []string
	if q := s.d.queues.ofKey[key]; q != nil {
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

// swap sets a state that a commit under way does not know of yet.
func (s *standing) swap(cursor uint64, settled map[string]uint64) (uint64, map[string]uint64) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	cursor, d.pos.cursor = d.pos.cursor, cursor
	settled, d.pos.settled = d.pos.settled, settled
	return cursor, settled
}

var inSource = filetest.InSource

func cm(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

var eventually = waittest.Eventually
