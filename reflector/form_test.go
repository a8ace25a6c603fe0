package reflector

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reform has the server give another content under the same version.
func (f *rawFixture) reform(name string) {
	f.t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"form": "another"}}
	if err := f.sim.Reform(obj); err != nil {
		f.t.Fatal(err)
	}
}

func asksForm(r kubesim.RequestRecord) bool {
	return r.Path == "/version" || strings.HasPrefix(r.Path, "/openapi/v3/")
}

// TestServedForm: a relist notices an object that the server gives with another
// content under the same UID and version, once the server's schema is another,
// and compares versions again from then on. A wake asks nothing.
func TestServedForm(t *testing.T) {
	for _, media := range []string{mediaProto, mediaJSON} {
		for _, o := range []Options{{Repair: RepairFull}, {Repair: RepairMetadata}, {Compare: CompareDecoded}} {
			t.Run(fmt.Sprint(media, o.Repair, o.Compare), func(t *testing.T) {
				f := newRawFixture(t, media, 0, o)
				for i := range 40 {
					f.put(fmt.Sprintf("cm%02d", i), 500, 1)
				}
				f.list()
				raw := o.Compare == CompareAuto
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
				if asked < 1 || asked > 2 { // the version, once for a connection
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

// TestUnknownForm: where the server does not tell the form content is compared,
// and where it fails for the moment the relist does.
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

// TestAuditComparesContent: an audit notices what no sign tells.
func TestAuditComparesContent(t *testing.T) {
	f := newRawFixture(t, mediaJSON, 0, Options{AuditEvery: time.Hour})
	for i := range 10 {
		f.put(fmt.Sprint("cm", i), 500, 1)
	}
	f.list()
	f.watch().Stop()
	f.reform("cm7")
	f.sim.HideForm()
	f.clock.Step(2 * time.Hour)
	if f.watched(); f.State().Relists[ReasonAudit] != 1 {
		t.Error(f.State().Relists)
	}
}
