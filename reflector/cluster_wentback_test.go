package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestAnotherClusterIsBehind: if another cluster answers in the middle of a list, at a
// lower version than that of the pages, it is not taken for a restored one: nothing is
// told as deleted, and the file knows its cluster.
func TestAnotherClusterIsBehind(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, first := range []bool{false, true} {
			t.Run(fmt.Sprintf("silent %v, first list %v", silent, first), func(t *testing.T) {
				bubble(t, 9, kubesim.Options{InitialRV: 5000, NoFlowSchemas: silent}, Options{pageSize: 3}, func(f *fixture) {
					if !first {
						end := f.live()
						if !until(f.queue.HasSynced) {
							t.Fatal("not synced")
						}
						f.die(end)
						f.takeTold()
						f.create("missed")
						f.sim.Compact()
					}
					var pages atomic.Int64
					var answers atomic.Bool
					f.sim.FailNext(func(r *http.Request) bool {
						return r.URL.Query().Get("limit") == "3" && pages.Add(1) > 1 && !answers.Load()
					}, 1<<30, nil)
					f.reflect()
					after(30 * time.Second)
					if pages.Load() < 2 {
						t.Fatalf("%d pages", pages.Load())
					}
					if first {
						if err := f.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own", UID: "u"}}); err != nil {
							t.Fatal(err)
						}
					}
					f.recreate(100)
					answers.Store(true)
					if !until(f.queue.HasSynced) {
						t.Fatal("not synced")
					}
					after(time.Hour)
					f.ofTheCluster()
					if n := f.store.State().Timeline; n > 0 {
						t.Errorf("timeline %d", n)
					}
				})
			})
		}
	}
}

// TestOwnWriteBehindARestore: an own write after the contents of a cluster were set aside
// does not belong to a timeline that ended in that cluster. It stays until the server has
// reached its version.
func TestOwnWriteBehindARestore(t *testing.T) {
	bubble(t, 9, kubesim.Options{InitialRV: 5000}, Options{pageSize: 3}, func(f *fixture) {
		f.restoredAndNotListed()
		var away atomic.Bool
		away.Store(true)
		f.sim.FailNext(func(r *http.Request) bool { return away.Load() && r.URL.Query().Get("continue") != "" }, 1<<30,
			kubesim.Answer(apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no"))))
		f.recreate(1_000_000)
		for i := range 5 {
			f.create(fmt.Sprint("theirs", i))
		}
		f.reflect()
		if !until(func() bool { return f.store.Epoch() == 1 }) {
			t.Fatalf("not set aside: %s", f.State())
		}
		if err := f.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own", UID: "u", ResourceVersion: "3000000"}}); err != nil {
			t.Fatal(err)
		}
		away.Store(false)
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		if _, ok, err := f.store.GetByKey("default/own"); !ok || err != nil {
			t.Errorf("the program's object is gone: %v, timeline %d", err, f.store.State().Timeline)
		}
	})
}

// TestAnotherClusterBehindATakenUpList: another cluster that answers in the middle of a
// continued list refuses its token. The list begins again as that cluster's, and own
// writes for the earlier cluster are not shown.
func TestAnotherClusterBehindATakenUpList(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("silent ", silent), func(t *testing.T) {
			bubble(t, 9, kubesim.Options{InitialRV: 5000, NoFlowSchemas: silent}, Options{pageSize: 3}, func(f *fixture) {
				f.interrupted(1)
				var phase, pages atomic.Int64 // 0: pages break, 1: they are refused once, 2: they come
				f.sim.FailNext(func(r *http.Request) bool {
					return phase.Load() == 0 && r.URL.Query().Get("continue") != "" && pages.Add(1) > 0
				}, 1<<30, nil)
				f.sim.FailNext(func(r *http.Request) bool {
					return r.URL.Query().Get("continue") != "" && phase.CompareAndSwap(1, 2)
				}, 1<<30, kubesim.Answer(apierrors.NewResourceExpired("the token is too old")))
				f.reflect()
				after(10 * time.Second)
				if pages.Load() == 0 {
					t.Fatal("not taken up")
				}
				if err := f.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own", UID: "u", ResourceVersion: "9000000"}}); err != nil {
					t.Fatal(err)
				}
				f.recreate(1_000_000)
				phase.Store(1)
				if !until(f.queue.HasSynced) {
					t.Fatal("not synced")
				}
				after(time.Hour)
				if phase.Load() != 2 {
					t.Error("no token was refused")
				}
				f.ofTheCluster()
			})
		})
	}
}
