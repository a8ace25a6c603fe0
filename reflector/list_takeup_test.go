package reflector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFirstSyncOverManyLives: a first sync that takes longer than the process lives still
// comes to its end, at about the cost of an uninterrupted one.
func TestFirstSyncOverManyLives(t *testing.T) {
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
						if err := f.sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
							Name: name}}); err != nil && !apierrors.IsNotFound(err) {
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
				if all.bytes > most || all.pages > 2*whole.pages || all.requests > whole.requests+12*lives {
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

// TestServerAwayInTheMiddle: during a first sync, an outage that is longer than the
// retries of a page costs no page that was read.
func TestServerAwayInTheMiddle(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{pageSize: 100}, func(f *fixture) {
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

// TestChangedBetweenLives: changes between two lives to objects that the first has read,
// and to others, are in the file when it counts as synced. The pages count as confirmed
// at the time of the first one's request, until the watch has reached the version that
// the server has stated.
func TestChangedBetweenLives(t *testing.T) {
	for name, forget := range map[string]func(*kubesim.Server){
		"known to the server": func(*kubesim.Server) {}, "tokens expired": (*kubesim.Server).CompactLists,
		"all expired": (*kubesim.Server).Compact,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
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
				if f.queue.HasSynced() || f.queue.Reached() || f.queue.AcceptedVersion() == fmt.Sprint(rv) {
					t.Errorf("at %s, confirmed %v", f.queue.AcceptedVersion(), f.queue.Reached())
				}
				st := f.store.State()
				if consistent := name == "known to the server"; consistent && !st.Confirmed.Equal(began) ||
					!consistent && !st.Confirmed.IsZero() && st.Confirmed.Unix() != 0 {
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

// TestSlowRepair: a repair over a slow link ends before the server forgets its version, since it
// reads metadata, and tells what has changed. Before it, a list of metadata is given up.
func TestSlowRepair(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{}, func(f *fixture) {
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
		after(20 * time.Second)
		if st := f.State(); st.Phase != PhaseRelisting || f.queue.HasSynced() {
			t.Fatal(st)
		}
		if n := len(f.store.ListKeys()); n != objects {
			t.Errorf("%d objects are served meanwhile", n)
		}
		synced := until(f.queue.HasSynced)
		n := f.traffic()
		t.Logf("synced %v after %s, %+v, %s", synced, time.Since(began), n, f.State())
		if !synced || n.firsts != 2 || n.bytes > objects*500 || time.Since(began) > 75*time.Second {
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

// diesBeforeCommit reads all pages of the first list in a life that ends then.
func (f *fixture) diesBeforeCommit() {
	f.t.Helper()
	ctx := f.t.Context()
	if _, err := f.otherCluster(ctx); err != nil {
		f.t.Fatal(err)
	}
	l := f.newLister(ctx, ReasonFirst, &turn{store: f.store})
	var err error
	by := f.cluster.is()
	l.relist, err = f.queue.BeginRelist(ctx, boltstore.RelistOptions{ClusterUID: by.ClusterUID, Server: by.Address})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := l.pages(f.cluster.trace(ctx)); err != nil {
		f.t.Error(err)
	}
	l.relist.Abort() // here it dies
	f.die(func() { f.queue.Close() })
}

// TestAllPagesReadBefore: if only the commit was missing, the last page is requested again.
func TestAllPagesReadBefore(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		f.diesBeforeCommit()
		f.delete("cm1")
		f.sim.ResetRequests()
		f.reflect()
		after(5 * time.Second)
		if n := f.traffic(); n.pages != 1 || !f.queue.HasSynced() {
			t.Errorf("%+v, %s", n, f.State())
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestCameAndWentBeforeTakeUp: handlers are told of a delete that the server made after
// the last page, although it had stated a later version when the list was taken up.
func TestCameAndWentBeforeTakeUp(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		f.diesBeforeCommit()
		f.delete("cm1")
		rv := f.sim.Revision()
		f.create("later")
		f.list()
		// So a watch tells of an object that its selector never let through.
		if err := f.queue.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "brief",
			ResourceVersion: fmt.Sprint(rv)}}); err != nil {
			t.Fatal(err)
		}
		f.reflect()
		after(time.Second)
		if told := f.takeTold(); !strings.Contains(told, "Deleted brief") {
			t.Errorf("told %q", told)
		}
	})
}

// TestTakenUpIsConfirmedSoon: a list that is taken up and then ends soon is
// confirmed as soon as a resume is, although nothing of its type changes.
func TestTakenUpIsConfirmedSoon(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		f.interrupted(2)
		f.other()
		f.reflect()
		after(5 * time.Second)
		if !f.queue.HasSynced() || f.State().Phase != PhaseLive {
			t.Error(f.State())
		}
	})
}
