package reflector

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFirstListIsPaged: the Reflector gets no objects, and the file gets all of them.
func TestFirstListIsPaged(t *testing.T) {
	f := newFixture(t, 8)
	f.list()
	if n := len(f.store.ListKeys()); n != 8 {
		t.Fatalf("%d objects", n)
	}
	pages := 0
	for _, r := range f.sim.Requests() {
		if r.FullRead() {
			pages++
		}
	}
	if pages != 3 {
		t.Errorf("%d pages", pages)
	}
	f.forget()
	f.list() // again: from the file
	if n := len(f.sim.Requests()); n != 0 {
		t.Errorf("a resume sent %d requests", n)
	}
	if st := f.State(); st.Resumes != 0 {
		t.Errorf("counted before a watch goes on from it: %+v", st)
	}
	f.watch().Stop()
	if st := f.State(); st.Resumes != 1 || st.BytesSaved == 0 || st.Relists[ReasonFirst] != 1 {
		t.Errorf("%+v", st)
	}
}

// TestContinueExpires: everything is read in one page instead.
func TestContinueExpires(t *testing.T) {
	f := newFixture(t, 8)
	f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }, 1,
		kubesim.Answer(apierrors.NewResourceExpired("The provided continue parameter is too old")))
	f.list()
	if diff := f.differs(); diff != "" {
		t.Fatal(diff)
	}
	f.costs("in all", kubesim.Cost{Questions: 1, FullReads: 2, Others: 1, Forms: 2, Bytes: 3000})
}

// TestSlowFirstSync: a first sync that takes many times as long as the server keeps its
// history ends, with one pass over the objects and one over their metadata, even if the link
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
						_ = f.sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
							Name: name}})
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
				t.Logf("%s: synced %v after %s, %d bytes, %v, %s", name, f.queue.HasSynced(), time.Since(began),
					bytes, st.Relists, st)
				if !f.queue.HasSynced() || firsts > 2 || bytes > objects*(size+350)*6/5 {
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

// TestInconsistentRest: the list that the server offers in place of an expired token is
// used; the state counts as confirmed only when the watch, which begins at the first
// page's version, has reached the last page's.
func TestInconsistentRest(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
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
		if got := f.queue.AcceptedVersion(); got != fmt.Sprint(rv) || f.queue.Reached() || f.queue.HasSynced() {
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
		f.costs("the rest", kubesim.Cost{Questions: 1, FullReads: 3, Watches: 2, Others: 1, Forms: 2, Bytes: 3100})
	})
}

// TestBrokenPage: a page that fails is read again, at the same place.
func TestBrokenPage(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
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
		f.costs("in all", kubesim.Cost{Questions: 2, FullReads: 3, Others: 2, Forms: 2, Bytes: 2700})
	})
}
