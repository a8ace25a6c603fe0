// Package contract states the behaviour of an API server on which kubewake relies, and
// checks the real one and internal/kubesim by the same statements: in all other tests the
// simulator may replace the server only as far as these cases go.
package contract

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// TestMain lets cases run side by side even on few processors: most of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// target is a server under test. It serves namespaces, config maps and the
// custom resource widgets.example.com/v1.
type target interface {
	Config() *rest.Config
	// Restart ends the server and starts it again at the same address.
	Restart(context.Context) error
	// Compact makes the server forget all states before the present one.
	Compact(context.Context) error
	// Snapshot returns a function that takes the server back to its present state.
	Snapshot(context.Context) (restore func(context.Context) error, err error)
}

func TestKubeAPIServer(t *testing.T) {
	t.Parallel() // beside the simulator: most cases wait
	s := apiserver.Start(t, apiserver.Options{NoAudit: true})
	if err := s.InstallWidgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, realServer{s})
}

func TestKubesim(t *testing.T) {
	t.Parallel()
	s := kubesim.New(kubesim.Options{})
	if _, err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	run(t, simulator{s})
}

type realServer struct{ *apiserver.Server }

func (s realServer) Restart(ctx context.Context) error { return s.RestartAPIServer(ctx) }

// Compact also restarts the server, which would otherwise answer from its memory.
func (s realServer) Compact(ctx context.Context) error {
	if err := s.Server.Compact(ctx); err != nil {
		return err
	}
	return s.RestartAPIServer(ctx)
}

func (s realServer) Snapshot(ctx context.Context) (func(context.Context) error, error) {
	dir, err := s.Server.Snapshot(ctx)
	return func(ctx context.Context) error { return s.Restore(ctx, dir) }, err
}

type simulator struct{ *kubesim.Server }

func (s simulator) Config() *rest.Config { return s.RESTConfig() }

func (s simulator) Restart(context.Context) error {
	return s.Server.Restart(kubesim.RestartOptions{Initializing: 2})
}

func (s simulator) Compact(context.Context) error {
	s.Server.Compact()
	return nil
}

func (s simulator) Snapshot(context.Context) (func(context.Context) error, error) {
	rv := s.Revision()
	return func(context.Context) error { return s.Rewind(rv) }, nil
}

type testCase struct {
	name string
	test func(*testing.T, *fixture)
}

// run checks a server with all cases: first, side by side, the cases that only need a
// namespace, then, one by one, the cases that disturb the whole server, or are disturbed
// by others.
func run(t *testing.T, s target) {
	t.Run("steady", func(t *testing.T) {
		for name, cases := range map[string][]testCase{"list": lists, "watch": watches, "codec": codecs} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, tc := range cases {
					t.Run(tc.name, func(t *testing.T) {
						t.Parallel()
						tc.test(t, newFixture(t, s))
					})
				}
			})
		}
	})
	t.Run("fault", func(t *testing.T) {
		for _, tc := range faults {
			t.Run(tc.name, func(t *testing.T) { tc.test(t, newFixture(t, s)) })
		}
	})
}

// fixture is a case's own namespace on the server.
type fixture struct {
	*client
	server    target
	namespace string
}

var namespaces atomic.Int64

func newFixture(t *testing.T, s target) *fixture {
	t.Helper()
	f := &fixture{newClient(t, s.Config()), s, fmt.Sprintf("contract-%d", namespaces.Add(1))}
	f.write(t, http.MethodPost, "/api/v1/namespaces", map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": f.namespace},
	})
	return f
}

// configMaps is the path of the case's config maps.
func (f *fixture) configMaps() string { return "/api/v1/namespaces/" + f.namespace + "/configmaps" }

// widgets is the path of the case's custom resources.
func (f *fixture) widgets() string {
	return "/apis/example.com/v1/namespaces/" + f.namespace + "/widgets"
}

// create makes an object below path, with labels written "name=value".
func (f *fixture) create(t *testing.T, path, name string, labels ...string) *unstructured.Unstructured {
	t.Helper()
	return f.write(t, http.MethodPost, path, f.object(path, name, labels))
}

// update replaces the labels of an object.
func (f *fixture) update(t *testing.T, path, name string, labels ...string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{Object: f.object(path, name, labels)}
	current := unstructured.Unstructured{Object: decode(t, f.get(t, path+"/"+name).body)}
	obj.SetResourceVersion(current.GetResourceVersion())
	return f.write(t, http.MethodPut, path+"/"+name, obj.Object)
}

func (f *fixture) delete(t *testing.T, path, name string) {
	t.Helper()
	f.write(t, http.MethodDelete, path+"/"+name, nil)
}

func (f *fixture) object(path, name string, labels []string) map[string]any {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	if path == f.widgets() {
		obj.SetAPIVersion("example.com/v1")
		obj.SetKind("Widget")
		obj.Object["spec"] = map[string]any{"size": int64(3), "ratio": 0.5}
	}
	obj.SetName(name)
	set := map[string]string{}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		set[k] = v
	}
	obj.SetLabels(set)
	return obj.Object
}

// write sends an object and returns the server's form of it.
func (f *fixture) write(t *testing.T, method, path string, body map[string]any) *unstructured.Unstructured {
	t.Helper()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	a := f.do(t, method, path, http.Header{"Content-Type": {jsonType}, "Accept": {jsonType}}, data)
	if a.code != http.StatusOK && a.code != http.StatusCreated {
		t.Fatalf("%s %s: %d %s", method, path, a.code, a.body)
	}
	return &unstructured.Unstructured{Object: decode(t, a.body)}
}
