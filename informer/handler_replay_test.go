package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
)

// replayed counts the objects that it is told, and measures the heap meanwhile.
type replayed struct {
	n, every int

	mu   sync.Mutex
	told map[int]bool // by number: the objects are let go
	most int
}

func (r *replayed) tell(obj any) {
	i, err := strconv.Atoi(strings.TrimPrefix(obj.(*corev1.ConfigMap).Name, "o"))
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[i] = true; len(r.told)%r.every == 0 {
		r.most = max(r.most, usage().heap)
	}
}

func (r *replayed) all() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.told) == r.n
}

func (r *replayed) OnAdd(obj any, _ bool) { r.tell(obj) }
func (r *replayed) OnUpdate(_, _ any)     {}
func (r *replayed) OnDelete(_ any)        {}
func (r *replayed) HandleEvent(_ context.Context, e Event) error {
	if !e.Reset {
		r.tell(e.Object)
	}
	return nil
}

// still is a list of n objects of 4 kB that never change, made on request. In a later
// life its version is higher.
func still(n, life int) cache.ListerWatcher {
	now := strconv.Itoa(n + life)
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (kruntime.Object, error) {
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: now}}
			from, _ := strconv.Atoi(o.Continue)
			end := n
			if o.Limit > 0 && from+int(o.Limit) < n {
				end = from + int(o.Limit)
				list.Continue = strconv.Itoa(end)
			}
			for i := from; i < end; i++ {
				data := make([]byte, 4000)
				for k, r := 0, rand.New(rand.NewPCG(uint64(i), 1)); k < len(data); k++ {
					data[k] = byte('!' + r.IntN(90))
				}
				o := cm(fmt.Sprintf("o%06d", i), string(data))
				o.UID, o.ResourceVersion = types.UID(o.Name), strconv.Itoa(i+1)
				list.Items = append(list.Items, *o)
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewRaceFreeFake()
			w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: now}})
			return w, nil
		},
	}
}

// TestReplayMemory: telling the file's objects when a process starts, or those of a first
// list, takes memory for a page or two, not for all of them.
func TestReplayMemory(t *testing.T) {
	if !alone(t) {
		return
	}
	few, many := 1_000, 5_000 // 4 and 20 MB
	if underRace {
		few, many = 500, 2_000
	}
	for _, durable := range []bool{false, true} {
		for _, first := range []bool{true, false} {
			name := map[bool]string{true: "durable", false: "plain"}[durable] + map[bool]string{true: ", first list",
				false: ", from the file"}[first]
			t.Run(name, func(t *testing.T) {
				a, b := replayHeap(t, few, durable, first), replayHeap(t, many, durable, first)
				t.Logf("%.1f MB for %d objects, %.1f MB for %d", float64(a)/1e6, few, float64(b)/1e6, many)
				most := 2_500_000
				if b > most || b > a+2_500_000 {
					t.Errorf("%.1f MB for %d objects, %.1f MB for %d", float64(a)/1e6, few, float64(b)/1e6, many)
				}
			})
		}
	}
}

// replayHeap is the highest growth of the live heap while a handler is told n objects.
func replayHeap(t *testing.T, n int, durable, first bool) int {
	t.Helper()
	path := t.TempDir() + "/replay.db"
	lives := 0
	life := func(h *replayed) int {
		lives++
		before := usage().heap
		o := boltstore.Options{Durability: boltstore.DurabilityProcess}
		tuning.SetFile(&o, tuning.File{HotBytes: 1 << 20})
		db, err := boltstore.Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		reads := tuned(tuning.Reflector{PageSize: 200})
		reads.Source = &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}
		inf, err := NewSharedIndexInformer(db, still(n, lives), &corev1.ConfigMap{}, Options{
			Reflector: reads,
		})
		if err != nil {
			t.Fatal(err)
		}
		if h != nil && durable {
			_, err = inf.AddDurableHandler("replayed", h, DurableOptions{})
		} else if h != nil {
			_, err = inf.AddEventHandler(h)
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		within(t, "all is told", 2*time.Minute, func() bool { return inf.HasSynced() && (h == nil || h.all()) })
		cancel()
		<-done
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if h == nil {
			return 0
		}
		return h.most - before
	}
	if !first {
		life(nil)
	}
	return life(&replayed{n: n, every: n / 20, told: make(map[int]bool, n)})
}

// TestGoneBeforeItsPage: a handler is told the delete of an object that the replay has
// not reached. A reconciler that got the key before may have read the object, and would
// not get the key again. If an object came and went before the handler was added, the
// handler is told nothing of it, unless an earlier life knew it.
func TestGoneBeforeItsPage(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprint("durable ", durable), func(t *testing.T) {
			w := newWorld(t)
			for i := range pageObjects + 2 {
				w.create(fmt.Sprintf("o%04d", i))
			}
			r := newLedger(t)
			var shown, last string // the latter is of a page that it has not come to
			live := func(during func(l *life)) (log []string) {
				l := w.live(Options{})
				entered, release := make(chan struct{}), make(chan struct{})
				first := sync.OnceFunc(func() { close(entered); <-release })
				var err error
				if durable {
					r.answers(func(e Event) error {
						if !e.Reset {
							first()
						}
						return nil
					})
					_, err = l.inf.AddDurableHandler("test", r, DurableOptions{})
				} else {
					_, err = l.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
						AddFunc:    func(obj any) { first(); r.OnAdd(obj, true) },
						DeleteFunc: r.OnDelete,
					})
				}
				if err != nil {
					t.Fatal(err)
				}
				l.run().synced()
				if during != nil {
					<-entered
					during(l)
				}
				close(release)
				eventually(t, "told", func() bool {
					l.inf.mu.Lock()
					defer l.inf.mu.Unlock()
					for x := range l.inf.listeners {
						if !x.HasSynced() || x.cursor.Load() < l.inf.store.State().Seq {
							return false
						}
					}
					for d := range l.inf.durables {
						if !d.HasSynced() || !l.inf.idle(d) {
							return false
						}
					}
					return true
				})
				l.end()
				return r.take()
			}
			log := live(func(l *life) {
				first, err := l.inf.store.Page(nil, pageObjects)
				if err != nil {
					t.Fatal(err)
				}
				second, err := l.inf.store.Page(first.Next, pageObjects)
				if err != nil || len(second.Keys) != 2 {
					t.Fatal(second.Keys, err)
				}
				shown, last = strings.TrimPrefix(first.Keys[0], "default/"),
					strings.TrimPrefix(second.Keys[0], "default/")
				w.delete(last)
				l.equal()
			})
			want := pageObjects + 2
			if durable {
				want++ // the Reset
			}
			if !slices.Contains(log, "delete "+last) || len(log) != want {
				t.Errorf("%d events, the last one %q: the delete of %s is not told", len(log), log[len(log)-1], last)
			}
			w.delete(shown)
			if log := live(nil); !slices.Contains(log, "delete "+shown) {
				t.Errorf("the delete is not told: %q", log)
			}
		})
	}
}
