package reflector

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// listsMetadata says whether the request lists metadata, as it does for callers of WaitForFresh.
func listsMetadata(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/configmaps") &&
		strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") && !isWatch(r)
}

// onSmallLists calls do for each small list before it is sent.
func (f *fixture) onSmallLists(do func(*http.Request)) {
	way := func(r *http.Request) error {
		if listsMetadata(r) {
			do(r)
		}
		return nil
	}
	f.breaks.Store(&way)
}

// fresh is how long a caller of WaitForFresh waits after others have changed.
func (f *fixture) fresh() time.Duration {
	f.t.Helper()
	f.other()
	began := time.Now()
	if err := f.WaitForFresh(f.t.Context(), 0); err != nil {
		f.t.Error(err)
	}
	return time.Since(began)
}

// withoutBookmarks starts a source, and has callers until it knows that its
// server sends no bookmarks.
func (f *fixture) withoutBookmarks() {
	f.t.Helper()
	f.reflect()
	after(30 * time.Second)
	for range 20 {
		f.fresh()
		after(3 * time.Second)
	}
	if !f.link.bookmarkless() {
		f.t.Fatal("bookmarks are still waited for")
	}
}

// TestFreshDuringAList: a caller that comes while a list is on its way for another one gets
// an answer of its own at once, too.
func TestFreshDuringAList(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		// the bubble's clock, which takes no time; without it the list ends before the second
		// caller comes, and no signal says that a request is under way
		f.onSmallLists(func(*http.Request) { time.Sleep(100 * time.Millisecond) }) // on the bubble's clock, see above
		// the list waits for the watch to bring it
		f.put("cm1", 100, 1)
		first := make(chan time.Duration)
		go func() { first <- f.fresh() }()
		after(50 * time.Millisecond)
		if took := f.fresh(); took > 300*time.Millisecond {
			t.Errorf("the second caller waited %s", took)
		}
		if took := <-first; took > 150*time.Millisecond {
			t.Errorf("the first caller waited %s", took)
		}
	})
}

// TestFreshListHangs: a list that does not come keeps nobody waiting for longer than a bookmark
// would, and for some minutes nobody else.
func TestFreshListHangs(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		f.onSmallLists(func(r *http.Request) { <-r.Context().Done() })
		if took := f.fresh(); took > 2*bookmarkAfter+2*time.Second {
			t.Errorf("the first caller waited %s", took)
		}
		after(time.Second)
		if took := f.fresh(); took > 2500*time.Millisecond {
			t.Errorf("the second caller waited %s", took)
		}
	})
}

// TestFreshAfterARefusal: a server that was busy once, or restarted, is asked for small lists
// again some minutes later.
func TestFreshAfterARefusal(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		f.sim.FailNext(listsMetadata, 1, kubesim.Answer(apierrors.NewTooManyRequests("later", 1)))
		asked := 0
		f.onSmallLists(func(*http.Request) { asked++ })
		for range 3 {
			f.fresh()
			after(time.Second)
		}
		if asked != 1 {
			t.Errorf("%d lists at once", asked)
		}
		after(2 * postponed)
		if took := f.fresh(); took > 100*time.Millisecond || asked != 2 {
			t.Errorf("later a caller waited %s, and %d lists were sent", took, asked)
		}
	})
}

// TestFreshByListsOfAnySize: with ConfirmList, whose lists may be large, callers one after the
// other do not cause more lists than bookmarks take.
func TestFreshByListsOfAnySize(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{Confirm: ConfirmList}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		asked := 0
		f.onSmallLists(func(*http.Request) { asked++ })
		began := time.Now()
		for range 20 {
			f.fresh()
			after(time.Millisecond)
		}
		if took := time.Since(began); asked > 2+int(took/time.Second) {
			t.Errorf("%d lists in %s", asked, took)
		}
	})
}

// TestFreshWithoutBookmarks: small lists answer callers also if the server
// sends no bookmarks. Lists of whole objects move the resume point, no more often than after
// failures.
func TestFreshWithoutBookmarks(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		asked := 0
		f.onSmallLists(func(*http.Request) { asked++ })
		slow := 0
		for range 200 {
			if f.fresh() > time.Second {
				slow++
			}
			after(3 * time.Second)
		}
		whole := 0
		for _, n := range f.State().Relists {
			whole += int(n)
		}
		t.Logf("%d small lists, %d relists, %d slow callers, %s", asked, whole, slow, f.State())
		if whole < 5 || whole > 25 || slow > 3 {
			t.Errorf("%d relists, %d callers waited for more than a second", whole, slow)
		}
	})
}

// TestFreshAfterASlowAnswer: after a small list that answered slowly, callers who cannot wait for
// the list that is put off do not have the server asked again and again.
func TestFreshAfterASlowAnswer(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{}, func(f *fixture) {
		f.withoutBookmarks()
		f.sim.FailNext(listsMetadata, 1, func(w http.ResponseWriter, r *http.Request) {
			whole := httptest.NewRecorder()
			f.sim.ServeHTTP(whole, r)
			maps.Copy(w.Header(), whole.Header())
			for b := range slices.Chunk(whole.Body.Bytes(), whole.Body.Len()/4) {
				// the bubble's clock, which takes no time; without it the answer is fast, and it
				// is time that is tested, no signal
				time.Sleep(time.Second) // on the bubble's clock, see above
				if _, err := w.Write(b); err != nil {
					return // the client has given it up
				}
				w.(http.Flusher).Flush()
			}
		})
		f.fresh()
		after(time.Second)
		f.forget()
		for range 200 {
			f.other()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_ = f.WaitForFresh(ctx, 0) // an error says that the list is put off
			cancel()
			after(50 * time.Millisecond)
		}
		if _, watches, _ := f.sent(); watches > 20 {
			t.Errorf("%d watches were opened for 200 callers", watches)
		}
	})
}

// TestFreshCallersWithoutEnd: without bookmarks, callers that come with each question do not
// break off the answer to those before them, which must wait for the watch.
func TestFreshCallersWithoutEnd(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{}, func(f *fixture) {
		f.withoutBookmarks()
		f.fresh()
		var callers sync.WaitGroup
		lists := 0
		f.onSmallLists(func(r *http.Request) {
			if lists++; lists <= 200 {
				// no watch is open, so the list has what the file lacks
				f.put("cm1", 500+lists, 7)
				callers.Go(func() { _ = f.WaitForFresh(t.Context(), 0) }) // an error is the end of the test
			}
			// the bubble's clock, which takes no time; without it the next caller comes after the
			// list, and no signal says that a request is under way
			time.Sleep(10 * time.Millisecond) // on the bubble's clock, see above
		})
		after(time.Second)
		f.other()
		began := time.Now()
		if err := f.WaitForFresh(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("the first caller waited %s, for %d lists", took, lists)
		}
		callers.Wait()
	})
}

// TestFreshListOfABusyServer: a server that takes its time for an answer does not make the link a
// slow one.
func TestFreshListOfABusyServer(t *testing.T) {
	bubble(t, 150, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		// the bubble's clock, which takes no time; without it the answer is fast, and it is time
		// that is tested, no signal
		f.onSmallLists(func(*http.Request) { time.Sleep(200 * time.Millisecond) }) // on the bubble's clock, see above
		for i := range 3 {
			if took := f.fresh(); took > 300*time.Millisecond {
				t.Errorf("caller %d waited %s", i, took)
			}
			after(time.Second)
		}
	})
}
