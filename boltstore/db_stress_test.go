package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestMaintenanceUnderLoad: a source is changed, relisted, indexed and read in pages,
// while its file is compacted and copied. Nothing
// hangs, every walk shows each lasting object once, and the file ends with everything
// written.
func TestMaintenanceUnderLoad(t *testing.T) {
	db := openTest(t, testPath(t),
		Options{Window: time.Nanosecond, FlushInterval: time.Millisecond, Compression: CompressionZstd,
			Keyset:       sealtest.Keyset(),
			JournalBytes: 20_000, maxCommitBytes: 60_000, Durability: DurabilityProcess, compactRatio: -1,
			keepCorrupt: 1})
	s := claimTest(t, db, podClaim())
	const stay = 150
	p := &testProducer{}
	l := &load{t: t, s: s, p: p, rv: 10_000, stay: stay, all: somePods(0, stay+50), objs: map[string]*corev1.Pod{},
		stop: make(chan struct{})}
	for _, o := range l.all[:stay] {
		l.objs[keyOfObject(o)] = o.(*corev1.Pod)
	}
	relist(t, s, "10000", RelistOptions{}, l.list(), 100)
	s.Feed.Attach(p)
	h, heard := claimHandler(t, s, "test")
	l.known = map[string]string{}

	var wg, writer sync.WaitGroup
	beside := func(what string, pause int, fn func(rnd *rand.Rand) error) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(len(what))))
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(time.Duration(rnd.IntN(pause)) * time.Millisecond):
				}
				if err := fn(rnd); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	beside("compact", 200, func(*rand.Rand) error { _, err := db.Compact(t.Context(), nil); return err })
	beside("snapshot", 100, func(*rand.Rand) error {
		snap, err := db.Snapshot()
		if err != nil {
			return err
		}
		return snap.Close()
	})
	n := 0
	beside("index", 2000, func(*rand.Rand) error {
		n++
		return s.AddIndexers(cache.Indexers{fmt.Sprint("by", n): func(o any) ([]string, error) {
			return []string{o.(*corev1.Pod).Spec.NodeName}, nil
		}})
	})
	beside("tell", 30, func(*rand.Rand) error { return l.tell(h) })
	beside("check", 10, func(*rand.Rand) error {
		return s.view(func(m *sourceMeta, src sourceTx) error {
			size := uint64(0)
			src.Journal().Each(func(k, v []byte) {
				if binary.BigEndian.Uint64(k) <= m.Seq {
					size += uint64(len(v))
				}
			})
			if size != m.JournalBytes {
				return fmt.Errorf("the journal has %d bytes, not %d", size, m.JournalBytes)
			}
			return nil
		})
	})
	for range 2 {
		beside("read", 20, func(*rand.Rand) error {
			seen := map[string]int{}
			for from := []byte(nil); ; {
				p, err := s.Page(from, 20)
				if err != nil {
					return err
				}
				for _, key := range p.Keys {
					seen[key]++
				}
				if from = p.Next; from == nil {
					break
				}
			}
			for _, o := range l.all[:stay] {
				if n := seen[keyOfObject(o)]; n != 1 {
					return fmt.Errorf("%s is shown %d times", keyOfObject(o), n)
				}
			}
			return nil
		})
	}
	writer.Go(func() {
		rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
		for {
			select {
			case <-l.stop:
				return
			default:
			}
			step := l.batch
			if rnd.IntN(10) == 0 {
				step = l.fullList
			}
			if err := step(rnd); err != nil {
				t.Error(err)
				return
			}
		}
	})
	<-time.After(map[bool]time.Duration{true: time.Second, false: 4 * time.Second}[testing.Short()])
	close(l.stop)
	ended := make(chan struct{})
	go func() { wg.Wait(); writer.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		panic("it hangs")
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	l.rv++
	relist(t, s, fmt.Sprint(l.rv), RelistOptions{}, l.list(), 100)
	serves(t, s, l.list())
	for h.Behind() {
		must(t, l.tell(h))
	}
	for range 2 { // the first pass may have handled what the list has changed
		must(t, l.tell(h))
	}
	want := map[string]string{}
	for key, o := range l.objs {
		want[key] = o.ResourceVersion
	}
	if !maps.Equal(l.known, want) {
		t.Errorf("the handler knows %v, and not %v", l.known, want)
	}
	if n := heard.wasReset(); n > 0 {
		t.Errorf("the handler was reset %d times", n)
	}
	t.Logf("%d indices, version %d", n, l.rv)
}

// load changes a source as a Reflector does. The first stay pods of all are never deleted.
type load struct {
	t    *testing.T
	s    *Claimed
	p    *testProducer
	all  []runtime.Object
	stay int
	objs map[string]*corev1.Pod // what the server has
	rv   int
	stop chan struct{}

	known map[string]string // what the durable handler was told: versions, by key
}

// tell tells the durable handler all that is pending.
func (l *load) tell(h *Handler) error {
	if r, owed := h.ResetOwed(); owed {
		h.Acknowledge("", r)
		clear(l.known)
	}
	for from := []byte(nil); ; {
		keys, next, err := h.Keys(from, 50)
		if err != nil {
			return err
		}
		for _, k := range keys {
			p, ok, err := h.Read(k.Key)
			if err != nil && !errors.Is(err, ErrNotYet) {
				return err
			}
			if !ok {
				continue // or it is told after the list
			}
			delete(l.known, k.Key)
			if p.Object != nil {
				l.known[k.Key] = p.Object.(*corev1.Pod).ResourceVersion
			}
			h.Acknowledge(k.Key, p.Receipt)
		}
		if from = next; from == nil {
			return nil
		}
	}
}

func (l *load) list() (objs []runtime.Object) {
	for _, o := range l.objs {
		objs = append(objs, o)
	}
	return objs
}

func (l *load) newer(o *corev1.Pod) *corev1.Pod {
	o = o.DeepCopy()
	l.rv++
	o.ResourceVersion = fmt.Sprint(l.rv)
	return o
}

// fullList changes some objects and lists all.
func (l *load) fullList(rnd *rand.Rand) error {
	for i := range l.all {
		switch o := l.all[i].(*corev1.Pod); {
		case rnd.IntN(3) == 0:
			l.objs[keyOfObject(o)] = l.newer(o)
		case i >= l.stay:
			delete(l.objs, keyOfObject(o))
		}
	}
	l.rv++
	return l.relist()
}

func (l *load) relist() error {
	r, err := l.s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { l.t.Error(err) }})
	if err != nil {
		return err
	}
	for page := range slices.Chunk(l.list(), 100) {
		if err := r.Page(page); err != nil {
			return err
		}
	}
	_, err = r.Commit(fmt.Sprint(l.rv), time.Now())
	return err
}

// batch commits some changes.
func (l *load) batch(rnd *rand.Rand) error {
	b := &Batch{}
	for range 1 + rnd.IntN(20) {
		i := rnd.IntN(len(l.all))
		o := l.newer(l.all[i].(*corev1.Pod))
		typ := cache.Updated
		if i >= l.stay && rnd.IntN(2) == 0 {
			typ = cache.Deleted
			delete(l.objs, keyOfObject(o))
		} else {
			l.objs[keyOfObject(o)] = o
		}
		c, err := l.s.Feed.Prepare(typ, o)
		if err != nil {
			return err
		}
		b.Changes = append(b.Changes, c)
		b.ResourceVersion = o.ResourceVersion
	}
	l.p.put(b)
	l.s.wake(false)
	for l.s.State().ResourceVersion != b.ResourceVersion {
		select {
		case <-l.p.done: // also by what rides along with none
		case <-time.After(time.Minute):
			return errors.New("not committed")
		}
	}
	l.s.Delivery.SetTold(l.s.State().Seq)
	return nil
}
