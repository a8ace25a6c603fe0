package reflector

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestWaitForFresh: at once if it is fresh enough; else for a question, and a list beside the
// watch if the server has moved on, or a short watch if bytes matter more; for a server
// without bookmarks a full list; never by itself without a server.
func TestWaitForFresh(t *testing.T) {
	for _, tc := range []struct {
		name    string
		so      kubesim.Options
		maxAge  time.Duration
		other   bool
		confirm Confirm
		most    time.Duration
		lists   int
		watches int
		full    int
	}{
		{"fresh enough", kubesim.Options{}, time.Minute, true, ConfirmAuto, 0, 0, 0, 0},
		{"nothing has happened", kubesim.Options{}, 0, false, ConfirmAuto, 0, 1, 1, 0},
		{"others have changed", kubesim.Options{}, 0, true, ConfirmAuto, calm, 1, 1, 1},
		{"others have changed, bookmarks", kubesim.Options{}, 0, true, ConfirmBookmark, 2 * time.Second, 1, 1, 0},
		{"without bookmarks", kubesim.Options{NoBookmarks: true}, 0, true, ConfirmBookmark, 8 * time.Second, 3, 3, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, 3, tc.so, Options{Confirm: tc.confirm}, func(f *fixture) {
				f.reflect()
				after(30 * time.Second)
				f.sent()
				if tc.other {
					f.other()
				}
				began := time.Now()
				done := make(chan error, 3)
				for range 3 { // together they cost no more than one
					go func() { done <- f.WaitForFresh(context.Background(), tc.maxAge) }()
				}
				for range 3 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if d := time.Since(began); d > tc.most {
					t.Errorf("took %s", d)
				}
				if lists, watches, full := f.sent(); lists != tc.lists || watches > tc.watches || full != tc.full {
					t.Errorf("%d questions, %d watches, %d full reads", lists, watches, full)
				}
				if age, ok := f.State().Age(time.Now()); !ok || age > time.Since(began)+tc.maxAge {
					t.Errorf("age %s", age)
				}
			})
		})
	}
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		if err := f.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := f.WaitForFresh(ctx, time.Minute); err != nil {
			t.Error("a minute old is good enough: ", err)
		}
		if err := f.WaitForFresh(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestFreshAgain: callers that come one after the other, as of a program that reads before
// each write, each get an answer of their own at once. The watch that
// catches up does not keep them waiting. If the server shows no metadata, they wait for
// bookmarks, and only the first one asks for a list.
func TestFreshAgain(t *testing.T) {
	for name, refuses := range map[string]bool{"lists": false, "no metadata": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
				f.reflect()
				after(30 * time.Second)
				asked := 0
				f.sim.FailNext(func(r *http.Request) bool {
					list := strings.HasSuffix(r.URL.Path, "/configmaps") &&
						strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") && !isWatch(r)
					if list {
						asked++
					}
					return list && refuses
				}, 1<<30, code(http.StatusNotAcceptable))
				for i := range 5 {
					f.put("cm1", 100+i, 1)
					f.other()
					after(time.Millisecond) // the bubble's clock stands still otherwise, and calls would be at one time
					began := time.Now()
					if err := f.WaitForFresh(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); (took > 100*time.Millisecond) != refuses {
						t.Errorf("caller %d waited %s", i, took)
					}
					if diff := f.differs(); diff != "" {
						t.Error(diff)
					}
				}
				if want := map[bool]int{false: 5, true: 1}[refuses]; asked != want {
					t.Errorf("%d lists, not %d", asked, want)
				}
				after(5 * time.Second)
				if st := f.State(); st.Phase != PhaseLive || st.Relists[ReasonFirst] != 1 || len(st.Relists) > 1 {
					t.Error(st, st.Relists)
				}
			})
		})
	}
}

// TestFreshWithoutAnEnd: while callers come twice a second for minutes, the resume point moves
// on all the same, as bookmarks move it: it must not expire.
func TestFreshWithoutAnEnd(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		waited := 0
		for began := time.Now(); time.Since(began) < 5*time.Minute; after(500 * time.Millisecond) {
			f.other()
			at := time.Now()
			if err := f.WaitForFresh(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			if time.Since(at) > 100*time.Millisecond {
				waited++
			}
			rv, err := strconv.ParseUint(f.queue.AcceptedVersion(), 10, 64)
			if behind := f.sim.Revision() - rv; err != nil || behind > 2*60+10 {
				t.Fatalf("the resume point is %d versions behind after %s, %v", behind, time.Since(began), err)
			}
		}
		if waited > 20 {
			t.Errorf("%d callers waited for bookmarks", waited)
		}
	})
}

// TestFreshOfAnEarlierLife: a confirmation in an earlier life stays fresh for as long,
// without a server. A source that must first be listed is not fresh.
func TestFreshOfAnEarlierLife(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		end := f.live()
		after(time.Second)
		if err := f.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Minute)
		end()
		f.restart()
		f.reflect()
		fresh := func(maxAge time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return f.WaitForFresh(ctx, maxAge)
		}
		if err := fresh(time.Hour); err != nil {
			t.Error("ten minutes old is good enough: ", err)
		}
		for _, maxAge := range []time.Duration{0, 5 * time.Minute} {
			if err := fresh(maxAge); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", maxAge, err)
			}
		}
		f.store.SetTransformVersion("another")
		if err := fresh(time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("it cannot be read, and is fresh: ", err)
		}
	})
}

// TestFreshSinceTheCall: an answer to a question that was sent before the call counts as
// from before the call, however late it comes.
func TestFreshSinceTheCall(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		var hold atomic.Pointer[chan struct{}]
		f := fixtureWith(t, sim, 3, clock.RealClock{}, Options{}, func(*rest.Config) {},
			func(lw cache.ListerWatcher) cache.ListerWatcher {
				inner := cache.ToListerWatcherWithContext(lw)
				return &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						list, err := inner.ListWithContext(ctx, o)
						if held := hold.Load(); held != nil {
							<-*held
						}
						return list, err
					},
					WatchFuncWithContext: inner.WatchWithContext,
				}
			})
		f.reflect()
		after(30 * time.Second)
		held := make(chan struct{})
		hold.Store(&held)
		f.sim.DropConnections()
		after(5 * time.Second) // the server has answered
		f.create("mine")
		done := make(chan error, 1)
		go func() { done <- f.WaitForFresh(context.Background(), 0) }()
		after(time.Second)
		hold.Store(nil)
		close(held)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, ok, err := f.store.GetByKey("default/mine"); !ok || err != nil {
			t.Errorf("what was written before the call cannot be read: %v", err)
		}
	})
}

// TestReadYourWrites: after the wait the write can be read.
func TestReadYourWrites(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		for range 20 {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "mine-"}}
			if err := f.sim.Create(o); err != nil {
				t.Fatal(err)
			}
			if err := f.WaitForVersion(f.t.Context(), o.ResourceVersion); err != nil {
				t.Fatal(err)
			}
			if _, ok, err := f.store.GetByKey("default/" + o.Name); !ok || err != nil {
				t.Fatalf("%s cannot be read: %v", o.Name, err)
			}
		}
	})
}

// TestUnstoredObjectShowsInState: an object that cannot be stored is told by the state until
// everything has been read again.
func TestUnstoredObjectShowsInState(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		if err := f.queue.Add("no object"); err == nil {
			t.Fatal("stored")
		}
		if st := f.State(); st.Degraded == "" || st.Failed != 1 {
			t.Errorf("%#v", st)
		}
		f.link.expired()
		f.watch()
		if st := f.State(); st.Degraded != "" || st.Failed != 1 || st.LastRelist != ReasonExpired ||
			st.LastRelistAt.IsZero() {
			t.Errorf("%#v", st)
		}
	})
}

// TestFreshOfTheFuture: a maxAge below 0, as of a time that has passed, is 0. It once
// made every later caller wait until that future time, while the server was asked in a
// loop.
func TestFreshOfTheFuture(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		f.sent()
		for _, maxAge := range []time.Duration{-time.Hour, 0} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := f.WaitForFresh(ctx, maxAge); err != nil {
				t.Error(maxAge, err)
			}
			f.other()
		}
		after(time.Minute)
		if lists, watches, full := f.sent(); lists > 2 || watches > 3 || full != 0 {
			t.Errorf("%d questions, %d watches, %d full reads", lists, watches, full)
		}
	})
}
