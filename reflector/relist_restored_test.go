package reflector

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestRestoredBetweenListAndWatch: a watch from a version ahead of the server would hang
// without an error, and the list's version was the server's only until its connection
// broke.
func TestRestoredBetweenListAndWatch(t *testing.T) {
	f := newFixture(t, 4)
	then := f.sim.Revision()
	f.create("lost")
	f.list()
	f.cost()
	if err := f.sim.Rewind(then); err != nil {
		t.Fatal(err)
	}
	f.watch()
	if rv := f.queue.AcceptedVersion(); rv != fmt.Sprint(then) {
		t.Fatalf("at %s", rv)
	}
	if diff := f.differs(); diff != "" || f.State().Relists[ReasonRestored] != 1 {
		t.Fatalf("%s, %+v", diff, f.State())
	}
	f.costs("in all", kubesim.Cost{Questions: 2, FullReads: 2, Watches: 2, Others: 2, Forms: 2, Bytes: 2600})
}

// TestRestoreIsRemembered: a relist that fails does not make the server's
// version, once it has overtaken the file's, good enough.
func TestRestoreIsRemembered(t *testing.T) {
	f := newFixture(t, 10)
	f.list()
	if err := f.sim.Rewind(f.sim.Revision() - 3); err != nil {
		t.Fatal(err)
	}
	f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("limit") == "3" }, 1,
		kubesim.Answer(apierrors.NewInternalError(fmt.Errorf("starting"))))
	if _, err := f.open(t.Context(), nil); err == nil {
		t.Fatal("the relist did not fail")
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.create(name)
	}
	f.clock.Step(time.Hour)
	f.cost()
	f.list()
	f.watch()
	if diff := f.differs(); diff != "" {
		t.Fatal(diff)
	}
	f.costs("in all", kubesim.Cost{FullReads: 4, Watches: 1, Others: 1, Forms: 2, Bytes: 3600})
}

// TestExpiredAndRestored: a server that has gone back, and is listed for another reason
// before its version was asked for, is noticed by the list. Content is compared then, as
// versions mean something else.
func TestExpiredAndRestored(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{pageSize: 2}, func(f *fixture) {
		then := f.sim.Revision()
		f.put("cm1", 10, 1)
		f.create("lost")
		f.list()
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		f.put("cm1", 10, 2) // the same object and version, and another content
		f.link.expired()
		f.cost()
		f.watch()
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		f.costs("in all", kubesim.Cost{FullReads: 4, Watches: 1, Others: 2, Forms: 2, Bytes: 2800}) // two lists
		if st := f.State(); st.Relists[ReasonRestored] != 1 || st.Relists[ReasonExpired] != 0 {
			t.Errorf("%v", st.Relists)
		}
		if st := f.store.State(); st.Timeline != 1 {
			t.Errorf("timeline %d", st.Timeline)
		}
	})
}

// TestRestoredAndDamaged: the restore is not forgotten if something else leads to the
// relist.
func TestRestoredAndDamaged(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		then := f.sim.Revision()
		f.put("cm1", 10, 1)
		f.list()
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		f.put("cm1", 10, 2)
		f.link.restored()
		f.link.expired() // both have been noticed, and neither cured
		f.cost()
		if err := f.relist(t.Context(), ReasonDamaged); err != nil {
			t.Fatal(err)
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		f.costs("in all", kubesim.Cost{FullReads: 1, Others: 1, Forms: 2, Bytes: 1500})
		f.watch()
		f.costs("what the relist has cured", kubesim.Cost{Watches: 1})
	})
}

// TestRestoredBetweenPages: a server that goes back while a list is read is noticed at
// the next page, whether that page has the list's version or the one that the server
// offers in its place.
func TestRestoredBetweenPages(t *testing.T) {
	for name, tc := range map[string]struct{ repair, expired bool }{
		"first list": {}, "repair": {repair: true}, "first list, expired": {expired: true},
		"repair, expired": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
				var then uint64
				var pages atomic.Int64
				f.sim.OnRequest = func(r *http.Request) {
					if r.URL.Query().Get("limit") != "3" {
						return
					}
					switch pages.Add(1) {
					case 2:
						if tc.expired {
							f.delete("cm8") // of later
							f.sim.CompactLists()
						}
					case 3:
						if err := f.sim.Rewind(then); err != nil {
							t.Error(err)
						}
					}
				}
				if tc.repair {
					pages.Store(-3)
					f.list()
					pages.Store(0)
				}
				then = f.sim.Revision()
				f.create("cm0a")
				f.create("cm1a")
				if tc.repair {
					f.sim.Compact()
				}
				f.reflect()
				after(time.Minute)
				if d := f.differs(); d != "" || f.State().Phase != PhaseLive {
					t.Errorf("%s, %s", d, f.State())
				}
				n, lists := f.traffic(), 2
				if tc.repair {
					lists = 3
					if told := f.takeTold(); told != "" {
						t.Errorf("told %s", told)
					}
				}
				// The client itself tries ten times.
				if n.firsts != lists || n.pages > 20 || f.State().Relists[ReasonRestored] != 1 {
					t.Errorf("%+v, %v", n, f.State().Relists)
				}
			})
		})
	}
}

// TestRestoredBehindTheList: a list has confirmed a source whose watch has not come so far. A
// server that is behind that list is a restored one, even if it is not behind the watch: what
// the watch has brought is then no longer a change from before the list, which readers do not see.
func TestRestoredBehindTheList(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		f.create("new")
		then := f.sim.Revision()
		created := f.event("ADDED", "new")
		f.delete("new")
		f.asleep2()
		f.lateWatch(500*time.Millisecond, created)
		f.reflect()
		after(time.Second)
		if !f.queue.HasSynced() || f.queue.AcceptedVersion() != fmt.Sprint(then) {
			t.Fatalf("not confirmed by a list beside the watch: %s, accepted %s of %d, %v", f.State(),
				f.queue.AcceptedVersion(), then, f.queue.HasSynced())
		}
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		if !until(func() bool { return f.State().Confirmed.After(back) }) {
			t.Fatal("not confirmed again")
		}
		if d := f.differs(); d != "" {
			t.Errorf("%s: %s", d, f.State())
		}
	})
}
