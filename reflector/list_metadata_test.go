package reflector

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// repaired makes the version expire, relists, and returns the requests and the bytes
// sent. The file equals the server when the watch has reached the changes that were left
// to it.
func (f *rawFixture) repaired() (lists, gets int, bytes int64) {
	f.t.Helper()
	f.clock.Step(time.Hour) // since the last one
	f.sim.Compact()
	f.link.expired()
	f.forget()
	f.watch()
	return f.asked()
}

func (f *rawFixture) asked() (lists, gets int, bytes int64) {
	for _, r := range f.sim.Requests() {
		switch {
		case r.FullRead():
			lists++
		case r.Verb == "get" && r.Resource == "configmaps":
			gets++
		default:
			continue
		}
		bytes += r.BodyBytes
	}
	return lists, gets, bytes
}

func (f *rawFixture) equal() {
	f.t.Helper()
	if d := f.differs(); d != "" {
		f.t.Fatal(d)
	}
}

// before is called before each request.
func before(do func(*http.Request)) func(*rest.Config) {
	return func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				do(req)
				return next.RoundTrip(req)
			})
		})
	}
}

func isGet(req *http.Request) bool { return strings.Contains(req.URL.Path, "/configmaps/") }

func asksMetadata(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadataList")
}

// metadataFixture has 400 objects of 4 kB in the file.
func metadataFixture(t *testing.T, media string, o Options, setup ...func(*rest.Config)) *rawFixture {
	t.Helper()
	f := newRawFixture(t, media, 0, o, setup...)
	for i := range 400 {
		f.put(fmt.Sprintf("cm%03d", i), 4000, uint64(i))
	}
	f.list()
	return f
}

// change changes three objects, creates one, and deletes two, one of which is created
// again.
func (f *rawFixture) change() {
	f.put("cm010", 4000, 1000)
	f.put("cm200", 100, 1001)
	f.put("zzz", 4000, 1002)
	f.delete("cm020")
	f.delete("cm030")
	f.put("cm030", 4000, 30)
}

// TestMetadataFirst: of unchanged objects only metadata is sent, in either encoding, and
// nothing is decoded.
func TestMetadataFirst(t *testing.T) {
	for _, media := range []string{mediaProto, mediaJSON} {
		t.Run(media, func(t *testing.T) {
			full := metadataFixture(t, media, Options{repair: listFull})
			full.change()
			_, gets, most := full.repaired()
			full.equal()
			if gets > 0 {
				t.Errorf("%d objects asked for", gets)
			}
			f := metadataFixture(t, media, Options{})
			f.change()
			f.decoded = 0
			lists, gets, bytes := f.repaired()
			f.equal()
			if lists != 1 || gets != 4 || f.decoded < 4 || f.decoded > 5 { // one may come with the version
				t.Errorf("%d pages, %d objects asked for, %d decoded", lists, gets, f.decoded)
			}
			if bytes > most/5 {
				t.Errorf("%d bytes, in full %d", bytes, most)
			}
			t.Logf("400 objects, 4 changed: %d bytes, in full %d", bytes, most)
			if !f.queue.Reached() {
				t.Error("not confirmed, though nothing was left to the watch")
			}
			f.decoded = 0
			if lists, gets, _ := f.repaired(); lists != 1 || gets != 0 || f.decoded > 1 {
				t.Errorf("nothing changed: %d pages, %d objects asked for, %d decoded", lists, gets, f.decoded)
			}
			f.equal()
		})
	}
}

// TestMetadataFirstInNewProcess: a new process does not know the kind.
func TestMetadataFirstInNewProcess(t *testing.T) {
	f := metadataFixture(t, mediaProto, Options{repair: listMetadata})
	f.restart()
	lists, gets, bytes := f.repaired()
	f.equal()
	if lists != 2 || gets != 1 { // for the kind
		t.Errorf("%d pages, %d objects asked for", lists, gets)
	}
	if bytes > 50_000 {
		t.Errorf("%d bytes", bytes)
	}
}

// TestMetadataNotWorth: small objects are listed in full.
func TestMetadataNotWorth(t *testing.T) {
	f := newRawFixture(t, mediaProto, 0, Options{})
	for i := range 100 {
		f.put(fmt.Sprintf("cm%03d", i), 100, uint64(i))
	}
	f.list()
	f.put("cm003", 100, 1000)
	if lists, gets, _ := f.repaired(); lists != 1 || gets != 0 {
		t.Errorf("%d pages, %d objects asked for", lists, gets)
	}
	f.equal()
}

// TestMetadataOfManyChanges: if too many objects have changed, the page, and the rest, is
// listed in full.
func TestMetadataOfManyChanges(t *testing.T) {
	f := metadataFixture(t, mediaProto, Options{repair: listMetadata, pageSize: 100})
	f.put("cm010", 4000, 1000)
	for i := 100; i < 130; i++ {
		f.put(fmt.Sprintf("cm%03d", i), 4000, uint64(1000+i))
	}
	f.delete("cm140")
	f.delete("cm340")
	if lists, gets, _ := f.repaired(); lists != 5 || gets != 1 { // the second one twice
		t.Errorf("%d pages, %d objects asked for", lists, gets)
	}
	f.equal()
}

// TestMetadataMoved: changes, creations and deletes while objects are requested are left
// to the watch, and the state is confirmed when the watch has brought them.
func TestMetadataMoved(t *testing.T) {
	for _, media := range []string{mediaProto, mediaJSON} {
		t.Run(media, func(t *testing.T) {
			var f *rawFixture
			var armed atomic.Bool
			var once sync.Once
			f = metadataFixture(t, media, Options{repair: listMetadata, pageSize: 200}, before(func(req *http.Request) {
				if !armed.Load() || !isGet(req) {
					return
				}
				once.Do(func() { // the others wait
					f.delete("cm010") // 404
					f.delete("new")   // 404, and not in the file
					f.delete("cm030") // another
					f.put("cm030", 4000, 2000)
					f.put("cm040", 4000, 2001)
					f.put("cm050", 4000, 2002) // on a page that has been read
					f.put("cm350", 4000, 2003) // on one that has not
					f.delete("cm360")
				})
			}))
			for _, name := range []string{"cm010", "cm030", "cm040", "cm060", "new", "cm350"} {
				f.put(name, 4000, 1000)
			}
			f.clock.Step(time.Hour)
			f.sim.Compact()
			f.link.expired()
			f.forget()
			armed.Store(true)
			w := f.watch()
			defer w.Stop()
			lists, gets, _ := f.asked()
			if lists != 3 || gets != 6 {
				t.Errorf("%d pages, %d objects asked for", lists, gets)
			}
			if f.queue.Reached() {
				t.Error("confirmed ahead of what was left to the watch")
			}
			if d := f.differs(); d == "" {
				t.Error("nothing was left to the watch")
			}
			f.take(w)
			if !f.queue.Reached() {
				t.Error("not confirmed, though the watch has brought everything")
			}
			if err := f.queue.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.equal()
		})
	}
}

// TestMetadataRefused: a server that does not understand this, or that does not allow
// single objects to be read, is not asked again.
func TestMetadataRefused(t *testing.T) {
	for name, setup := range map[string]func(*rest.Config){
		"ignores": func(cfg *rest.Config) {
			before(func(req *http.Request) {
				if asksMetadata(req) {
					req.Header.Set("Accept", mediaProto)
				}
			})(cfg)
		},
		"406": answers(http.StatusNotAcceptable, asksMetadata),
		"403": answers(http.StatusForbidden, isGet),
		"404": answers(http.StatusNotFound, isGet), // not the API's
		"503": answers(http.StatusServiceUnavailable, isGet),
	} {
		t.Run(name, func(t *testing.T) {
			f := metadataFixture(t, mediaProto, Options{}, setup)
			f.change()
			f.repaired()
			f.equal()
			if !f.queue.Reached() {
				t.Error("not confirmed")
			}
			if again := name == "503"; f.facts.noMetadata == again {
				t.Errorf("noMetadata is %v", f.facts.noMetadata)
			}
			if name == "503" {
				return
			}
			f.put("cm011", 4000, 3000)
			if lists, gets, _ := f.repaired(); lists != 1 || gets != 0 {
				t.Errorf("%d pages, %d objects asked for", lists, gets)
			}
			f.equal()
		})
	}
}

// answers in place of the server.
func answers(code int, which func(*http.Request) bool) func(*rest.Config) {
	return func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if !which(req) {
					return next.RoundTrip(req)
				}
				return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{},
					Body: http.NoBody, Request: req}, nil
			})
		})
	}
}

// TestMetadataPods: with realistic pods, one in a hundred of them changed, Auto costs no
// more than a full list.
func TestMetadataPods(t *testing.T) {
	sent := func(repair listMode, media string) (lists, gets int, bytes int64) {
		sim := kubesim.New(kubesim.Options{})
		if _, err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		gen := podgen.New(1)
		for i := range 400 {
			if err := sim.Create(gen.Pod(i)); err != nil {
				t.Fatal(err)
			}
		}
		cfg := sim.RESTConfig()
		cfg.QPS, cfg.ContentType, cfg.AcceptContentTypes = -1, media, media
		lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(WrapConfig(cfg)).CoreV1().RESTClient(),
			"pods", "", fields.Everything())
		src, server, err := Identify(t.Context(), lw, &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
		db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"),
			boltstore.Options{Keyset: sealtest.Default(), Clock: fileClock(clk)})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		store, err := db.Claim(boltstore.Claim{Source: src, Example: &corev1.Pod{}})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Release()
		queue := fifo.New(store, nil)
		defer queue.Close()
		s := New(lw, queue, store, &corev1.Pod{}, server, Options{clock: clk, repair: repair})
		if err := s.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // Auto has seen both after the first
			for i := range 4 {
				p := gen.Pod(100 * i)
				if err := sim.Get(p); err != nil {
					t.Fatal(err)
				}
				gen.Mutate(p, 1+int(sim.Revision()))
				if err := sim.Update(p); err != nil {
					t.Fatal(err)
				}
			}
			sim.Compact()
			s.link.expired()
			sim.ResetRequests()
			lists, gets, bytes = 0, 0, 0
			clk.Step(time.Hour)
			w, err := s.open(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			w.close()
			for _, r := range sim.Requests() {
				switch {
				case r.FullRead():
					lists++
				case r.Verb == "get" && r.Resource == "pods":
					gets++
				default:
					continue
				}
				bytes += r.BodyBytes
			}
		}
		want, _, err := sim.List(&corev1.Pod{})
		if err != nil || len(want) != len(store.ListKeys()) {
			t.Fatalf("%d objects, want %d: %v", len(store.ListKeys()), len(want), err)
		}
		for _, o := range want {
			got, ok, err := store.GetByKey(o.GetNamespace() + "/" + o.GetName())
			if err != nil || !ok || !apiequality.Semantic.DeepEqual(got, o) {
				t.Fatalf("%s differs: %v", o.GetName(), err)
			}
		}
		return lists, gets, bytes
	}
	for _, media := range []string{mediaProto, mediaJSON} {
		_, _, full := sent(listFull, media)
		_, gets, first := sent(listMetadata, media)
		_, _, auto := sent(listAuto, media)
		t.Logf("%s: %d bytes in full, %d metadata first, %d auto", media, full, first, auto)
		if gets != 4 {
			t.Errorf("%s: %d objects asked for", media, gets)
		}
		if auto > full*2/3 {
			t.Errorf("%s: %d bytes in full, %d metadata first, %d auto", media, full, first, auto)
		}
	}
}
