package reflector

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/listing"
)

// asleep leaves a source over n objects in its file, and lets another type change.
func (f *fixture) asleep() {
	f.t.Helper()
	f.list()
	f.other()
	f.restart()
	f.forget()
}

// TestListConfirms: if few objects are cached, a list beside the watch confirms at once.
// The bookmark confirms, too, and the watch goes on. Under HTTP/1 it may do so over the
// connection of the list; then the server is asked once more.
func TestListConfirms(t *testing.T) {
	for _, tc := range []struct {
		confirm Confirm
		lists   int
	}{{ConfirmAuto, 1}, {ConfirmBookmark, 0}, {ConfirmList, 1}} {
		t.Run(fmt.Sprint(tc.confirm), func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, Options{Confirm: tc.confirm}, func(f *fixture) {
				f.asleep()
				at := time.Now()
				f.reflect()
				after(100 * time.Millisecond)
				if f.queue.HasSynced() != (tc.lists > 0) {
					t.Errorf("synced %v", f.queue.HasSynced())
				}
				if st := f.State(); tc.lists > 0 &&
					(!st.Confirmed.Equal(at) || st.Phase != PhaseCatchingUp ||
						st.ResourceVersion == fmt.Sprint(f.sim.Revision())) {
					t.Errorf("confirmed %s, asked %s: %s at %s", st.Confirmed, at, st, st.ResourceVersion)
				}
				after(3 * time.Second)
				if st := f.State(); !f.queue.HasSynced() || st.Phase != PhaseLive || len(st.Relists) > 0 ||
					st.ResourceVersion != fmt.Sprint(f.sim.Revision()) {
					t.Errorf("synced %v, %s", f.queue.HasSynced(), st)
				}
				f.costs("woken", kubesim.Cost{Questions: 1 + tc.lists, FullReads: tc.lists, Watches: 2, Others: 1,
					Bytes: 4000})
				if size := f.store.Upstream.Facts().MetadataSize; size == 0 {
					t.Errorf("an object's metadata has %d bytes", size)
				}
				// Only at a start is it worth a list.
				f.other()
				f.sim.DropConnections()
				after(time.Minute)
				if tc.confirm == ConfirmList {
					return
				}
				f.costs("after a broken link", kubesim.Cost{Questions: 2, Watches: 3, Others: 1, Bytes: 2000})
			})
		})
	}
}

// TestListShowsWhatWasMissed: a list that differs from the file confirms nothing. When
// the watch has brought the difference, it does, before any bookmark.
func TestListShowsWhatWasMissed(t *testing.T) {
	for what, miss := range map[string]func(f *fixture){
		"nothing":   func(*fixture) {},
		"an add":    func(f *fixture) { f.create("new") },
		"an update": func(f *fixture) { f.put("cm1", 10, 1) },
		"a delete":  func(f *fixture) { f.delete("cm1") },
		"another":   func(f *fixture) { f.delete("cm1"); f.create("cm1") },
		"no more":   func(f *fixture) { f.create("new"); f.delete("new") },
		"an add for a delete": func(f *fixture) {
			f.delete("cm1")
			f.create("new")
		},
	} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprint(what, ", held back ", held), func(t *testing.T) {
				bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
					f.list()
					miss(f)
					f.asleep2()
					holding := &atomic.Bool{}
					holding.Store(held)
					f.sim.FailNext(func(r *http.Request) bool {
						return holding.Load() && isWatch(r)
					}, 1<<30, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(http.StatusOK)
						w.(http.Flusher).Flush()
						<-r.Context().Done() // its events are on their way
					})
					f.reflect()
					after(500 * time.Millisecond)
					if want := !held || what == "nothing" || what == "no more"; f.queue.HasSynced() != want {
						t.Errorf("synced %v", !want)
					}
					if f.queue.HasSynced() {
						if diff := f.differs(); diff != "" {
							t.Error(diff)
						}
					}
					holding.Store(false)
					f.sim.DropConnections()
					after(time.Minute)
					if diff := f.differs(); !f.queue.HasSynced() || diff != "" || len(f.State().Relists) > 0 {
						t.Errorf("synced %v, %s, relists %v", f.queue.HasSynced(), diff, f.State().Relists)
					}
				})
			})
		}
	}
}

// asleep2 is asleep for a source that has been listed.
func (f *fixture) asleep2() {
	f.t.Helper()
	f.other()
	f.restart()
	f.forget()
}

// TestListAfterOutage: a source that has waited until the server is back waits for a
// bookmark, too, lest all of them list at once.
func TestListAfterOutage(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.asleep()
		if err := f.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		f.reflect()
		after(time.Minute)
		if err := f.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Minute)
		if c := f.cost(); !f.queue.HasSynced() || c.FullReads > 0 {
			t.Errorf("synced %v, %+v", f.queue.HasSynced(), c)
		}
	})
}

// TestListWithMaxStaleness: a source that counts as synced is compared with a list all the same.
func TestListWithMaxStaleness(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.asleep()
		f.queue.CountAsSynced()
		f.reflect()
		after(10 * time.Second)
		if c := f.cost(); c.FullReads != 1 || f.State().Phase != PhaseLive || f.State().Uncompared {
			t.Errorf("%+v, %s", c, f.State())
		}
	})
}

// TestListNotUnderstood: if metadata cannot be listed, the bookmark confirms.
func TestListNotUnderstood(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{Confirm: ConfirmList}, func(f *fixture) {
		f.asleep()
		f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("resourceVersionMatch") != "" }, 1<<30,
			kubesim.Answer(apierrors.NewBadRequest("no")))
		f.reflect()
		after(500 * time.Millisecond)
		if f.queue.HasSynced() {
			t.Error("synced without a list")
		}
		after(5 * time.Second)
		if st := f.State(); !f.queue.HasSynced() || st.Phase != PhaseLive {
			t.Errorf("synced %v, %s", f.queue.HasSynced(), st)
		}
	})
}

// TestListIsWorthIt: the automatic choice lists if that comes before a bookmark. Otherwise a
// wake takes hardly more bytes than with one.
func TestListIsWorthIt(t *testing.T) {
	for _, tc := range []struct {
		name      string
		objects   int
		bandwidth int // bytes a second
		seen      bool
		early     bool // before the bookmark
		most      int64
	}{
		{"little", 20, 1_000_000, false, true, 64 << 10},
		{"little, and a link of 50 kbit/s", 60, 6_000, true, false, 30 << 10},
		{"much, fast", 1500, 20_000_000, true, true, 3 << 20},
		{"much, fast, never seen", 1500, 20_000_000, false, true, 3 << 20},
		{"much, slow", 1500, 200_000, true, false, 300 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			warm(t)
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				f := fixtureOver(t, sim, 0, clock.RealClock{}, Options{})
				for i := range tc.objects {
					o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
						Name:        fmt.Sprintf("cm%04d", i),
						Annotations: map[string]string{"of": text(uint64(i), 400)}},
						Data: map[string]string{"": text(uint64(i), 600)}}
					if err := f.sim.Create(o); err != nil {
						t.Fatal(err)
					}
				}
				f.list()
				if tc.seen {
					f.store.Upstream.NoteFacts(func(f *listing.Facts) { f.MetadataSize = 640 })
				}
				f.asleep2()
				f.sim.SetBandwidth(tc.bandwidth)
				f.reflect()
				after(900 * time.Millisecond)
				if f.queue.HasSynced() != tc.early {
					t.Errorf("synced early: %v", !tc.early)
				}
				after(5 * time.Second)
				if c := f.cost(); !f.queue.HasSynced() || c.Bytes > tc.most {
					t.Errorf("synced %v, %+v, at most %d bytes", f.queue.HasSynced(), c, tc.most)
				}
			})
		})
	}
}

// TestListCompares: a page counts only if it has the wanted version.
func TestListCompares(t *testing.T) {
	f := newFixture(t, 2)
	f.list()
	for _, tc := range []struct {
		least, rv, before string
		ok                bool
	}{
		{"7", "7", "", true}, {"7", "8", "", true}, {"7", "8", "8", true},
		{"7", "6", "", false}, {"7", "", "", false}, {"7", "x", "", false}, {"7", "9", "8", false},
	} {
		p := &proof{s: f.Reflector, least: tc.least, rv: tc.before, listed: newKeySet()}
		if err := p.compare(nil, metav1.ListMeta{ResourceVersion: tc.rv}); (err == nil) != tc.ok || err != nil &&
			!errors.Is(err, errNotWorth) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	p := &proof{s: f.Reflector, least: "1", listed: newKeySet()}
	many := make([]listing.Object, mostLacking+1)
	if err := p.compare(many, metav1.ListMeta{ResourceVersion: "9"}); !errors.Is(err, errNotWorth) {
		t.Error("so many differences may be kept:", err)
	}
}

// text does not compress well.
func text(seed uint64, n int) string {
	var b bytes.Buffer
	for x := seed*2862933555777941757 + 3037000493; b.Len() < n; x = x*2862933555777941757 + 3037000493 {
		b.WriteByte('!' + byte(x>>33)%90)
	}
	return b.String()
}
