package reflector

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// freshTruth knows all states that the server's objects have had.
type freshTruth struct {
	*fixture
	mu   sync.Mutex
	had  map[string][]string // by name: the states, "" without the object; the last one is the present
	seed uint64
	over atomic.Bool // nothing fails any more
}

var freshNames = []string{"cm0", "cm1", "cm2", "cm3", "cm4", "cm5"}

// note adds the present states. The caller holds mu.
func (f *freshTruth) note() {
	list, _, err := f.sim.List(&corev1.ConfigMap{})
	if err != nil {
		f.t.Fatal(err)
	}
	now := map[string]string{}
	for _, o := range list {
		now[o.GetName()] = o.(*corev1.ConfigMap).Data[""]
	}
	for _, name := range freshNames {
		if h := f.had[name]; len(h) == 0 || h[len(h)-1] != now[name] {
			f.had[name] = append(h, now[name])
		}
	}
}

// do changes the server.
func (f *freshTruth) do(change func()) {
	f.mu.Lock()
	change()
	f.note()
	f.mu.Unlock()
}

// write changes an object, or deletes it.
func (f *freshTruth) write(r *rand.Rand) {
	name := freshNames[r.Intn(len(freshNames))]
	f.do(func() {
		if h := f.had[name]; h[len(h)-1] != "" && r.Intn(3) == 0 {
			f.delete(name)
			return
		}
		f.seed++
		f.put(name, 20, f.seed)
	})
}

// call calls WaitForFresh, and checks that what is then read is what the server had at the call or
// later.
func (f *freshTruth) call(ctx context.Context) error {
	f.mu.Lock()
	since := map[string]int{}
	for _, name := range freshNames {
		since[name] = len(f.had[name]) - 1
	}
	f.mu.Unlock()
	// the bubble's clock, which takes no time; without it the call has the same moment as the
	// change before it, and versions, the only signal, have no time
	time.Sleep(time.Microsecond) // on the bubble's clock, see above
	began := time.Now()
	if err := f.WaitForFresh(ctx, 0); err != nil {
		return err
	}
	got := map[string]string{}
	for _, name := range freshNames {
		obj, ok, err := f.store.GetByKey("default/" + name)
		if err != nil {
			f.t.Error(err)
		}
		if ok {
			got[name] = obj.(*corev1.ConfigMap).Data[""]
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range since {
		if may := f.had[name][n:]; !slices.Contains(may, got[name]) {
			f.t.Errorf("after %s %s is %q, not one of %q: %s", time.Since(began), name, got[name], may, f.State())
		}
	}
	return nil
}

// fault breaks something, mostly for a short while.
func (f *freshTruth) fault(r *rand.Rand) {
	isObjects := func(q *http.Request) bool { return !isWatch(q) && q.URL.Query().Get("limit") != "1" }
	hang := func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }
	match := []func(*http.Request) bool{isWatch, isList, isObjects, listsMetadata}[r.Intn(4)]
	answer := []http.HandlerFunc{hang, kubesim.Answer(apierrors.NewInternalError(fmt.Errorf("no"))),
		kubesim.Answer(apierrors.NewTooManyRequests("later", 1)),
		kubesim.Answer(apierrors.NewResourceExpired("gone"))}[r.Intn(4)]
	switch r.Intn(8) {
	case 0, 1, 2:
		f.sim.FailNext(func(q *http.Request) bool { return !f.over.Load() && match(q) }, 1+r.Intn(3), answer)
	case 3:
		f.sim.DropConnections()
	case 4:
		f.sim.EndWatches(nil)
	case 5:
		f.sim.Compact()
		f.sim.DropConnections()
	case 6:
		f.sim.SetBandwidth([]int{0, 2000, 50_000}[r.Intn(3)])
	case 7:
		f.sim.Stall(true)
		after(time.Duration(r.Intn(5000)) * time.Millisecond)
		f.sim.Stall(false)
	}
}

// rewind takes the server back. It is noticed before the server has overtaken the file: for that
// case there are audits.
func (f *freshTruth) rewind(r *rand.Rand) {
	then := f.sim.Revision()
	for range 1 + r.Intn(3) {
		f.write(r)
		after(time.Duration(r.Intn(300)) * time.Millisecond)
	}
	f.do(func() {
		if err := f.sim.Rewind(then); err != nil {
			f.t.Fatal(err)
		}
	})
	if err := f.call(f.t.Context()); err != nil {
		f.t.Error(err)
	}
}

// TestFreshAmongFaults: whatever fails meanwhile, WaitForFresh returns nil only once all can be
// read that the server had at the call, and it does return.
func TestFreshAmongFaults(t *testing.T) {
	for seed := range 40 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewSource(int64(seed)))
			bubble(t, 3, kubesim.Options{NoBookmarks: r.Intn(3) == 0}, Options{}, func(fx *fixture) {
				f := &freshTruth{fixture: fx, had: map[string][]string{}}
				f.do(func() {})
				f.reflect()
				after(30 * time.Second)
				var callers sync.WaitGroup
				for range 60 {
					switch n := r.Intn(10); {
					case n < 4:
						patience := time.Duration(1+r.Intn(120)) * time.Second
						callers.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							defer cancel()
							_ = f.call(ctx) // a fault may last longer than the caller waits
						})
					case n < 6:
						f.write(r)
					case n < 7:
						f.other()
					case n < 9:
						f.fault(r)
					case r.Intn(4) == 0:
						f.rewind(r)
					default:
					}
					if r.Intn(3) > 0 {
						after([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second,
							20 * time.Second}[r.Intn(4)])
					}
				}
				callers.Wait()
				f.sim.SetBandwidth(0)
				f.over.Store(true)
				f.other()
				tries, began := f.tries.Load(), time.Now()
				if err := f.call(t.Context()); err != nil {
					t.Error(err)
				}
				took, n := time.Since(began), f.tries.Load()-tries
				t.Logf("last %s, %d requests, in all %d, %v", took, n, tries, f.State().Relists)
				if took > 5*time.Minute || n > 60 {
					t.Errorf("the last caller waited %s, for %d requests", took, n)
				}
				if d := f.differs(); d != "" {
					t.Error(d)
				}
			})
		})
	}
}
