package reflector

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/kubesim"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(name, color string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"color": color}}}
	u.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

// customFixture is a source of three custom resources, first, second and third.
type customFixture struct {
	*fixture
}

func newCustomFixture(t *testing.T) *customFixture {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	f := customFixtureOver(t, sim, Options{clock: clk})
	f.clock = clk
	return f
}

func customFixtureOver(t *testing.T, sim *kubesim.Server, o Options) *customFixture {
	t.Helper()
	t.Cleanup(sim.Close)
	f := &customFixture{fixture: &fixture{t: t, sim: sim}}
	for _, name := range []string{"first", "second", "third"} {
		if err := sim.Create(widget(name, "none")); err != nil {
			t.Fatal(err)
		}
	}
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	client := dynamic.NewForConfigOrDie(WrapConfig(cfg)).Resource(widgets)
	lw := &cache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
		error) {
		return client.List(ctx, o)
	}, WatchFuncWithContext: client.Watch}
	example := widget("", "")
	src, server, err := Identify(t.Context(), lw, example)
	if err != nil {
		t.Fatal(err)
	}
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{Clock: fileClock(o.clock)})
	if err != nil {
		t.Fatal(err)
	}
	f.claim = func() {
		if f.store, err = db.Claim(boltstore.Claim{Source: src, Example: example}); err != nil {
			t.Fatal(err)
		}
		f.queue = fifo.New(f.store, nil)
		f.Reflector = New(lw, f.queue, f.store, example, server, o)
	}
	f.claim()
	t.Cleanup(func() { f.queue.Close(); f.store.Release(); _ = db.Close() })
	return f
}

// colors are the colors of the objects in the file.
func (f *customFixture) colors() string {
	f.t.Helper()
	var out []string
	for _, name := range []string{"first", "second", "third"} {
		o, ok, err := f.store.GetByKey("default/" + name)
		if err != nil || !ok {
			f.t.Fatal(name, ok, err)
		}
		color, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "color")
		out = append(out, color)
	}
	return strings.Join(out, " ")
}

// TestFormChangesBeneathAWatch: the next audit notices it, once.
func TestFormChangesBeneathAWatch(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		f := customFixtureOver(t, sim, Options{clock: clock.RealClock{}, AuditEvery: time.Hour})
		f.reflect()
		after(time.Minute)
		sign := f.store.Upstream.Facts().ServedForm
		if err := errors.Join(sim.Reform(widget("second", "blue")), sim.Update(widget("third", "red"))); err != nil {
			t.Fatal(err)
		}
		sim.EndWatches(nil)
		if after(time.Minute); f.colors() != "none none red" {
			t.Errorf("the file has %s: the documents say otherwise", f.colors())
		}
		after(time.Hour)
		if got, st := f.colors(), f.State(); got != "none blue red" || st.Relists[ReasonAudit] == 0 ||
			len(st.Relists) != 2 {
			t.Errorf("the file has %s: %v", got, st.Relists)
		}
		if now := f.store.Upstream.Facts().ServedForm; now == "" || now == sign {
			t.Errorf("the sign is %q, after %q", now, sign)
		}
	})
}

// TestDefinitionChanges: a change of a custom resource's definition that its schema does not
// show, as of the conversion, is noticed by a relist. Nothing is if the definition may not be
// read.
func TestDefinitionChanges(t *testing.T) {
	for denied, want := range map[bool]string{false: "none blue none", true: "none none none"} {
		f := newCustomFixture(t)
		f.sim.FailNext(func(r *http.Request) bool {
			return denied && strings.Contains(r.URL.Path, "/customresourcedefinitions/")
		}, 1<<30,
			kubesim.Answer(apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "",
				nil)))
		f.list()
		if err := f.sim.Reconvert(widget("second", "blue")); err != nil {
			t.Fatal(err)
		}
		f.link.expired()
		f.watch().Stop()
		if got := f.colors(); got != want {
			t.Errorf("denied %v: the file has %s", denied, got)
		}
	}
}

// TestCustomGroups: groups with a domain's name that is not Kubernetes' own.
func TestCustomGroups(t *testing.T) {
	for group, want := range map[string]bool{
		"": false, "apps": false, "rbac.authorization.k8s.io": false, "networking.k8s.io": false,
		"example.com": true, "gateway.networking.k8s.io": true, "snapshot.storage.k8s.io": true,
	} {
		if custom(group) != want {
			t.Error(group)
		}
	}
}

// TestUpgradeBeneathAWatch: a resumed watch has no sign that another release has
// answered. The next relist compares content.
func TestUpgradeBeneathAWatch(t *testing.T) {
	f := newRawFixture(t, mediaJSON, 5, Options{})
	f.list()
	f.reform("cm3")
	f.sim.HideForm() // its schema is the same
	f.sim.Upgrade("v1.37.0")
	f.sim.DropConnections()
	f.watch().Stop()
	if f.differs() == "" {
		t.Error("the change is noticed: the documents say otherwise")
	}
	f.relisted() // compares with the server
}
