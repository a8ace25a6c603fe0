package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestMaintenanceUnderLoad: a source is changed, relisted, indexed and read in pages,
// while its file is compacted, replaced and copied and dictionaries are trained. Nothing
// hangs, every walk shows each lasting object once, and the file ends with everything
// written.
func TestMaintenanceUnderLoad(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Millisecond, Compression: CompressionZstd, Keyset: sealtest.Keyset(),
		JournalBytes: 20_000, maxCommitBytes: 60_000, Durability: DurabilityProcess, compactRatio: -1, keepCorrupt: 1})
	s := claimTest(t, db, podClaim())
	const stay = 150
	objs := map[string]*corev1.Pod{}
	all := somePods(0, stay+50)
	for _, o := range all[:stay] {
		objs[keyOfObject(o)] = o.(*corev1.Pod)
	}
	list := func() (objs2 []runtime.Object) {
		for _, o := range objs {
			objs2 = append(objs2, o)
		}
		return objs2
	}
	relist(t, s, "10000", RelistOptions{}, list(), 100)
	p := &testProducer{}
	s.Attach(p)
	_, pos := claimHandler(t, s, "test")
	pos.set(func(p *Position) { p.Replaying = false })

	rv := 10_000
	newer := func(o *corev1.Pod) *corev1.Pod {
		o = o.DeepCopy()
		rv++
		o.ResourceVersion = fmt.Sprint(rv)
		return o
	}
	stop := make(chan struct{})
	var wg, writer sync.WaitGroup
	beside := func(what string, pause int, fn func(rnd *rand.Rand) error) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(len(what))))
			for {
				select {
				case <-stop:
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
	beside("replace", 400, func(*rand.Rand) error {
		db.heals.mu.Lock()
		db.heals.last = time.Time{}
		db.heals.mu.Unlock()
		db.healing().heal(errors.New("a test"))
		return nil
	})
	beside("snapshot", 100, func(*rand.Rand) error {
		snap, err := db.Snapshot()
		if err != nil {
			return err
		}
		return snap.Close()
	})
	beside("train", 300, func(*rand.Rand) error {
		s.packs.Hurry(false)
		s.packing().trainStored()
		return nil
	})
	n := 0
	beside("index", 2000, func(*rand.Rand) error {
		n++
		return s.AddIndexers(cache.Indexers{fmt.Sprint("by", n): func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil }})
	})
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
			for _, o := range all[:stay] {
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
			case <-stop:
				return
			default:
			}
			if rnd.IntN(10) == 0 { // a full list
				for i := range all {
					switch o := all[i].(*corev1.Pod); {
					case rnd.IntN(3) == 0:
						objs[keyOfObject(o)] = newer(o)
					case i >= stay:
						delete(objs, keyOfObject(o))
					}
				}
				rv++
				for {
					err := func() error {
						r, err := s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
						if err != nil {
							return err
						}
						defer r.Abort()
						l := list()
						for len(l) > 0 {
							n := min(len(l), 100)
							if err := r.Page(l[:n]); err != nil {
								return err
							}
							l = l[n:]
						}
						_, err = r.Commit(fmt.Sprint(rv), time.Now())
						return err
					}()
					if err == nil {
						break
					}
					if !errors.Is(err, ErrReplaced) {
						t.Errorf("relist: %v", err)
						return
					}
					select {
					case <-stop:
						// The list at the end has the objects in objs.
						return
					default:
					}
				}
				continue
			}
			b := &Batch{}
			for range 1 + rnd.IntN(20) {
				i := rnd.IntN(len(all))
				o := newer(all[i].(*corev1.Pod))
				typ := cache.Updated
				if i >= stay && rnd.IntN(2) == 0 {
					typ = cache.Deleted
					delete(objs, keyOfObject(o))
				} else {
					objs[keyOfObject(o)] = o
				}
				c, err := s.Prepare(typ, o)
				if err != nil {
					t.Error(err)
					return
				}
				b.Changes = append(b.Changes, c)
				b.ResourceVersion = o.ResourceVersion
			}
			p.put(b)
			s.wake(false)
			for s.State().ResourceVersion != b.ResourceVersion {
				select {
				case <-p.done: // also by what rides along with none
				case <-time.After(time.Minute):
					t.Error("not committed")
					return
				}
			}
			pos.set(func(p *Position) { p.Cursor = s.State().Seq - min(s.State().Seq, 30) })
			s.SetTold(s.State().Seq)
		}
	})
	<-time.After(map[bool]time.Duration{true: time.Second, false: 4 * time.Second}[testing.Short()])
	close(stop)
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
	rv++
	relist(t, s, fmt.Sprint(rv), RelistOptions{}, list(), 100)
	serves(t, s, list())
	if pos.lost > 0 {
		t.Errorf("the handler was lost %d times", pos.lost)
	}
	t.Logf("%d files, %d indices, version %d, dictionaries %v", db.replaced.Load(), n, rv, dictVersions(t, s))
}
