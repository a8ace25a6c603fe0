package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// die ends this life of the process in the midst of what it does, and begins
// another.
func (f *fixture) die(end func()) {
	f.t.Helper()
	end()
	f.store.Release()
	f.claim()
}

// traffic sums up what pages and everything else took, and in how many lists.
type traffic struct {
	firsts, pages, requests int
	bytes                   int64
}

func (f *fixture) traffic() (n traffic) {
	for _, r := range f.sim.Requests() {
		n.bytes += r.BodyBytes
		n.requests++
		if r.Verb == "list" && r.Query.Get("limit") != "1" {
			n.pages++
			if r.Query.Get("continue") == "" {
				n.firsts++
			}
		}
	}
	return n
}

// slow fills a server with n objects of which nothing compresses, behind a link
// of 50 kbit/s.
func (f *fixture) slow(n int) {
	for i := range n {
		f.put(fmt.Sprintf("cm%04d", i), 1500, uint64(i))
	}
	f.sim.SetBandwidth(50_000 / 8)
}

// until waits for something, an hour at most, and says whether it came.
func until(come func() bool) bool {
	for began := time.Now(); time.Since(began) < time.Hour; {
		if come() {
			return true
		}
		after(5 * time.Second)
	}
	return come()
}

// TestFirstSyncOfManyLives: a first sync that takes longer than the process
// lives ends all the same. What it costs is about what one that is not
// interrupted does.
func TestFirstSyncOfManyLives(t *testing.T) {
	const objects, life = 1000, 100 * time.Second
	var whole traffic
	bubble(t, 0, kubesim.Options{}, Options{}, func(f *fixture) {
		f.slow(objects)
		f.reflect()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		whole = f.traffic()
		t.Logf("not interrupted: %+v", whole)
	})
	for name, tc := range map[string]struct {
		every func(*kubesim.Server) // 75 s
		again bool                  // all has to be read again, once
	}{
		"history is kept":       {func(*kubesim.Server) {}, false},
		"continue tokens end":   {(*kubesim.Server).CompactLists, false},
		"the watch's ends, too": {(*kubesim.Server).Compact, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 0, kubesim.Options{}, Options{}, func(f *fixture) {
				f.slow(objects)
				f.every(75*time.Second, func(int) { tc.every(f.sim) })
				f.every(10*time.Second, func(i int) {
					switch name := fmt.Sprintf("cm%04d", (i*37)%objects); i % 3 {
					case 0:
						f.put(name, 100, uint64(i))
					case 1:
						if err := f.sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil && !apierrors.IsNotFound(err) {
							t.Error(err)
						}
					default:
						f.put(fmt.Sprint("new", i), 100, uint64(i))
					}
				})
				lives := 1
				for began := time.Now(); ; lives++ {
					end := f.live()
					after(life)
					if f.store.State().Synced || time.Since(began) > time.Hour {
						f.t.Cleanup(end)
						break
					}
					if n := len(f.store.ListKeys()); n != 0 || f.queue.HasSynced() {
						t.Fatalf("%d objects are served of a list that has not ended", n)
					}
					f.die(end)
				}
				first := f.traffic()
				synced := until(f.queue.HasSynced)
				all := f.traffic()
				t.Logf("%d lives, synced %v, %+v, in all %+v, %v", lives, synced, first, all, f.State())
				if !synced || lives < 3 || first.firsts != 1 && !tc.again {
					t.Errorf("%d lists were begun", first.firsts)
				}
				most := whole.bytes * 13 / 10
				if tc.again {
					most += whole.bytes
				}
				if all.bytes > most || all.pages > 2*whole.pages || all.requests > whole.requests+10*lives {
					t.Errorf("%+v, not interrupted %+v", all, whole)
				}
				after(3 * time.Second)
				if d := f.differs(); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// TestServerAwayInTheMiddle: a server that is away for longer than a page is
// tried again costs no page that was read, in a first sync.
func TestServerAwayInTheMiddle(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{PageSize: 100}, func(f *fixture) {
		f.slow(1000)
		f.reflect()
		after(2 * time.Minute)
		if err := f.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		f.sim.DropConnections()
		before := f.traffic().pages
		after(pagePatience + 5*time.Minute)
		if st := f.State(); st.Phase != PhaseOffline || f.store.State().Synced {
			t.Fatal(st)
		}
		if err := f.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		n := f.traffic()
		t.Logf("%+v, %d pages before", n, before)
		if n.firsts != 1 || n.pages > 12 || before < 4 {
			t.Errorf("%+v", n)
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestChangedBetweenLives: what happens between two lives to objects that the
// first has read, and to others, is in the file once it counts as synced. What
// was read is confirmed as of when its first page was asked for, until the
// watch has come to what the server has stated.
func TestChangedBetweenLives(t *testing.T) {
	for name, forget := range map[string]func(*kubesim.Server){
		"known to the server": func(*kubesim.Server) {}, "tokens expired": (*kubesim.Server).CompactLists, "all expired": (*kubesim.Server).Compact,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{PageSize: 3}, func(f *fixture) {
				began := time.Now()
				f.interrupted(1)
				f.delete("cm1") // has been read
				f.put("cm0", 10, 1)
				f.delete("cm7") // not yet
				f.put("cm8", 10, 1)
				f.create("cm00")
				f.create("cm99")
				forget(f.sim)
				after(time.Hour)
				f.sim.ResetRequests()
				rv := f.sim.Revision()
				f.create("later")
				f.list()
				if n := f.traffic(); n.firsts != 0 || n.pages < 2 {
					t.Errorf("%+v", n)
				}
				if f.queue.HasSynced() || f.queue.Reached() || f.queue.Accepted() == fmt.Sprint(rv) {
					t.Errorf("at %s, confirmed %v", f.queue.Accepted(), f.queue.Reached())
				}
				st := f.store.State()
				if consistent := name == "known to the server"; consistent && !st.Confirmed.Equal(began) || !consistent && !st.Confirmed.IsZero() && st.Confirmed.Unix() != 0 {
					t.Errorf("confirmed %s, it began %s", st.Confirmed, began)
				}
				f.reflect()
				after(5 * time.Second)
				if d := f.differs(); d != "" || !f.queue.HasSynced() || f.State().Phase != PhaseLive {
					t.Error(d, f.State())
				}
				if n := f.traffic(); (n.firsts > 0) != (name == "all expired") {
					t.Errorf("%+v", n)
				}
			})
		})
	}
}

// interrupted reads n pages of three and ends the life.
func (f *fixture) interrupted(n int) {
	f.t.Helper()
	var pages atomic.Int64
	var over atomic.Bool
	f.sim.FailNext(func(r *http.Request) bool {
		return !over.Load() && r.URL.Query().Get("limit") == "3" && pages.Add(1) > int64(n)
	}, 1000, nil)
	end := f.live()
	after(30 * time.Second)
	over.Store(true)
	f.die(end)
	if f.store.State().Synced {
		f.t.Fatal("it was not interrupted")
	}
}

// TestNotTakenUp: where the server does not go on with what was read, or is
// another one by now, a list begins anew and shows nothing of what was.
func TestNotTakenUp(t *testing.T) {
	gone := func(f *fixture, with *apierrors.StatusError) {
		f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }, 1, kubesim.Answer(with))
	}
	for name, tc := range map[string]struct {
		before func(f *fixture)
		anew   bool
		tried  bool // the server was asked for the next page
	}{
		"nothing":            {func(*fixture) {}, false, true},
		"expired, no rest":   {func(f *fixture) { gone(f, apierrors.NewResourceExpired("gone")) }, true, true},
		"expired, with rest": {func(f *fixture) { f.create("another"); f.sim.CompactLists() }, false, true},
		"invalid":            {func(f *fixture) { gone(f, apierrors.NewBadRequest("continue key is not valid")) }, true, true},
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
			bubble(t, 9, kubesim.Options{}, Options{PageSize: 3}, func(f *fixture) {
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

// TestPurgeOfAnInterruptedList: what the server refuses does not stay, not even
// unseen.
func TestPurgeOfAnInterruptedList(t *testing.T) {
	for _, o := range []OnDenied{DeniedKeep, DeniedPurge} {
		bubble(t, 9, kubesim.Options{}, Options{PageSize: 3, OnDenied: o}, func(f *fixture) {
			f.interrupted(2)
			refused := f.refuse(refusals["403"])
			refused.Store(true)
			f.reflect()
			after(5 * time.Minute)
			refused.Store(false)
			f.sim.ResetRequests()
			after(5 * time.Minute)
			if n := f.traffic(); (n.firsts == 1) != (o == DeniedPurge) || !f.queue.HasSynced() {
				t.Errorf("%v: %+v", o, n)
			}
			if d := f.differs(); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestSlowRepair: a repair that takes many times as long as the server keeps its
// history ends, with one pass over the objects, and tells what has changed.
func TestSlowRepair(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{Repair: RepairFull}, func(f *fixture) {
		const objects = 1000
		for i := range objects {
			f.put(fmt.Sprintf("cm%04d", i), 1500, uint64(i))
		}
		end := f.live()
		after(10 * time.Second)
		if !f.queue.HasSynced() {
			t.Fatal("not synced")
		}
		end()
		f.store.Release()
		f.delete("cm0001")
		f.put("cm0002", 1500, 5000)
		f.create("cm0002a")
		f.sim.Compact()
		f.sim.ResetRequests()
		f.sim.SetBandwidth(50_000 / 8)
		f.claim()
		f.takeTold()
		f.every(75*time.Second, func(int) { f.sim.Compact() })
		f.every(10*time.Second, func(i int) {
			if i%2 == 0 {
				f.put(fmt.Sprintf("cm%04d", (i*37)%objects), 100, uint64(i))
			} else {
				f.put(fmt.Sprint("new", i), 100, uint64(i))
			}
		})
		f.reflect()
		began := time.Now()
		after(time.Minute)
		if st := f.State(); st.Phase != PhaseRelisting || f.queue.HasSynced() {
			t.Fatal(st)
		}
		if n := len(f.store.ListKeys()); n != objects {
			t.Errorf("%d objects are served meanwhile", n)
		}
		synced := until(f.queue.HasSynced)
		n := f.traffic()
		t.Logf("synced %v after %s, %+v, %s", synced, time.Since(began), n, f.State())
		if !synced || n.firsts != 1 || n.bytes > objects*(1500+350)*6/5 || time.Since(began) < 3*time.Minute {
			t.Errorf("%+v", n)
		}
		after(3 * time.Second)
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		told := strings.Split(f.takeTold(), ", ")
		for _, want := range []string{"Deleted cm0001", "Updated cm0002", "Added cm0002a"} {
			if !slices.Contains(told, want) {
				t.Errorf("%s was not told: %.300v", want, told)
			}
		}
	})
}

// TestAllPagesReadBefore: where only the commit was missing no page is asked
// for again.
func TestAllPagesReadBefore(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{PageSize: 3}, func(f *fixture) {
		if _, err := f.otherCluster(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := f.newLister(t.Context(), ReasonFirst, &turn{db: f.store.DB()})
		var err error
		l.relist, err = f.queue.BeginRelist(t.Context(), boltstore.RelistOptions{ClusterUID: f.cluster.uid(), Server: f.o.Server})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.pages(t.Context()); err != nil {
			t.Error(err)
		}
		l.relist.Abort() // here it dies
		f.die(func() { f.queue.Close() })
		f.delete("cm1")
		f.sim.ResetRequests()
		f.reflect()
		after(5 * time.Second)
		if n := f.traffic(); n.pages != 0 || !f.queue.HasSynced() {
			t.Errorf("%+v, %s", n, f.State())
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestOpaqueNotTakenUp: of versions that cannot be compared only the same one
// tells that the server has not gone back.
func TestOpaqueNotTakenUp(t *testing.T) {
	warm(t)
	for _, moved := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sim := kubesim.New(kubesim.Options{})
			if err := sim.StartPipes(); err != nil {
				t.Fatal(err)
			}
			f := fixtureWith(t, sim, 9, clock.RealClock{}, Options{Compare: CompareDecoded, PageSize: 3}, func(*rest.Config) {}, opaque)
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

// TestUnknownClusterNotTakenUp: where the UID of a cluster may not be read its
// flow schema must be the same.
func TestUnknownClusterNotTakenUp(t *testing.T) {
	for _, other := range []bool{false, true} {
		bubble(t, 9, kubesim.Options{InitialRV: 1000}, Options{PageSize: 3}, func(f *fixture) {
			f.sim.FailNext(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/kube-system") }, 1<<30,
				kubesim.Answer(apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", errors.New("no"))))
			f.interrupted(2)
			if other {
				f.recreate(1_000_000)
			}
			f.sim.ResetRequests()
			f.list()
			if n := f.traffic(); (n.firsts == 1) != other || n.pages != 1 {
				t.Errorf("other %v: %+v", other, n)
			}
			if d := f.differs(); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestTakenUpIsConfirmedSoon: a list that is taken up and then ends soon is
// confirmed as soon as a resume is, although nothing of its type changes.
func TestTakenUpIsConfirmedSoon(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{PageSize: 3}, func(f *fixture) {
		f.interrupted(2)
		f.other()
		f.reflect()
		after(5 * time.Second)
		if !f.queue.HasSynced() || f.State().Phase != PhaseLive {
			t.Error(f.State())
		}
	})
}
