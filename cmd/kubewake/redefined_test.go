package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
	"github.com/kubewake/kubewake/internal/kubesim"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

func custom(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: widgets.Group, Version: "v1", Kind: kind})
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

// events is a running mirror and the events that it prints.
type events struct {
	t     *testing.T
	lines chan string
	log   *buffer
	end   func()
}

// mirrorEvents runs mirror with the arguments and --events.
func mirrorEvents(t *testing.T, args ...string) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	log := &buffer{}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, genericiooptions.IOStreams{Out: w, ErrOut: log},
			append([]string{"mirror", "--events", "--no-socket"}, args...))
		_ = w.Close() // never fails
	}()
	e := &events{t, make(chan string, 100), log, func() {
		t.Helper()
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d\n%s", code, log.String())
		}
	}}
	go func() {
		defer close(e.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			e.lines <- lines.Text()
		}
	}()
	return e
}

// buffer is written by one goroutine and read by another.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await waits for events of objects, such as "ADDED a", in any order.
func (e *events) await(want ...string) {
	e.t.Helper()
	for deadline := time.After(time.Minute); len(want) > 0; {
		select {
		case line, ok := <-e.lines:
			if f := strings.Fields(line); len(f) > 2 {
				want = slices.DeleteFunc(want, func(w string) bool {
					return w == f[0]+" "+strings.TrimPrefix(f[2], "default/")
				})
			}
			if !ok {
				e.t.Fatalf("the mirror ended without %q:\n%s", want, e.log)
			}
		case <-deadline:
			e.t.Fatalf("no %q; the mirror says:\n%s", want, e.log)
		}
	}
}

// shown returns what a command prints.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errs}, args); code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// TestRedefined: a custom resource is defined again with another kind. A mirror continues
// with that, whether it runs or is restarted, and each object keeps its own kind.
func TestRedefined(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	create := func(kind, name string) {
		t.Helper()
		if err := sim.Create(custom(kind, name)); err != nil {
			t.Fatal(err)
		}
	}
	redefine := func(kind string) {
		t.Helper()
		if err := sim.Redefine(widgets, kind); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "w.db")
	args := []string{"widgets", "-A", "--db", path, "--server", sim.URL()}

	create("Widget", "a")
	m := mirrorEvents(t, args...)
	m.await("ADDED a")
	redefine("Wodget")
	create("Wodget", "b")
	m.await("DELETED a", "ADDED b") // a list shows it
	create("Wodget", "c")
	m.await("ADDED c")
	m.end()
	if got := shown(t, "get", "wodget", "-A", "-o", "name", "--db",
		path); got != "wodget.example.com/b wodget.example.com/c" {
		t.Error(got)
	}
	if got := shown(t, "history", "widgets", "-A", "-o", "json", "--db", path); strings.Count(got,
		`"kind":"Widget"`) != 1 || strings.Count(got, `"kind":"Wodget"`) != 2 {
		t.Error(got)
	}

	m = mirrorEvents(t, args...)
	m.await("ADDED c") // from the file
	create("Wodget", "d")
	m.await("ADDED d")
	m.end()

	redefine("Wadget")
	create("Wadget", "e")
	m = mirrorEvents(t, args...)
	m.await("ADDED e")
	create("Wadget", "f")
	m.await("ADDED f")
	m.end()
	if got := shown(t, "get", "wadget", "-A", "-o", "name", "--db",
		path); got != "wadget.example.com/e wadget.example.com/f" {
		t.Error(got)
	}
}

// TestServedElsewhere: a custom resource is defined again in another version or scope while
// no mirror runs. The next one tells the deletes of the old objects, and status does not say
// that they are in sync.
func TestServedElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		version    string
		namespaced bool
		namespace  string
		args       string
		old        boltstore.Source // its version and namespace
	}{
		"version": {"v2", true, "default", "-A", boltstore.Source{Version: "v1"}},
		"scope":   {"v1", false, "", "-n=default", boltstore.Source{Version: "v1", Namespace: "default"}},
	} {
		t.Run(name, func(t *testing.T) {
			sim := kubesim.New(kubesim.Options{})
			if _, err := sim.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(sim.Close)
			if err := sim.Create(custom("Widget", "a")); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "w.db")
			args := []string{"widgets", tc.args, "--db", path, "--server", sim.URL()}
			m := mirrorEvents(t, args...)
			m.await("ADDED a")
			m.end()
			b := custom("Widget", "b")
			b.SetNamespace(tc.namespace)
			b.SetGroupVersionKind(widgets.WithVersion(tc.version).GroupVersion().WithKind("Widget"))
			if err := errors.Join(sim.Reversion(widgets, tc.version, tc.namespaced), sim.Create(b)); err != nil {
				t.Fatal(err)
			}
			m = mirrorEvents(t, args...)
			m.await("DELETED a")
			m.await("ADDED b")
			m.end()
			db, err := boltstore.Open(path, boltstore.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			states, err := db.States()
			if err != nil || len(states) != 2 {
				t.Fatal(states, err)
			}
			for _, st := range states {
				if old := st.Source.Version == tc.old.Version &&
					st.Source.Namespace == tc.old.Namespace; st.Synced == old {
					t.Errorf("%s: synced %t, %d objects", st.Source, st.Synced, st.Objects)
				}
			}
		})
	}
}

// TestColumnsChange: tables have the columns and names of a custom resource's present
// definition, whether it changes while the mirror runs or while it does not.
func TestColumnsChange(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	change := func(column, shortName, object string) {
		t.Helper()
		columns := []printcolumns.Column{{Name: column, Type: "string", JSONPath: ".metadata.name"}}
		if err := errors.Join(sim.Recolumn(widgets, columns, shortName),
			sim.Create(custom("Widget", object))); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "w.db")
	args := []string{"widgets", "-A", "--db", path, "--server", sim.URL(), "--no-socket=false"}
	shows := func(shortName, column string) {
		t.Helper()
		eventually(t, func() error {
			var out, errs bytes.Buffer
			code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errs},
				[]string{"get", shortName, "-A", "--db", path})
			if table := strings.Fields(out.String()); code != 0 || !slices.Contains(table, column) {
				return fmt.Errorf("%q %s", table, errs.String())
			}
			return nil
		})
	}
	change("One", "w1", "a")
	m := mirrorEvents(t, args...)
	m.await("ADDED a")
	shows("w1", "ONE")
	change("Two", "w2", "b")
	m.await("ADDED b")
	shows("w2", "TWO")
	m.end()

	change("Three", "w3", "c")
	m = mirrorEvents(t, args...)
	m.await("ADDED c")
	shows("w3", "THREE")
	m.end()
	shows("w3", "THREE")

	if err := errors.Join(sim.Recolumn(widgets, nil, "w4"), sim.Create(custom("Widget", "d"))); err != nil {
		t.Fatal(err)
	}
	m = mirrorEvents(t, args...)
	m.await("ADDED d")
	shows("w4", "AGE") // as without columns
	m.end()
	shows("w4", "AGE")
}

// TestNoObjectYet: a custom resource without any object is a type of the file like any
// other. Its kind is known from discovery.
func TestNoObjectYet(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	path := filepath.Join(t.TempDir(), "w.db")
	args := []string{"widgets", "configmaps", "-A", "--db", path, "--server", sim.URL()}
	for range 2 { // the second life knows its types from the file
		m := mirrorEvents(t, args...)
		eventually(t, func() error {
			if log := m.log.String(); !strings.Contains(log, "widgets.example.com/v1 (unstructured): live") ||
				!strings.Contains(log, "configmaps/v1: live") {
				return errors.New(log)
			}
			return nil
		})
		m.end()
		if got := shown(t, "api-resources", "-o", "name", "--db", path); got != "configmaps widgets.example.com" {
			t.Errorf("the types are %q", got)
		}
		if got := shown(t, "get", "widgets,configmaps", "-A", "-o", "jsonpath={.items}", "--db", path); got != "[]" {
			t.Error(got)
		}
	}
}

// TestMirrorBesideMetadata: a file that has a custom resource as metadata does not know
// its kind. A mirror of it takes whole objects of any kind.
func TestMirrorBesideMetadata(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	path := filepath.Join(t.TempDir(), "w.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Example: &metav1.PartialObjectMetadata{},
		Source: boltstore.Source{Group: widgets.Group, Version: "v1", Resource: widgets.Resource,
			Form: boltstore.FormMetadata}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page([]runtime.Object{&metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "1"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("1", time.Now()); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	if err := sim.Create(custom("Widget", "a")); err != nil {
		t.Fatal(err)
	}
	m := mirrorEvents(t, "widgets", "-A", "--db", path, "--server", sim.URL())
	m.await("ADDED a")
	if err := sim.Create(custom("Widget", "b")); err != nil {
		t.Fatal(err)
	}
	m.await("ADDED b")
	m.end()
	if got := shown(t, "get", "widget", "-A", "-o", "name", "--db",
		path); got != "widget.example.com/a widget.example.com/b" {
		t.Error(got)
	}
}
