package reflector

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/kubesim"
)

const (
	mediaProto = "application/vnd.kubernetes.protobuf"
	mediaJSON  = "application/json"
)

// rawFixture counts what its client decodes of lists, but not of the questions
// for the version.
type rawFixture struct {
	*fixture
	mu      sync.Mutex
	decoded int
}

// ListWithContext of the fixture's client.
type countedLists struct {
	cache.ListerWatcherWithContext
	f *rawFixture
}

func (c countedLists) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := c.ListerWatcherWithContext.ListWithContext(ctx, o)
	if err == nil && o.Limit != 1 { // that asks for the version
		c.f.mu.Lock()
		c.f.decoded += meta.LenList(list)
		c.f.mu.Unlock()
	}
	return list, err
}

func (c countedLists) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), o)
}

func (c countedLists) List(o metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), o)
}

func newRawFixture(t *testing.T, media string, n int, o Options, setup ...func(*rest.Config)) *rawFixture {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	f := &rawFixture{}
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	f.fixture = fixtureWith(t, sim, n, clk, o, func(cfg *rest.Config) {
		cfg.ContentType, cfg.AcceptContentTypes = media, media
		for _, s := range setup {
			s(cfg)
		}
	}, func(lw cache.ListerWatcher) cache.ListerWatcher {
		return countedLists{cache.ToListerWatcherWithContext(lw), f}
	})
	f.clock = clk
	return f
}

// relisted expires the version, opens a watch and returns the objects that the client has
// decoded for it, and the lists.
func (f *rawFixture) relisted() (decoded, pages, items int) {
	f.t.Helper()
	f.clock.Step(time.Hour) // since the last one
	f.sim.Compact()
	f.link.expired()
	return f.watched()
}

// watched is relisted for any reason.
func (f *rawFixture) watched() (decoded, pages, items int) {
	f.t.Helper()
	f.forget()
	f.mu.Lock()
	f.decoded = 0
	f.mu.Unlock()
	f.watch()
	if d := f.differs(); d != "" {
		f.t.Fatal(d)
	}
	for _, r := range f.sim.Requests() {
		if r.FullRead() {
			pages++
			items += r.Items
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.decoded, pages, items
}

// TestRawPages: in a relist the client decodes only objects that the file does not have,
// in either encoding, whatever has changed.
func TestRawPages(t *testing.T) {
	// By their sizes, objects in JSON are asked for one by one. Over HTTP/1 that
	// takes a second connection, which the watch may be opened over: then the
	// version is asked for once more.
	for name, c := range map[string]struct {
		media  string
		repair listMode
	}{mediaProto: {mediaProto, listAuto}, mediaJSON: {mediaJSON, listAuto},
		mediaJSON + " in full": {mediaJSON, listFull}} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t, c.media, 0, Options{pageSize: 30, repair: c.repair})
			for i := range 100 {
				f.put(fmt.Sprintf("cm%03d", i), 500, uint64(i))
			}
			f.list()
			seq := f.store.State().Seq
			f.put("cm010", 500, 1000)
			f.put("cm050", 10, 1001)
			f.put("aaa", 500, 1002)
			f.put("zzz", 500, 1003)
			f.delete("cm020")
			f.delete("cm030") // another of its name
			f.put("cm030", 500, 30)
			decoded, pages, items := f.relisted()
			if decoded != 5 || pages != 4 || items != 101 {
				t.Errorf("decoded %d of %d objects in %d pages", decoded, items, pages)
			}
			if n := f.store.State().Seq - seq; n < 6 || n > 7 {
				t.Errorf("%d entries in the journal", n)
			}
			if decoded, _, items := f.relisted(); decoded != 0 || items != 101 {
				t.Errorf("decoded %d of %d objects of which none has changed", decoded, items)
			}
		})
	}
}

// TestRawStaged: more objects have changed than are kept in memory, so the unchanged ones
// are copied.
func TestRawStaged(t *testing.T) {
	f := newRawFixture(t, mediaProto, 0, Options{pageSize: 40, repair: listFull})
	for i := range 200 {
		f.put(fmt.Sprintf("cm%03d", i), 60_000, uint64(i))
	}
	f.list()
	for i := range 100 {
		f.put(fmt.Sprintf("cm%03d", 2*i), 60_000, uint64(1000+i))
	}
	f.delete("cm001")
	if decoded, _, items := f.relisted(); decoded != 100 || items != 199 {
		t.Errorf("decoded %d of %d objects", decoded, items)
	}
}

// TestRawNewTimeline: after a restore equal versions may have another content.
func TestRawNewTimeline(t *testing.T) {
	f := newRawFixture(t, mediaProto, 20, Options{Confirm: ConfirmBookmark})
	f.list()
	then := f.sim.Revision()
	f.put("cm1", 20, 1)
	f.restart()
	if err := f.sim.Rewind(then - 1); err != nil {
		t.Fatal(err)
	}
	if decoded, _, items := f.watched(); decoded != items || items != 19 {
		t.Errorf("decoded %d of %d objects", decoded, items)
	}
	if n := f.State().Relists[ReasonRestored]; n != 1 {
		t.Errorf("%+v", f.State())
	}
}

// TestRawDecoded: as the option says.
func TestRawDecoded(t *testing.T) {
	f := newRawFixture(t, mediaProto, 20, Options{DecodeAll: true})
	f.list()
	if decoded, _, items := f.relisted(); decoded != 20 || items != 20 {
		t.Errorf("decoded %d of %d objects", decoded, items)
	}
}

// mangled changes the answers to lists.
func mangled(change func([]byte) []byte) func(*rest.Config) {
	return func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err != nil || !strings.HasSuffix(req.URL.Path, "/configmaps") ||
					req.URL.Query().Get("watch") != "" || req.URL.Query().Get("limit") == "1" {
					return resp, err
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					return nil, err
				}
				_ = resp.Body.Close()
				resp.Body = io.NopCloser(bytes.NewReader(change(body)))
				resp.Header.Del("Content-Length")
				resp.ContentLength = -1
				return resp, nil
			})
		})
	}
}

// TestRawUnexpected: an answer of another form is left to the client.
func TestRawUnexpected(t *testing.T) {
	f := newRawFixture(t, mediaProto, 20, Options{pageSize: 7}, mangled(func(body []byte) []byte {
		var u runtime.Unknown
		if err := u.Unmarshal(body[len("k8s\x00"):]); err != nil {
			panic(err)
		}
		u.Raw = append(u.Raw, 9<<3|2, 1, 'x') // clients skip what they do not know
		raw, err := u.Marshal()
		if err != nil {
			panic(err)
		}
		return append([]byte("k8s\x00"), raw...)
	}))
	f.list()
	f.put("cm3", 10, 1)
	decoded, pages, _ := f.relisted()
	if decoded != 20 || pages != 4 { // the first one twice
		t.Errorf("decoded %d objects in %d pages", decoded, pages)
	}
	if decoded, pages, _ := f.relisted(); decoded != 20 || pages != 3 {
		t.Errorf("decoded %d objects in %d pages", decoded, pages)
	}
}

// TestRawBroken: a page that breaks in the middle is read again.
func TestRawBroken(t *testing.T) {
	broken := 0
	f := newRawFixture(t, mediaProto, 20, Options{pageSize: 7}, func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err == nil && broken > 0 && req.URL.Query().Get("continue") != "" {
					broken--
					resp.Body = struct {
						io.Reader
						io.Closer
					}{io.MultiReader(io.LimitReader(resp.Body, 200), badReader{}), resp.Body}
				}
				return resp, err
			})
		})
	})
	f.list()
	f.put("cm3", 10, 1)
	broken = 1
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the pause before the next try
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if f.clock.HasWaiters() {
					f.clock.Step(5 * time.Millisecond) // a request that takes long must not seem dead
				}
			}
		}
	}()
	if decoded, pages, _ := f.relisted(); decoded != 1 || pages != 4 {
		t.Errorf("decoded %d objects in %d pages", decoded, pages)
	}
}

type badReader struct{}

func (badReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
