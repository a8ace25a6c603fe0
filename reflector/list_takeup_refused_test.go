package reflector

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// interrupted reads n pages of three and ends the life.
func (f *fixture) interrupted(n int, meanwhile ...func()) {
	f.t.Helper()
	var pages atomic.Int64
	var over atomic.Bool
	f.sim.FailNext(func(r *http.Request) bool {
		return !over.Load() && r.URL.Query().Get("limit") == "3" && pages.Add(1) > int64(n)
	}, 1000, nil)
	end := f.live()
	after(30 * time.Second)
	for _, do := range meanwhile {
		do()
	}
	over.Store(true)
	f.die(end)
	if f.store.State().Synced {
		f.t.Fatal("it was not interrupted")
	}
}

// TestNotTakenUp: if the server does not continue the list that was begun, or is another
// one by now, a list begins again and shows nothing of the old one.
func TestNotTakenUp(t *testing.T) {
	gone := func(f *fixture, with *apierrors.StatusError) {
		f.sim.FailNext(func(r *http.Request) bool {
			return r.URL.Query().Get("continue") != ""
		}, 1, kubesim.Answer(with))
	}
	for name, tc := range map[string]struct {
		before func(f *fixture)
		anew   bool
		tried  bool // the server was asked for the next page
	}{
		"nothing":            {func(*fixture) {}, false, true},
		"expired, no rest":   {func(f *fixture) { gone(f, apierrors.NewResourceExpired("gone")) }, true, true},
		"expired, with rest": {func(f *fixture) { f.create("another"); f.sim.CompactLists() }, false, true},
		"invalid": {func(f *fixture) {
			gone(f, apierrors.NewBadRequest("continue key is not valid"))
		}, true, true},
		"server is behind": {func(f *fixture) {
			if err := f.sim.Rewind(f.sim.Revision() - 2); err != nil {
				f.t.Fatal(err)
			}
		}, true, false},
		"another cluster": {func(f *fixture) {
			if err := f.sim.Recreate(f.sim.Revision() + 100); err != nil {
				f.t.Fatal(err)
			}
			f.create("of the other")
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
				f.interrupted(2)
				tc.before(f)
				f.sim.ResetRequests()
				f.reflect()
				after(20 * time.Second)
				n := f.traffic()
				tried := false
				for _, r := range f.sim.Requests() {
					if r.Verb == "list" && r.Query.Get("limit") == "3" {
						tried = r.Query.Get("continue") != ""
						break
					}
				}
				if tried != tc.tried || (n.firsts == 1) != tc.anew || n.firsts > 1 || !f.queue.HasSynced() {
					t.Errorf("%+v, synced %v, %s", n, f.queue.HasSynced(), f.State())
				}
				if d := f.differs(); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// TestPurgeOfAnInterruptedList: objects that the server refuses are removed, even
// invisible ones.
func TestPurgeOfAnInterruptedList(t *testing.T) {
	for _, purge := range []bool{false, true} {
		bubble(t, 9, kubesim.Options{}, Options{pageSize: 3, PurgeDenied: purge}, func(f *fixture) {
			f.interrupted(2)
			refused := f.refuse(refusals["403"])
			refused.Store(true)
			f.reflect()
			after(5 * time.Minute)
			refused.Store(false)
			f.sim.ResetRequests()
			after(5 * time.Minute)
			if n := f.traffic(); (n.firsts == 1) != purge || !f.queue.HasSynced() {
				t.Errorf("%v: %+v", purge, n)
			}
			if d := f.differs(); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestOpaqueNotTakenUp: if versions cannot be compared, only an equal one shows that the
// server has not gone back.
func TestOpaqueNotTakenUp(t *testing.T) {
	warm(t)
	for _, moved := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sim := kubesim.New(kubesim.Options{})
			if err := sim.StartPipes(); err != nil {
				t.Fatal(err)
			}
			f := fixtureWith(t, sim, 9, clock.RealClock{}, Options{DecodeAll: true, pageSize: 3},
				func(*rest.Config) {}, opaque)
			f.interrupted(2)
			if moved {
				f.other()
			}
			f.sim.ResetRequests()
			f.list()
			if n := f.traffic(); (n.firsts == 1) != moved || n.pages < 1 || len(f.store.ListKeys()) != 9 {
				t.Errorf("moved %v: %+v, %d objects", moved, n, len(f.store.ListKeys()))
			}
		})
	}
}

// TestUnknownClusterNotTakenUp: if the UID of a cluster may not be read, or could not be
// read together with the pages, and it has no CA, the list begins again.
func TestUnknownClusterNotTakenUp(t *testing.T) {
	for i := range 4 {
		other, allowed := i&1 > 0, i&2 > 0
		bubble(t, 9, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3}, func(f *fixture) {
			var allows atomic.Bool // which cluster it is, in the second life
			f.sim.FailNext(func(r *http.Request) bool {
				return !allows.Load() && strings.HasSuffix(r.URL.Path, "/kube-system")
			}, 1<<30,
				kubesim.Answer(apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", errors.New("no"))))
			f.interrupted(2)
			allows.Store(allowed)
			if other {
				f.recreate(1_000_000)
				synctest.Wait() // the client learns that its connection has ended
			}
			f.sim.ResetRequests()
			f.list()
			if n := f.traffic(); n.firsts != 1 {
				t.Errorf("other %v, allowed %v: %+v", other, allowed, n)
			}
			if d := f.differs(); d != "" {
				t.Error(d)
			}
		})
	}
}
