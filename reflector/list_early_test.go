package reflector

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// pageWatcher is a transport that watches the pages of lists. It notes a page's number when
// its request is sent, and its negative when its answer has been read or closed.
type pageWatcher struct {
	next  http.RoundTripper
	read  func(page int, sofar int) error // before more of a page is read
	send  func(page int)                  // before a page's request is sent
	own   bool                            // the list function has tokens of its own
	odd   bool                            // each of its requests has another parameter
	count int64                           // calls
	calls atomic.Int32                    // of the list function that are under way

	mu    sync.Mutex
	came  sync.Cond      // of order
	pages map[string]int // by continue token
	order []int
}

func (w *pageWatcher) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("limit") == "" || req.URL.Query().Get("fieldSelector") != "" {
		return w.next.RoundTrip(req)
	}
	page := w.note(req.URL.Query().Get("continue"))
	if w.send != nil {
		w.send(page)
	}
	resp, err := w.next.RoundTrip(req)
	if err == nil {
		resp.Body = &watchedPage{ReadCloser: resp.Body, w: w, page: page}
	}
	return resp, err
}

// lists is a source whose list function must not be called twice at a time.
func (w *pageWatcher) lists(t *testing.T, lw cache.ListerWatcher) cache.ListerWatcher {
	from := cache.ToListerWatcherWithContext(lw)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if w.calls.Add(1) > 1 {
				t.Error("the list function is called twice at a time")
			}
			defer w.calls.Add(-1)
			if w.count++; w.odd {
				o.TimeoutSeconds = &w.count
			}
			const prefix = "own "
			own := false
			if o.Continue != "" && w.own {
				if o.Continue, own = strings.CutPrefix(o.Continue, prefix); !own {
					t.Errorf("the list function was given the server's token %q", o.Continue)
				}
			}
			list, err := from.ListWithContext(ctx, o)
			if m, err := meta.ListAccessor(list); err == nil && w.own && m.GetContinue() != "" {
				m.SetContinue(prefix + m.GetContinue())
			}
			return list, err
		},
		WatchFuncWithContext: from.WatchWithContext,
	}
}

func (w *pageWatcher) note(token string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pages == nil {
		w.pages = map[string]int{}
	}
	if w.pages[token] == 0 {
		w.pages[token] = len(w.pages) + 1
	}
	w.order = append(w.order, w.pages[token])
	w.came.Broadcast()
	return w.pages[token]
}

// await waits until the page is asked for.
func (w *pageWatcher) await(page int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !slices.Contains(w.order, page) {
		w.came.Wait()
	}
}

// asked is how often the page was asked for.
func (w *pageWatcher) asked(page int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.order {
		if p == page {
			n++
		}
	}
	return n
}

// together is how many pages were under way at most.
func (w *pageWatcher) together() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, most := 0, 0
	for _, p := range w.order {
		if now++; p < 0 {
			now -= 2
		}
		most = max(most, now)
	}
	return most
}

type watchedPage struct {
	io.ReadCloser
	w     *pageWatcher
	page  int
	sofar int
	over  sync.Once
}

func (p *watchedPage) Read(buf []byte) (int, error) {
	if p.w.read != nil {
		if err := p.w.read(p.page, p.sofar); err != nil {
			return 0, err
		}
	}
	n, err := p.ReadCloser.Read(buf)
	if p.sofar += n; err != nil {
		p.end()
	}
	return n, err
}

func (p *watchedPage) Close() error {
	p.end()
	return p.ReadCloser.Close()
}

func (p *watchedPage) end() {
	p.over.Do(func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.w.order = append(p.w.order, -p.page)
	})
}

// watchPages runs a test over a server of n objects of 20 KB, in pages of three unless
// o has pageBytes.
func watchPages(t *testing.T, n int, so kubesim.Options, o Options, test func(f *fixture, w *pageWatcher)) {
	t.Helper()
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(so)
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		w := &pageWatcher{}
		w.came.L = &w.mu
		if o.pageBytes == 0 {
			o.pageSize = 3
		}
		f := fixtureWith(t, sim, 0, clock.RealClock{}, o, func(cfg *rest.Config) {
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { w.next = rt; return w })
		}, func(lw cache.ListerWatcher) cache.ListerWatcher { return w.lists(t, lw) })
		for i := range n {
			f.put(fmt.Sprintf("cm%04d", i), 20_000, uint64(i))
		}
		test(f, w)
	})
}

// TestNextPageIsAskedForEarly: while a page comes, the next one is asked for, and none
// beyond it. The first two pages show how large and how quick pages are.
func TestNextPageIsAskedForEarly(t *testing.T) {
	watchPages(t, 30, kubesim.Options{HTTP2: true}, Options{}, func(f *fixture, w *pageWatcher) {
		w.read = func(page, sofar int) error {
			if sofar > mostHead && page >= 2 && page < 10 {
				w.await(page + 1)
			}
			return nil
		}
		f.list()
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		if n := w.together(); n != 2 || len(w.order) != 20 {
			t.Errorf("%d pages at once: %v", n, w.order)
		}
	})
}

// TestPagesInTurn: pages are asked for one after the other on a slow link, over HTTP/1.1,
// and where answers are not seen or are compared with the file.
func TestPagesInTurn(t *testing.T) {
	for name, c := range map[string]struct {
		so    kubesim.Options
		o     Options
		setup func(f *fixture)
	}{
		"a slow link": {so: kubesim.Options{HTTP2: true}, setup: func(f *fixture) { f.sim.SetBandwidth(10_000) }},
		"HTTP/1.1":    {},
		"decoded":     {so: kubesim.Options{HTTP2: true}, o: Options{DecodeAll: true}},
		"own tokens":  {so: kubesim.Options{HTTP2: true}},
		"a repair": {so: kubesim.Options{HTTP2: true}, o: Options{repair: listFull}, setup: func(f *fixture) {
			f.list()
			f.forget()
			f.link.expired()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			watchPages(t, 30, c.so, c.o, func(f *fixture, w *pageWatcher) {
				w.own = name == "own tokens"
				if c.setup != nil {
					c.setup(f)
				}
				w.mu.Lock()
				w.order = nil
				w.mu.Unlock()
				if name == "a repair" {
					f.watch()
				} else {
					f.list()
				}
				if d := f.differs(); d != "" {
					t.Error(d)
				}
				if n := w.together(); n != 1 || len(w.order) < 20 {
					t.Errorf("%d pages at once: %v", n, w.order)
				}
			})
		})
	}
}

// TestEarlyPageAfterABreak: a page breaks off after the next one was asked for. Both are
// asked for again, and the list has every object once.
func TestEarlyPageAfterABreak(t *testing.T) {
	for _, broken := range []int{2, 5, 9, 10} {
		watchPages(t, 30, kubesim.Options{HTTP2: true}, Options{}, func(f *fixture, w *pageWatcher) {
			var once sync.Once
			w.read = func(page, sofar int) (err error) {
				if page == broken && sofar > mostHead {
					once.Do(func() {
						if page < 10 {
							w.await(page + 1)
						}
						err = io.ErrUnexpectedEOF
					})
				}
				return err
			}
			f.list()
			if d := f.differs(); d != "" {
				t.Error(d)
			}
			if n := w.asked(broken); n != 2 {
				t.Errorf("page %d was asked for %d times: %v", broken, n, w.order)
			}
			if n := w.asked(broken + 1); broken < 10 && n > 2 {
				t.Errorf("page %d was asked for %d times: %v", broken+1, n, w.order)
			}
		})
	}
}

// TestEarlyPageOfNoUse: if the list function's request is another one than was sent early,
// the rest of the list is asked for in turn.
func TestEarlyPageOfNoUse(t *testing.T) {
	watchPages(t, 30, kubesim.Options{HTTP2: true}, Options{}, func(f *fixture, w *pageWatcher) {
		w.odd = true
		w.read = func(page, sofar int) error {
			if page == 2 && sofar > mostHead {
				w.await(3)
			}
			return nil
		}
		f.list()
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		for page := 1; page <= 10; page++ {
			if n := w.asked(page); n > 1 && page != 3 || n != 2 && page == 3 {
				t.Errorf("page %d was asked for %d times: %v", page, n, w.order)
			}
		}
	})
}
