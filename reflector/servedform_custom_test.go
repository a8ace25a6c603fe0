package reflector

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
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
	denied atomic.Bool // its definition may not be read
}

func newCustomFixture(t *testing.T) *customFixture {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	f := customFixtureOver(t, sim, Options{clock: clk}, func(string) {})
	f.clock = clk
	return f
}

// customFixtureOver calls before with the continue token of each list.
func customFixtureOver(t *testing.T, sim *kubesim.Server, o Options, before func(token string)) *customFixture {
	t.Helper()
	t.Cleanup(sim.Close)
	f := &customFixture{fixture: &fixture{t: t, sim: sim}}
	for _, name := range []string{"first", "second", "third"} {
		if err := sim.Create(widget(name, "none")); err != nil {
			t.Fatal(err)
		}
	}
	sim.FailNext(func(r *http.Request) bool {
		return f.denied.Load() && strings.Contains(r.URL.Path, "/customresourcedefinitions/")
	}, 1<<30,
		kubesim.Answer(apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "", nil)))
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	client := dynamic.NewForConfigOrDie(WrapConfig(cfg)).Resource(widgets)
	lw := &cache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		before(o.Continue)
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
		f.ListerWatcher = New(lw, f.queue, f.store, example, server, o)
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

// reopen makes the server end the watch before its time, and opens another. It returns
// how often the form was asked for.
func (f *fixture) reopen() int {
	f.t.Helper()
	f.clock.Step(time.Hour)
	w := f.watch()
	f.sim.EndWatches(nil)
	for range w.ResultChan() {
	}
	f.forget()
	f.clock.Step(time.Hour) // since the last relist
	f.watch().Stop()
	return f.cost().Forms
}

// TestWatchEndsWithTheForm: a server ends the watches of a custom resource whose
// definition has changed, and resumes them where the versions are new enough: the
// change is noticed nevertheless, with its schema or without.
func TestWatchEndsWithTheForm(t *testing.T) {
	for name, change := range map[string]func(*kubesim.Server, kubesim.Object) error{
		"schema": (*kubesim.Server).Reform, "conversion": (*kubesim.Server).Reconvert,
	} {
		t.Run(name, func(t *testing.T) {
			f := newCustomFixture(t)
			f.list()
			if n := f.reopen(); n < 2 || n > 3 { // the version, once for a connection
				t.Errorf("asked %d times for schema and definition", n)
			}
			if n := f.State().Relists[ReasonForm]; n != 0 {
				t.Error("read for nothing")
			}
			if err := change(f.sim, widget("second", "blue")); err != nil {
				t.Fatal(err)
			}
			f.reopen()
			if got := f.colors(); got != "none blue none" {
				t.Errorf("the file has %s", got)
			}
			if n := f.State().Relists[ReasonForm]; n != 1 {
				t.Errorf("%v", f.State().Relists)
			}
			f.reopen()
			if n := f.State().Relists[ReasonForm]; n != 1 {
				t.Errorf("read twice: %v", f.State().Relists)
			}
		})
	}
}

// TestDefinitionMayNotBeRead: the sign does not change with the permission, and a change
// that was made without the permission is noticed with it.
func TestDefinitionMayNotBeRead(t *testing.T) {
	f := newCustomFixture(t)
	f.list()
	sign := f.store.ServedForm()
	expect := func(when string, relists uint64, colors string) {
		t.Helper()
		if got := f.State().Relists[ReasonForm]; got != relists || f.colors() != colors {
			t.Errorf("%s: %d relists, %s", when, got, f.colors())
		}
	}
	for range 3 {
		f.denied.Store(true)
		f.reopen()
		f.denied.Store(false)
		f.reopen()
	}
	expect("with the permission coming and going", 0, "none none none")
	f.denied.Store(true)
	f.clock.Step(time.Hour)
	f.link.expired()
	f.watch().Stop()
	if f.store.ServedForm() != sign {
		t.Error("the sign has changed without the permission")
	}
	if err := f.sim.Reform(widget("first", "blue")); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	expect("the schema, without the permission", 1, "blue none none")
	if err := f.sim.Reconvert(widget("second", "red")); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	expect("the conversion, without the permission", 1, "blue none none")
	f.denied.Store(false)
	f.reopen()
	expect("with it", 2, "blue red none")
}

// TestSchemaLagsBehind: the document of the schema may change after the watch has
// ended. It is looked at again when the next watch ends.
func TestSchemaLagsBehind(t *testing.T) {
	f := newCustomFixture(t)
	f.denied.Store(true)
	f.list()
	w := f.watch()
	f.sim.EndWatches(nil)
	for range w.ResultChan() {
	}
	f.watch().Stop()
	if err := f.sim.Reform(widget("third", "blue")); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(time.Hour)
	f.watch().Stop()
	if got := f.colors(); got != "none none blue" {
		t.Errorf("the file has %s", got)
	}
	f.cost()
	f.watch().Stop()
	if n := f.cost().Forms; n != 0 {
		t.Errorf("asked %d times, of a form that nobody doubts", n)
	}
}

// TestBuiltInFormIsNotDoubted: the end of a watch of a built-in type says nothing about
// its form.
func TestBuiltInFormIsNotDoubted(t *testing.T) {
	f := newFixture(t, 3)
	f.list()
	if n := f.reopen(); n != 0 {
		t.Errorf("asked %d times", n)
	}
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

// TestFormCannotBeAsked: while the question for the sign fails, watches are cut short
// less and less often, and the change is noticed when it succeeds.
func TestFormCannotBeAsked(t *testing.T) {
	f := newCustomFixture(t)
	f.list()
	w := f.watch()
	f.sim.EndWatches(nil)
	for range w.ResultChan() {
	}
	if err := f.sim.Reconvert(widget("second", "blue")); err != nil {
		t.Fatal(err)
	}
	var failing atomic.Bool
	failing.Store(true)
	f.sim.FailNext(func(r *http.Request) bool { return failing.Load() && strings.HasPrefix(r.URL.Path, "/openapi/") }, 1<<30,
		kubesim.Answer(apierrors.NewServiceUnavailable("starting")))
	f.forget()
	// cut is how long the next watch is to last, in seconds.
	cut := func() string {
		t.Helper()
		f.forget()
		w, err := f.WatchWithContext(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(599))})
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		for _, r := range f.sim.Requests() {
			if r.Verb == "watch" {
				return r.Query.Get("timeoutSeconds")
			}
		}
		return "none"
	}
	for i, want := range []string{"60", "120", "240", "480", "599", "599"} {
		if got := cut(); got != want {
			t.Errorf("watch %d lasts %s s, not %s", i, got, want)
		}
		if n := f.cost().Forms; n != 1 {
			t.Errorf("asked %d times before watch %d", n, i)
		}
	}
	if got := f.colors(); got != "none none none" {
		t.Errorf("the file has %s", got)
	}
	failing.Store(false)
	if got := cut(); got != "30" {
		t.Errorf("once it may be asked a watch lasts %s s", got)
	}
	if got := f.colors(); got != "none blue none" {
		t.Errorf("the file has %s", got)
	}
	if got := cut(); got != "599" {
		t.Errorf("and the next %s s", got)
	}
}
