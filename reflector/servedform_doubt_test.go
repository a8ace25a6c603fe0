package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestUntoldForm: if the server has not stated the form, it is asked for once after a
// watch has ended before its time, and watches are not cut short. When it is stated,
// everything is read, since the form of the file's objects is unknown.
func TestUntoldForm(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			f := newCustomFixture(t)
			var untold atomic.Bool
			untold.Store(true)
			f.sim.FailNext(func(r *http.Request) bool { return untold.Load() && strings.HasPrefix(r.URL.Path, "/openapi/") }, 1<<30,
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
			f.list()
			other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}
			if err := f.sim.Create(other); err != nil { // the server's versions move
				t.Fatal(err)
			}
			for range 2 {
				n := f.reopen()
				if _, due := f.form.doubtful(); n != 1 || due != (code == http.StatusServiceUnavailable) {
					t.Errorf("asked %d times, in doubt %v", n, due)
				}
			}
			untold.Store(false)
			if err := f.sim.Reform(widget("second", "blue")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				f.reopen()
				if got := f.colors(); got != "none blue none" {
					t.Errorf("the file has %s", got)
				}
				if n := f.State().Relists[ReasonForm]; n != 1 || f.store.ServedForm() == "" {
					t.Errorf("%v, form %q", f.State().Relists, f.store.ServedForm())
				}
			}
		})
	}
}

// TestFormChangesDuringSlowList: the watch beside a slow list ends with the form, and is
// opened again at the version of a write that came over it. The objects of the earlier
// pages are read again.
func TestFormChangesDuringSlowList(t *testing.T) {
	for _, repair := range []bool{false, true} {
		t.Run(fmt.Sprint("repair ", repair), func(t *testing.T) {
			warm(t)
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				pages, slow := 0, !repair
				var change func()
				f := customFixtureOver(t, sim, Options{clock: clock.RealClock{}, pageSize: 1, repair: listFull}, func(token string) {
					if token == "" || !slow {
						return
					}
					switch pages++; pages {
					case 1:
						time.Sleep(2 * aheadAfter) // on the bubble's clock, which takes no time: the server is slower than a watch that is kept ahead waits
					case 3:
						change()
					}
				})
				for i := range 3 {
					if err := sim.Create(widget(fmt.Sprint("z", i), "none")); err != nil {
						t.Fatal(err)
					}
				}
				change = func() {
					after(time.Second) // the watch is open
					if err := errors.Join(sim.Reconvert(widget("first", "blue")), sim.Update(widget("z0", "green"))); err != nil {
						t.Error(err)
					}
					after(time.Second)
					sim.EndWatches(nil)
					after(time.Second)
				}
				f.list()
				if repair {
					slow = true
					f.watch().Stop()
					f.link.expired()
				}
				w := f.watch()
				go func() { // as the Reflector does
					for ev := range w.ResultChan() {
						if ev.Type == watch.Modified {
							_ = f.queue.Update(ev.Object)
						}
					}
				}()
				after(2 * time.Hour)
				f.watch().Stop()
				if got := f.colors(); got != "blue none none" || pages < 5 {
					t.Errorf("the file has %s after %d pages: %v", got, pages, f.State().Relists)
				}
			})
		})
	}
}

// TestServersOfTwoReleases: API servers of two releases behind one address give their
// signs in turn, as long as an upgrade takes. That costs a list from time to time, not
// one for each watch that ends. A changed definition is noticed at once nevertheless, and
// the other form of the last server soon.
func TestServersOfTwoReleases(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		f := customFixtureOver(t, sim, Options{clock: clock.RealClock{}}, func(string) {})
		f.reflect()
		turns := 0
		turn := func() {
			turns++
			sim.Upgrade([]string{"v1.36.3", "v1.37.0"}[turns%2])
			sim.DropConnections()
			after(time.Minute)
		}
		for range 120 {
			turn()
		}
		if n := f.State().Relists[ReasonForm]; n < 5 || n > 20 {
			t.Errorf("%d lists in two hours", n)
		}
		if err := sim.Reconvert(widget("first", "blue")); err != nil {
			t.Fatal(err)
		}
		if turn(); f.colors() != "blue none none" {
			t.Errorf("the file has %s after a change of the definition", f.colors())
		}
		if turn(); f.store.ServedForm() == "" {
			t.Error("the form is not known")
		}
		if err := sim.Reform(widget("second", "green")); err != nil {
			t.Fatal(err)
		}
		sim.DropConnections()
		after(mostFormLag * time.Second)
		after(formLag * time.Second)
		if f.colors() != "blue green none" {
			t.Errorf("the file has %s in the end", f.colors())
		}
	})
}

// TestDoubtOutlivesTheProcess: the definition of a custom resource changes, its watch
// ends, and so does the process before it has asked, as when one release brings both. The
// next life asks. When the doubt is settled, it asks no more.
func TestDoubtOutlivesTheProcess(t *testing.T) {
	for name, before := range map[string]func(f *customFixture){
		"not asked":  func(*customFixture) {},
		"asked once": func(f *customFixture) { f.watch().Stop() },
		"list fails": func(f *customFixture) {
			if err := f.sim.Reconvert(widget("second", "green")); err != nil {
				t.Fatal(err)
			}
			f.sim.FailNext(func(r *http.Request) bool {
				return strings.HasSuffix(r.URL.Path, "/widgets") && !isWatch(r) && r.URL.Query().Get("fieldSelector") == ""
			}, 1,
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
			f.watch().Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCustomFixture(t)
			f.list()
			w := f.watch()
			f.sim.EndWatches(nil)
			for range w.ResultChan() {
			}
			before(f)
			if err := f.sim.Reconvert(widget("second", "blue")); err != nil {
				t.Fatal(err)
			}
			f.restart()
			f.list()
			f.watch().Stop()
			if got := f.colors(); got != "none blue none" {
				t.Errorf("the file has %s", got)
			}
			f.restart()
			for range 2 {
				f.list()
				f.watch().Stop()
			}
			f.restart()
			f.cost()
			f.list()
			f.watch().Stop()
			if n := f.cost().Forms; n != 0 {
				t.Errorf("asked %d times, of a form that nobody doubts", n)
			}
		})
	}
}
