package reflector

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// reform makes the server return other content under the same version.
func (f *rawFixture) reform(name string) {
	f.t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"form": "another"}}
	if err := f.sim.Reform(obj); err != nil {
		f.t.Fatal(err)
	}
}

func asksForm(r kubesim.RequestRecord) bool {
	return r.Path == "/version" || strings.HasPrefix(r.Path, "/openapi/v3/")
}

// TestServedForm: if the server's schema has changed, a relist notices an object with
// other content under the same UID and version, and later relists compare versions again.
// A wake asks nothing.
func TestServedForm(t *testing.T) {
	for _, media := range []string{mediaProto, mediaJSON} {
		for _, o := range []Options{{repair: listFull}, {repair: listMetadata}, {DecodeAll: true}} {
			t.Run(fmt.Sprint(media, o.repair, o.DecodeAll), func(t *testing.T) {
				f := newRawFixture(t, media, 0, o)
				for i := range 40 {
					f.put(fmt.Sprintf("cm%02d", i), 500, 1)
				}
				f.list()
				raw := !o.DecodeAll
				if decoded, _, _ := f.relisted(); raw && decoded > 0 {
					t.Errorf("%d objects were decoded of which none has changed", decoded)
				}
				f.reform("cm07")
				if decoded, _, _ := f.relisted(); raw && decoded != 40 { // differs is the test
					t.Errorf("%d of 40 objects decoded", decoded)
				}
				asked := 0
				for _, r := range f.sim.Requests() {
					if asksForm(r) {
						asked++
					}
				}
				if asked != 2 {
					t.Errorf("asked %d times", asked)
				}
				if decoded, _, _ := f.relisted(); raw && decoded > 0 {
					t.Errorf("%d objects were decoded afterwards", decoded)
				}
				f.restart()
				f.forget()
				f.list()
				f.watch()
				for _, r := range f.sim.Requests() {
					if asksForm(r) {
						t.Error("a wake asks for the form")
					}
				}
			})
		}
	}
}

// TestUnknownForm: if the server does not state the form, content is compared, and if the
// question fails for the moment, so does the relist.
func TestUnknownForm(t *testing.T) {
	is := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/openapi/v3/") }
	for name, answer := range map[string]http.HandlerFunc{
		"forbidden": kubesim.Answer(apierrors.NewForbidden(corev1.Resource("openapi"), "", nil)),
		"not found": kubesim.Answer(apierrors.NewNotFound(corev1.Resource("openapi"), "")),
	} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t, mediaJSON, 0, Options{})
			f.sim.FailNext(is, 1000, answer)
			for i := range 10 {
				f.put(fmt.Sprint("cm", i), 500, 1)
			}
			f.list()
			f.reform("cm7")
			f.relisted() // compares with the server
			f.reform("cm8")
			f.relisted()
		})
	}
}

// TestFormIsNotAnswered: if the server, or a proxy, answers the question for the form
// with an error, content is compared, and the next relist asks again.
func TestFormIsNotAnswered(t *testing.T) {
	for _, path := range []string{"/openapi/v3/", "/version"} {
		for _, code := range []int{429, 500, 503, 504} {
			t.Run(fmt.Sprint(path, code), func(t *testing.T) {
				f := newRawFixture(t, mediaJSON, 10, Options{})
				f.list()
				var failing atomic.Bool
				failing.Store(true)
				f.sim.FailNext(func(r *http.Request) bool {
					return failing.Load() && strings.HasPrefix(r.URL.Path, path)
				}, 1<<30,
					func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
				for _, name := range []string{"cm3", "cm4"} {
					f.reform(name)
					f.relisted() // compares with the server
				}
				failing.Store(false)
				f.relisted()
				if f.store.Upstream.Facts().ServedForm == "" {
					t.Error("the form is not asked for any more")
				}
				if decoded, _, _ := f.relisted(); decoded > 0 {
					t.Errorf("%d objects were decoded of which none has changed", decoded)
				}
			})
		}
	}
}

// TestFormChangesDuringTheFirstList: objects of the first page have another form than the
// server serves at the list's end. Next they are compared by content, even if another
// life has continued the list.
func TestFormChangesDuringTheFirstList(t *testing.T) {
	second := func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }
	warm(t)
	for _, twoLives := range []bool{false, true} {
		t.Run(fmt.Sprint("two lives ", twoLives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				f := &rawFixture{}
				var once sync.Once
				f.fixture = fixtureWith(t, sim, 0, clock.RealClock{}, Options{pageSize: 4, repair: listFull},
					func(cfg *rest.Config) {
						cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
							return roundTripper(func(req *http.Request) (*http.Response, error) {
								if !twoLives && second(req) {
									once.Do(func() { f.reform("cm1") })
								}
								return next.RoundTrip(req)
							})
						})
					}, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
				for i := range 10 {
					f.put(fmt.Sprint("cm", i), 500, 1)
				}
				if twoLives {
					sim.FailNext(second, 1, kubesim.Answer(apierrors.NewForbidden(corev1.Resource("configmaps"), "",
						nil)))
					if err := f.begin(t.Context()); err == nil {
						t.Fatal("the list was not interrupted")
					}
					f.restart()
					after(time.Minute)
					f.reform("cm1")
				}
				f.list()
				firsts := 0
				for _, r := range sim.Requests() {
					if r.FullRead() && r.Query.Get("continue") == "" {
						firsts++
					}
				}
				if firsts != 1 || f.differs() == "" {
					t.Errorf("%d lists were begun, %q differs", firsts, f.differs())
				}
				after(time.Hour)
				f.link.expired()
				f.watch()
				if diff := f.differs(); diff != "" {
					t.Error(diff)
				}
				if f.store.Upstream.Facts().ServedForm == "" {
					t.Error("the form is not known afterwards")
				}
			})
		})
	}
}
