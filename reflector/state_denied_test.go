package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestDenied: data is kept, and unconfirmed.
func TestDenied(t *testing.T) {
	f := newFixture(t, 4)
	f.list()
	f.doubtLink()
	before := f.State().Confirmed
	f.cost()
	f.clock.Step(time.Hour)
	f.sim.FailNext(nil, 1, kubesim.Answer(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "",
		fmt.Errorf("no"))))
	if _, err := f.open(t.Context(), nil); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	if st := f.State(); st.Phase != PhaseDenied || !st.Confirmed.Equal(before) || len(f.store.ListKeys()) != 4 {
		t.Fatalf("%+v with %d objects", st, len(f.store.ListKeys()))
	}
	f.costs("refused", kubesim.Cost{Questions: 1, Bytes: 220})
	f.watch()
	if diff, st := f.differs(), f.State(); diff != "" || st.Phase != PhaseLive || !st.Confirmed.Equal(f.clock.Now()) {
		t.Fatalf("%s, %+v", diff, st)
	}
	f.costs("allowed", kubesim.Cost{Questions: 1, Watches: 1, Others: 1, Bytes: 700})
}

var refusals = map[string]*apierrors.StatusError{
	"401": apierrors.NewUnauthorized("Unauthorized"),
	"403": apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no")),
	"404": apierrors.NewNotFound(corev1.Resource("configmaps"), ""),
}

// TestDeniedKeeps: refused objects stay, unconfirmed; when they are allowed again, the
// watch resumes from the file, and only differences are told.
func TestDeniedKeeps(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
				on := f.refuse(refusal)
				f.reflect()
				after(time.Second)
				f.takeTold()
				on.Store(true)
				f.sim.DropConnections()
				f.create("missed")
				f.cost()
				after(time.Hour)
				if n, st := len(f.store.ListKeys()), f.State(); n != 5 || st.Phase != PhaseDenied ||
					time.Since(st.Confirmed) < time.Hour-time.Second {
					t.Errorf("%d objects, %#v", n, st)
				}
				f.costs("in an hour", kubesim.Cost{Questions: 240, Bytes: 44000}) // client-go's backoff
				on.Store(false)
				after(2 * time.Minute)
				if told := f.takeTold(); told != "Added missed" || f.State().Phase != PhaseLive {
					t.Errorf("told %q, %s", told, f.State())
				}
				f.costs("afterwards", kubesim.Cost{Questions: 2, Watches: 3, Others: 2, Bytes: 1600})
				if diff := f.differs(); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestDeniedPurges: deletes are told when the refusal has lasted for a while, which a
// starting server's does not; and everything is told when it is allowed again.
func TestDeniedPurges(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, kubesim.Options{}, Options{PurgeDenied: true}, func(f *fixture) {
				on := f.refuse(refusal)
				f.reflect()
				after(time.Second)
				f.takeTold()
				f.cost()
				for range 5 { // short refusals
					on.Store(true)
					f.sim.DropConnections()
					after(30 * time.Second)
					on.Store(false)
					after(2 * time.Minute)
				}
				if told := f.takeTold(); told != "" || len(f.store.ListKeys()) != 3 {
					t.Errorf("told %q", told)
				}
				f.costs("short refusals", kubesim.Cost{Questions: 40, Watches: 8, Others: 6, Bytes: 8500})
				on.Store(true)
				f.sim.DropConnections()
				after(10 * time.Minute)
				if told := f.takeTold(); told != "Deleted cm0, Deleted cm1, Deleted cm2" ||
					len(f.store.ListKeys()) != 0 || f.State().Phase != PhaseDenied {
					t.Errorf("told %q, %s", told, f.State())
				}
				f.costs("in ten minutes", kubesim.Cost{Questions: 45, Others: 1, Bytes: 8000})
				f.create("more")
				on.Store(false)
				after(2 * time.Minute)
				if told := f.takeTold(); told != "Added cm0, Added cm1, Added cm2, Added more" ||
					f.State().Phase != PhaseLive {
					t.Errorf("told %q, %s", told, f.State())
				}
				f.costs("afterwards", kubesim.Cost{Questions: 1, FullReads: 1, Watches: 2, Others: 1, Forms: 2,
					Bytes: 1300})
				if diff := f.differs(); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestDeniedByAnotherCluster: objects that another cluster refuses have not been deleted.
func TestDeniedByAnotherCluster(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, kubesim.Options{}, Options{PurgeDenied: true}, func(f *fixture) {
				on := f.refuse(refusal)
				f.reflect()
				after(time.Second)
				f.takeTold()
				on.Store(true)
				if err := f.sim.Recreate(1_000_000); err != nil {
					t.Fatal(err)
				}
				f.create("theirs")
				f.cost()
				after(10 * time.Minute)
				f.costs("refused", kubesim.Cost{Questions: 45, Others: 40, Bytes: 18_000})
				if told := f.takeTold(); strings.Contains(told, "Deleted") || f.store.State().Synced ||
					f.State().Phase != PhaseDenied {
					t.Errorf("told %q, synced %v, %s", told, f.store.State().Synced, f.State())
				}
				on.Store(false)
				after(2 * time.Minute)
				if told := f.takeTold(); strings.Contains(told, "Deleted") || f.State().Phase != PhaseLive ||
					len(f.store.ListKeys()) != 1 {
					t.Errorf("told %q, %s", told, f.State())
				}
				f.costs("afterwards", kubesim.Cost{Questions: 1, FullReads: 1, Watches: 2, Others: 1, Forms: 2,
					Bytes: 1000})
				if diff := f.differs(); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestDeniedByAGateway: a gateway that answers in place of the server, and does not speak
// its language, shows nothing about rights. Otherwise the objects of a source whose
// cluster does not tell its UID would be purged.
func TestDeniedByAGateway(t *testing.T) {
	for _, code := range []int{401, 403, 404} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			bubble(t, 3, kubesim.Options{}, Options{PurgeDenied: true}, func(f *fixture) {
				f.sim.FailNext(func(r *http.Request) bool {
					return strings.HasSuffix(r.URL.Path, "/kube-system")
				}, 1<<30, kubesim.Answer(refusals["403"]))
				on := &atomic.Bool{}
				f.sim.FailNext(func(*http.Request) bool {
					return on.Load()
				}, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
					http.Error(w, "no backend", code)
				})
				f.reflect()
				after(time.Second)
				f.takeTold()
				on.Store(true)
				f.sim.DropConnections()
				after(10 * time.Minute)
				if told := f.takeTold(); told != "" || f.State().Phase != PhaseDenied || len(f.store.ListKeys()) != 3 {
					t.Errorf("told %q, %s", told, f.State())
				}
				on.Store(false)
				live := until(func() bool { return f.State().Phase == PhaseLive })
				if told := f.takeTold(); told != "" || !live {
					t.Errorf("told %q, %s", told, f.State())
				}
				f.refuse(refusals[fmt.Sprint(code)]).Store(true)
				f.sim.DropConnections()
				after(10 * time.Minute)
				if told := f.takeTold(); told != "Deleted cm0, Deleted cm1, Deleted cm2" {
					t.Errorf("told %q, %s", told, f.State())
				}
			})
		})
	}
}

// TestPurgedStaysSo: the next life does not take an empty file for a fresh one.
func TestPurgedStaysSo(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{PurgeDenied: true}, func(f *fixture) {
		f.list()
		if err := f.queue.Purge(f.t.Context()); err != nil {
			t.Fatal(err)
		}
		f.restart()
		if st := f.store.State(); st.ResourceVersion != "" || !st.Confirmed.IsZero() || st.Objects != 0 {
			t.Errorf("%+v", st)
		}
		f.list()
		if n := len(f.store.ListKeys()); n != 3 {
			t.Errorf("%d objects", n)
		}
	})
}

// TestTypeComesBack: a custom resource's definition is deleted and created again with
// other objects.
func TestTypeComesBack(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		on := f.refuse(refusals["404"])
		f.reflect()
		after(time.Second)
		f.takeTold()
		on.Store(true)
		f.sim.DropConnections()
		for _, name := range []string{"cm0", "cm1", "cm2"} {
			f.delete(name)
		}
		f.create("cm1")
		f.sim.Compact() // the new type has no events from before
		f.cost()
		after(10 * time.Minute)
		f.costs("gone", kubesim.Cost{Questions: 50, Bytes: 8500})
		on.Store(false)
		after(2 * time.Minute)
		if told := f.takeTold(); told != "Added cm1, Deleted cm0, Deleted cm1, Deleted cm2" ||
			f.State().Phase != PhaseLive {
			t.Errorf("told %q, %s", told, f.State())
		}
		f.costs("back", kubesim.Cost{Questions: 2, FullReads: 1, Watches: 3, Others: 3, Forms: 2, Bytes: 2100})
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
	})
}
