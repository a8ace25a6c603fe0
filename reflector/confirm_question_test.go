package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestListIsTheQuestion: a list of few objects answers the question for the version, and
// confirms as soon as the file has the missed changes that the watch brings. One of many, or
// of none, begins with the watch and confirms as soon.
func TestListIsTheQuestion(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects int
		within  time.Duration // a second commit waits for its window
		miss    func(f *fixture)
	}{
		{"nothing was missed", 5, calm / 2, func(f *fixture) {}},
		{"a delete", 5, 50 * time.Millisecond, func(f *fixture) { f.delete("cm1") }},
		{"an add", 5, 50 * time.Millisecond, func(f *fixture) { f.create("new") }},
		{"an update", 5, 50 * time.Millisecond, func(f *fixture) { f.put("cm1", 10, 1) }},
		{"an object that has come and gone", 5, 50 * time.Millisecond, func(f *fixture) {
			f.create("new")
			f.delete("new")
		}},
		{"all deletes", 2, 50 * time.Millisecond, func(f *fixture) { f.delete("cm0"); f.delete("cm1") }},
		{"more adds than a page has", 5, 0, func(f *fixture) {
			for i := range 20 {
				f.create(fmt.Sprint("new", i))
			}
		}},
		{"many objects", 6000, calm / 2, func(f *fixture) {}},
		{"no objects", 0, calm / 2, func(f *fixture) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, tc.objects, kubesim.Options{}, Options{}, func(f *fixture) {
				f.list()
				tc.miss(f)
				f.asleep2()
				f.reflect()
				after(cmp.Or(tc.within, calm/2))
				if atOnce := tc.within > 0; f.queue.HasSynced() != atOnce {
					t.Errorf("synced at once: %v", !atOnce)
				}
				if f.queue.HasSynced() {
					if diff := f.differs(); diff != "" {
						t.Error(diff)
					}
				}
				after(5 * time.Second)
				if diff := f.differs(); !f.queue.HasSynced() || diff != "" || len(f.State().Relists) > 0 {
					t.Errorf("synced %v, %s, relists %v", f.queue.HasSynced(), diff, f.State().Relists)
				}
			})
		})
	}
}

// TestListAheadOfTheWatch: a start's list confirms as soon as the watch has brought what the
// file lacks, however long that takes.
func TestListAheadOfTheWatch(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		f.create("new")
		created := f.event("ADDED", "new")
		f.asleep2()
		f.lateWatch(5*time.Second, created)
		f.reflect()
		after(4900 * time.Millisecond)
		if f.queue.HasSynced() {
			t.Error("synced, and an object has not come yet")
		}
		after(200 * time.Millisecond)
		if diff := f.differs(); diff != "" || !f.queue.HasSynced() {
			t.Errorf("synced %v, %s", f.queue.HasSynced(), diff)
		}
	})
}

// TestListThatIsNotNeeded: if the server is at the file's version, no list has to confirm, and
// the source does not keep the one that asked.
func TestListThatIsNotNeeded(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		f.restart()
		f.reflect()
		after(time.Second)
		if st := f.State(); !f.queue.HasSynced() || st.Phase != PhaseLive || f.proving.may() {
			t.Errorf("synced %v, %s, no list has asked: %v", f.queue.HasSynced(), st, f.proving.may())
		}
		if f.proving.compares() {
			t.Error("the list is kept")
		}
	})
}

// TestListIsNoQuestion: if the server does not answer such a list, the version is asked for
// alone.
func TestListIsNoQuestion(t *testing.T) {
	lists := func(r *http.Request) bool {
		return strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") && !isWatch(r) &&
			!strings.HasSuffix(r.URL.Path, "/kube-system")
	}
	for name, disturb := range map[string]func(f *fixture){
		"406":        func(f *fixture) { f.sim.FailNext(lists, 1<<30, code(http.StatusNotAcceptable)) },
		"500":        func(f *fixture) { f.sim.FailNext(lists, 1<<30, code(http.StatusInternalServerError)) },
		"429":        func(f *fixture) { f.sim.FailNext(lists, 1<<30, code(http.StatusTooManyRequests)) },
		"not a list": func(f *fixture) { f.sim.FailNext(lists, 1<<30, code(http.StatusOK)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
				f.asleep()
				disturb(f)
				f.reflect()
				after(3 * time.Second)
				if st := f.State(); !f.queue.HasSynced() || st.Phase != PhaseLive || len(st.Relists) > 0 {
					t.Errorf("synced %v, %s", f.queue.HasSynced(), st)
				}
				if c := f.cost(); c.Questions == 0 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// code answers with a status code.
func code(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// TestNoListWhereVersionsAreTranslated: the server's own version means nothing to a caller
// whose functions translate versions. Neither does a list of metadata where the client cannot
// decode the empty list that stands for it.
func TestNoListWhereVersionsAreTranslated(t *testing.T) {
	for name, list := range map[string]func(*corev1.ConfigMapList) error{
		"": func(*corev1.ConfigMapList) error { return nil },
		"translated": func(l *corev1.ConfigMapList) error {
			l.ResourceVersion = "1" + l.ResourceVersion
			return nil
		},
		"not decoded": func(l *corev1.ConfigMapList) error {
			if len(l.Items) == 0 {
				return errors.New("no kind is registered for it")
			}
			return nil
		},
	} {
		sim := kubesim.New(kubesim.Options{})
		if _, err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		f := fixtureWith(t, sim, 5, clock.RealClock{}, Options{}, func(*rest.Config) {},
			func(lw cache.ListerWatcher) cache.ListerWatcher {
				inner := cache.ToListerWatcherWithContext(lw)
				return &cache.ListWatch{WatchFuncWithContext: inner.WatchWithContext,
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						answer, err := inner.ListWithContext(ctx, o)
						if err != nil {
							return nil, err
						}
						return answer, list(answer.(*corev1.ConfigMapList))
					}}
			})
		f.asleep()
		if a, err := f.askByList(t.Context()); err != nil || (a == nil) == (name == "") {
			t.Errorf("%q: the list is %v, %v", name, a, err)
		}
	}
}

// TestListOfASilentServer: a server that does not answer the list counts as offline, like
// one that does not answer the question. No second request waits for it.
func TestListOfASilentServer(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.asleep()
		silent := &atomic.Bool{}
		silent.Store(true)
		f.sim.FailNext(func(*http.Request) bool {
			return silent.Load()
		}, 1<<30, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		f.reflect()
		after(askPatience + time.Second)
		if st := f.State(); st.Phase != PhaseOffline {
			t.Error(st)
		}
		silent.Store(false)
		if !until(f.queue.HasSynced) {
			t.Error(f.State())
		}
	})
}
