package reflector

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestEarlyPageFails: a page that was asked for early is tried again as any other. If its
// token has expired, the rest is read in its present state.
func TestEarlyPageFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		asked  int
	}{
		"busy":    {kubesim.Answer(apierrors.NewTooManyRequests("later", 1)), 2},
		"broken":  {kubesim.Answer(apierrors.NewInternalError(errors.New("no"))), 2},
		"expired": {kubesim.Answer(apierrors.NewResourceExpired("gone")), 1}, // and then all pages in one
	} {
		t.Run(name, func(t *testing.T) {
			watchPages(t, 30, kubesim.Options{HTTP2: true}, Options{}, func(f *fixture, w *pageWatcher) {
				rest := 5
				f.sim.FailNext(func(r *http.Request) bool {
					if r.URL.Query().Get("continue") != "" {
						rest--
					}
					return rest == 0
				}, 1, c.answer)
				f.list()
				if d := f.differs(); d != "" {
					t.Error(d)
				}
				if w.asked(6) != c.asked {
					t.Errorf("not asked for %d times: %v", c.asked, w.order)
				}
			})
		})
	}
}

// holdPage lets nobody read more than the head of a page until held is closed.
func (w *pageWatcher) holdPage(n int) (held chan struct{}) {
	held = make(chan struct{})
	w.read = func(page, sofar int) error {
		if page == n && sofar > mostHead {
			<-held
		}
		return nil
	}
	return held
}

// TestEarlyPageIsGivenUp: a source that ends leaves no request behind.
func TestEarlyPageIsGivenUp(t *testing.T) {
	watchPages(t, 30, kubesim.Options{HTTP2: true}, Options{}, func(f *fixture, w *pageWatcher) {
		held := w.holdPage(4)
		end := f.live()
		after(time.Second)
		if !slices.Contains(w.order, 5) {
			t.Fatalf("page 5 was not asked for: %v", w.order)
		}
		end()
		close(held)
		synctest.Wait()
		if n := w.asked(6); n > 0 {
			t.Errorf("page 6 was asked for %d times", n)
		}
	})
}

// TestEarlyPageOfADeafTransport: a source ends although the transport beneath, as one that
// renews its token first, does not notice that an early request was given up. Its later
// answer is dropped.
func TestEarlyPageOfADeafTransport(t *testing.T) {
	watchPages(t, 30, kubesim.Options{HTTP2: true}, Options{}, func(f *fixture, w *pageWatcher) {
		held := w.holdPage(4)
		w.send = func(page int) {
			if page == 5 {
				<-held
			}
		}
		end := f.live()
		after(time.Second)
		ended := make(chan struct{})
		go func() { defer close(ended); end() }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the source waits for a request that it gave up")
		}
		close(held)
		<-ended
		synctest.Wait()
		if n := w.asked(5); n != 1 {
			t.Errorf("page 5 was asked for %d times: %v", n, w.order)
		}
	})
}
