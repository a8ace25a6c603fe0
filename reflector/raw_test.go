package reflector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
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

// relisted expires the version, opens a watch and returns what the client has
// decoded for it, and what was listed.
func (f *rawFixture) relisted() (decoded, pages, items int) {
	f.t.Helper()
	f.clock.Step(time.Hour) // since the last one
	f.sim.Compact()
	f.setExpired()
	return f.watched()
}

// watched is relisted for whatever reason there is.
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

// TestRawPages: of a relist the client decodes only what the file has not, in
// either encoding, whatever has changed.
func TestRawPages(t *testing.T) {
	// By their sizes, objects in JSON are asked for one by one. Over HTTP/1 that
	// takes a second connection, which the watch may be opened over: then the
	// version is asked for once more.
	for name, c := range map[string]struct {
		media  string
		repair Repair
	}{mediaProto: {mediaProto, RepairAuto}, mediaJSON: {mediaJSON, RepairAuto}, mediaJSON + " in full": {mediaJSON, RepairFull}} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t, c.media, 0, Options{PageSize: 30, Repair: c.repair})
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

// TestRawStaged: more has changed than is kept in memory, so that what has not
// is copied.
func TestRawStaged(t *testing.T) {
	f := newRawFixture(t, mediaProto, 0, Options{PageSize: 40, Repair: RepairFull})
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

// TestRawNewHistory: after a restore equal versions may have another content.
func TestRawNewHistory(t *testing.T) {
	f := newRawFixture(t, mediaProto, 20, Options{})
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
	f := newRawFixture(t, mediaProto, 20, Options{Compare: CompareDecoded})
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
				if err != nil || !strings.HasSuffix(req.URL.Path, "/configmaps") || req.URL.Query().Get("watch") != "" || req.URL.Query().Get("limit") == "1" {
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

// TestRawUnexpected: an answer of another form is the client's to understand.
func TestRawUnexpected(t *testing.T) {
	f := newRawFixture(t, mediaProto, 20, Options{PageSize: 7}, mangled(func(body []byte) []byte {
		l := newProtoList(bytes.NewReader(body)).(*protoList)
		for err := error(nil); err == nil; {
			var item []byte
			if _, item, err = l.next(); err == nil {
				l.add(item)
			}
		}
		l.other = append(l.other, 9<<3|2, 1, 'x') // clients skip what they do not know
		return l.list()
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
	f := newRawFixture(t, mediaProto, 20, Options{PageSize: 7}, func(cfg *rest.Config) {
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
					f.clock.Step(100 * time.Millisecond)
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

// decodeList is what a client makes of a list.
func decodeList(data []byte) (*corev1.ConfigMapList, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*corev1.ConfigMapList)
	if !ok {
		return nil, fmt.Errorf("a %T", obj)
	}
	return list, nil
}

func encodeList(t testing.TB, media string, list *corev1.ConfigMapList) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatal(media)
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), list)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func rawListOf(media string, data []byte) rawList {
	if media == mediaJSON {
		return newJSONList(bytes.NewReader(data))
	}
	return newProtoList(bytes.NewReader(data))
}

// TestSift: the other list is the first without what is the same.
func TestSift(t *testing.T) {
	odd := "a \"quoted\" \\ {[ü, 世界]} \n"
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "more", RemainingItemCount: new(int64(3))}}
	for i := range 50 {
		list.Items = append(list.Items, corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("cm", i), Namespace: "ns", UID: "uid", ResourceVersion: fmt.Sprint(i),
				Labels: map[string]string{"metadata": odd, "uid": "none"}, OwnerReferences: []metav1.OwnerReference{{Name: "owner", UID: "owner"}},
			},
			Data: map[string]string{odd: odd, "items": "[", "metadata": `{"name":"x"}`},
		})
	}
	for _, media := range []string{mediaProto, mediaJSON} {
		for _, every := range []int{1, 2, 7, 100} {
			same := func(l boltstore.Listed) bool { return len(l.ResourceVersion)%2 == 1 && every < 100 || every == 1 }
			p := &rawPage{compare: func(ls []boltstore.Listed) ([]boltstore.Match, error) {
				var out []boltstore.Match
				for _, l := range ls {
					out = append(out, boltstore.Differs)
					if l.Namespace != "ns" || l.UID != "uid" || l.Name != "cm"+l.ResourceVersion {
						t.Errorf("%+v", l)
					}
					if same(l) {
						out[len(out)-1] = boltstore.Same
					}
				}
				return out, nil
			}}
			rest, err := p.filter(rawListOf(media, encodeList(t, media, list)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeList(rest)
			if err != nil {
				t.Fatal(err)
			}
			want := list.DeepCopy()
			want.TypeMeta = got.TypeMeta
			want.Items = slices.DeleteFunc(want.Items, func(c corev1.ConfigMap) bool { return same(boltstore.Listed{ResourceVersion: c.ResourceVersion}) })
			for i := range got.Items {
				got.Items[i].TypeMeta = metav1.TypeMeta{}
			}
			if !apiequality.Semantic.DeepEqual(got, want) || len(p.kept)+len(got.Items) != 50 {
				t.Errorf("%s, %d: %d kept, %d passed", media, every, len(p.kept), len(got.Items))
			}
		}
	}
}

// FuzzSift: whatever comes, nothing is lost: where the client understands a
// list, it understands the other one, and has all items between the two.
func FuzzSift(f *testing.F) {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	f.Add(false, encodeList(f, mediaProto, list))
	f.Add(true, encodeList(f, mediaJSON, list))
	for i := range 3 {
		list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cm", i), UID: "u", ResourceVersion: "1"}})
	}
	f.Add(false, encodeList(f, mediaProto, list))
	f.Add(true, encodeList(f, mediaJSON, list))
	f.Add(true, []byte(`{"items":null}`))
	f.Add(true, []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[ {"metadata":{"name":"a\"","uid":"u","resourceVersion":"1"}} , {} ],"x":[1,-2e3,true]}`))
	f.Fuzz(func(t *testing.T, asJSON bool, data []byte) {
		media := mediaProto
		if asJSON {
			media = mediaJSON
		}
		even := func(l boltstore.Listed) bool { return strings.HasSuffix(l.Name, "0") }
		p := &rawPage{compare: func(ls []boltstore.Listed) ([]boltstore.Match, error) {
			out := make([]boltstore.Match, len(ls))
			for i, l := range ls {
				if even(l) {
					out[i] = boltstore.Same
				}
			}
			return out, nil
		}}
		rest, err := p.filter(rawListOf(media, data))
		if err != nil {
			return // left to the client
		}
		if asJSON && !json.Valid(data) {
			return // parts of what was left out may be anything
		}
		want, err := decodeList(data)
		if err != nil {
			return
		}
		got, err := decodeList(rest)
		if err != nil {
			t.Fatalf("the rest cannot be decoded: %v\n%q\n%q", err, data, rest)
		}
		if len(got.Items)+len(p.kept) != len(want.Items) || got.ListMeta.ResourceVersion != want.ListMeta.ResourceVersion {
			t.Fatalf("%d items, %d kept, of %d\n%q", len(got.Items), len(p.kept), len(want.Items), data)
		}
	})
}
