package reflector

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// put creates or changes a config map whose content does not compress.
func (f *fixture) put(name string, size int, seed uint64) {
	f.t.Helper()
	data := make([]byte, size)
	for i, r := 0, rand.New(rand.NewPCG(seed, 7)); i < size; i++ {
		data[i] = byte('!' + r.IntN(90))
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"": string(data)}}
	err := f.sim.Update(o)
	if apierrors.IsNotFound(err) {
		err = f.sim.Create(o)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// differs says how the file differs from the server.
func (f *fixture) differs() string {
	want, _, err := f.sim.List(&corev1.ConfigMap{})
	if err != nil {
		return err.Error()
	}
	if n := len(f.store.ListKeys()); n != len(want) {
		return fmt.Sprintf("%d objects, want %d", n, len(want))
	}
	for _, o := range want {
		got, ok, err := f.store.GetByKey(o.GetNamespace() + "/" + o.GetName())
		if m, ok := got.(*corev1.ConfigMap); ok && strings.HasPrefix(m.ResourceVersion, "v") {
			o.SetResourceVersion("v" + o.GetResourceVersion()) // see opaque
		}
		if err != nil || !ok || !apiequality.Semantic.DeepEqual(got, o) {
			return fmt.Sprintf("%s differs: %v", o.GetName(), err)
		}
	}
	return ""
}

// every does something in the background, for the rest of the bubble.
func (f *fixture) every(d time.Duration, do func(i int)) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-time.After(d):
				do(i)
			case <-done:
				return
			}
		}
	}()
	f.t.Cleanup(func() { close(done); <-ended })
}

// TestSlowFirstSync: a first sync that takes many times as long as the server
// keeps its history ends, with one pass over the objects, also when the link
// breaks on the way.
func TestSlowFirstSync(t *testing.T) {
	for name, breaks := range map[string]time.Duration{"slow": 0, "slow and broken": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 0, kubesim.Options{}, Options{}, func(f *fixture) {
				const objects, size = 2000, 1500
				for i := range objects {
					f.put(fmt.Sprintf("cm%04d", i), size, uint64(i))
				}
				f.sim.SetBandwidth(50_000 / 8)
				f.every(75*time.Second, func(int) { f.sim.Compact() })
				f.every(10*time.Second, func(i int) {
					switch name := fmt.Sprintf("cm%04d", (i*37)%objects); i % 3 {
					case 0:
						f.put(name, 100, uint64(i))
					case 1:
						_ = f.sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
					default:
						f.put(fmt.Sprint("new", i), 100, uint64(i))
					}
				})
				if breaks > 0 {
					f.every(breaks, func(int) { f.sim.DropConnections() })
				}
				f.reflect()
				began := time.Now()
				for !f.queue.HasSynced() && time.Since(began) < time.Hour {
					after(10 * time.Second)
				}
				after(time.Second)
				bytes, firsts := int64(0), 0
				for _, r := range f.sim.Requests() {
					bytes += r.BodyBytes
					if r.Verb == "list" && r.Query.Get("continue") == "" && r.Query.Get("limit") != "1" {
						firsts++
					}
				}
				st := f.State()
				t.Logf("%s: synced %v after %s, %d bytes, %v, %s", name, f.queue.HasSynced(), time.Since(began), bytes, st.Relists, st)
				if !f.queue.HasSynced() || firsts > 1 || bytes > objects*(size+350)*6/5 {
					t.Errorf("%d lists were begun, %d bytes", firsts, bytes)
				}
				after(5 * time.Second)
				if d := f.differs(); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// TestInconsistentRest: what the server offers in place of an expired token is
// taken; the state counts as confirmed only when the watch, which begins at the
// first page's version, has reached the last page's.
func TestInconsistentRest(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{PageSize: 3}, func(f *fixture) {
		pages := 0
		f.sim.OnRequest = func(r *http.Request) {
			if r.URL.Query().Get("limit") != "3" {
				return
			}
			if pages++; pages == 2 {
				f.put("cm0", 10, 1) // behind the list
				f.delete("cm1")
				f.put("cm8", 10, 1) // before it
				f.create("cm00")
				f.sim.Compact()
			}
		}
		rv := f.sim.Revision()
		f.list()
		f.costs("the list", kubesim.Cost{Questions: 1, FullReads: 3, Others: 1, Forms: 2, Bytes: 3400})
		if got := f.queue.Accepted(); got != fmt.Sprint(rv) || f.queue.Reached() || f.queue.HasSynced() {
			t.Errorf("at %s, confirmed %v", got, f.queue.Reached())
		}
		if st := f.store.State(); !st.Confirmed.IsZero() {
			t.Errorf("confirmed %s", st.Confirmed)
		}
		// That version is gone by now: everything is read once more.
		f.reflect()
		after(5 * time.Second)
		if d := f.differs(); d != "" || !f.queue.HasSynced() || f.State().Phase != PhaseLive {
			t.Error(d, f.State())
		}
		f.costs("the rest", kubesim.Cost{Questions: 1, FullReads: 3, Watches: 2, Forms: 2, Bytes: 3100})
	})
}

// TestPagesGrow: fewer requests for small objects; the size that a caller sets
// is kept.
func TestPagesGrow(t *testing.T) {
	limits := func(f *fixture) (limits []string) {
		f.list()
		for _, r := range f.sim.Requests() {
			if r.FullRead() {
				limits = append(limits, r.Query.Get("limit"))
			}
		}
		if n := len(f.store.ListKeys()); n != 4000 {
			f.t.Errorf("%d objects", n)
		}
		return limits
	}
	bubble(t, 4000, kubesim.Options{}, Options{}, func(f *fixture) {
		if got := fmt.Sprint(limits(f)); got != "[250 2000 10000]" {
			t.Error(got)
		}
	})
	bubble(t, 4000, kubesim.Options{}, Options{PageBytes: 200_000}, func(f *fixture) {
		if got := limits(f); len(got) < 5 {
			t.Error(got)
		}
	})
	bubble(t, 4000, kubesim.Options{}, Options{PageSize: 2000}, func(f *fixture) {
		if got := fmt.Sprint(limits(f)); got != "[2000 2000]" {
			t.Error(got)
		}
	})
}

// TestPagesShrink: a server that gives less than it is asked for is read to the
// end, in one list, whatever page size was asked for; and a repair of what it
// has tells only what differs.
func TestPagesShrink(t *testing.T) {
	for name, o := range map[string]Options{"by itself": {}, "as the caller says": {PageSize: 20}, "metadata first": {Repair: RepairMetadata}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 50, kubesim.Options{LargestPage: 7}, o, func(f *fixture) {
				f.reflect()
				after(5 * time.Second)
				if d := f.differs(); d != "" || f.State().Phase != PhaseLive || f.State().Relists[ReasonFirst] != 1 {
					t.Error(d, f.State())
				}
				f.costs("the first sync", kubesim.Cost{FullReads: 8, Watches: 1, Others: 1, Forms: 2, Bytes: 12_000})
				f.takeTold()
				if err := f.sim.RefuseConnections(true); err != nil {
					t.Fatal(err)
				}
				f.put("cm3", 10, 1)
				f.delete("cm20")
				f.create("cm200")
				f.sim.Compact()
				if err := f.sim.RefuseConnections(false); err != nil {
					t.Fatal(err)
				}
				after(time.Minute)
				if told := f.takeTold(); told != "Added cm200, Deleted cm20, Updated cm3" {
					t.Errorf("told %q", told)
				}
				if d := f.differs(); d != "" || f.State().Phase != PhaseLive || f.State().Relists[ReasonExpired] != 1 {
					t.Error(d, f.State())
				}
				most := kubesim.Cost{Questions: 2, FullReads: 8, Watches: 3, Others: 1, Forms: 2, Bytes: 12_500}
				if o.Repair == RepairMetadata { // three objects by themselves
					most.Others, most.Bytes = 4, 17_000
				}
				f.costs("the repair", most)
			})
		})
	}
}

// TestBrokenPage: a page that fails is read again, where it is.
func TestBrokenPage(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{PageSize: 3}, func(f *fixture) {
		f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }, 2, nil)
		f.list()
		firsts := 0
		for _, r := range f.sim.Requests() {
			if r.FullRead() && r.Query.Get("continue") == "" {
				firsts++
			}
		}
		if diff := f.differs(); diff != "" || firsts != 1 {
			t.Errorf("%s, %d lists were begun", diff, firsts)
		}
		f.costs("in all", kubesim.Cost{Questions: 2, FullReads: 3, Others: 1, Forms: 2, Bytes: 2700})
	})
}

// TestAhead: what a watch has kept comes first, in order, then what follows;
// too much of it, or a version that has expired, makes it worthless.
func TestAhead(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		rv := f.queue.Accepted()
		open := func() *ahead { return openAhead(f.t.Context(), &f.requests, time.Minute, rv) }
		f.left.a = open()
		f.create("kept")
		after(time.Second)
		w, _ := f.left.take(rv)
		f.create("later")
		for _, want := range []string{"kept", "later"} {
			if ev := f.next(w); ev.Type != watch.Added || ev.Object.(*corev1.ConfigMap).Name != want {
				t.Errorf("%+v, want %s", ev, want)
			}
		}
		w.Stop()
		f.left.a = open()
		if w, _ := f.left.take("1"); w != nil {
			t.Error("given for another version")
		}
		a := open()
		f.sim.DropConnections()
		f.create("between")
		after(time.Second)
		if a.again(f.t.Context(), &f.requests, time.Minute); a.failed || a.ended {
			t.Error("not opened again")
		}
		f.create("last")
		after(time.Second)
		f.left.a = a
		w, _ = f.left.take(rv)
		for _, want := range []string{"kept", "later", "between", "last"} {
			if ev := f.next(w); ev.Object.(*corev1.ConfigMap).Name != want {
				t.Errorf("%+v, want %s", ev, want)
			}
		}
		w.Stop()
		f.sim.Compact()
		f.left.a = open()
		after(time.Second)
		if w, _ := f.left.take(rv); w != nil {
			t.Error("given though expired")
		}
	})
}

// TestFirstPageTooLarge: the first page of a list, which may be as large as
// those of the last one have grown, gets smaller where the link breaks before
// it has come.
func TestFirstPageTooLarge(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{Repair: RepairFull}, func(f *fixture) {
		const objects = 1000
		for i := range objects {
			f.put(fmt.Sprintf("cm%04d", i), 1500, uint64(i))
		}
		f.reflect()
		after(10 * time.Second)
		grown := f.facts.pageSize
		if !f.queue.HasSynced() || grown < objects {
			t.Fatalf("pages of %d, %s", grown, f.State())
		}
		f.sim.SetBandwidth(50_000 / 8)
		f.put("cm0003", 100, 1)
		f.sim.Compact()
		f.sim.DropConnections()
		f.every(40*time.Second, func(int) { f.sim.DropConnections() })
		f.forget()
		if !until(func() bool { return f.State().Relists[ReasonExpired] > 0 }) {
			t.Errorf("not read in an hour: %s, %+v", f.State(), f.traffic())
		}
		if n := f.traffic(); n.bytes > 2*objects*1850 {
			t.Errorf("%+v", n)
		}
		after(20 * time.Second)
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestAheadIsNotWaitedFor: a watch that is not answered before its first event,
// as some proxies have it, does not hold up the pages of a slow list.
func TestAheadIsNotWaitedFor(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{PageSize: 50}, func(f *fixture) {
		f.slow(500)
		f.sim.FailNext(isWatch, 1<<30, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began := time.Now()
		f.list()
		took, whole := time.Since(began), time.Duration(0)
		for _, r := range f.sim.Requests() {
			whole += time.Duration(r.BodyBytes) * time.Second / (50_000 / 8)
		}
		if took > whole+10*time.Second {
			t.Errorf("it took %s, the link %s", took, whole)
		}
		after(time.Hour)
	})
}
