package wake

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// verify compares the file of a dead process and the calls of its handlers with the
// server.
func (w *writer) verify(db string, told string) {
	w.t.Helper()
	last := lastTold(w.t, told)
	w.verifyFile(db, func(resource string, cached []any) { w.toldAll(resource, cached, last[resource]) })
}

// verifyFile compares the file of a dead process with the server, and gives the objects
// of each resource to told.
func (w *writer) verifyFile(db string, told func(resource string, cached []any)) {
	w.t.Helper()
	file, err := boltstore.Open(db, boltstore.Options{ReadOnly: true, Keyset: w.keyset})
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	if r, err := file.Check(); err != nil || !r.Sound() {
		w.t.Fatalf("the file is not sound: %+v %v", r, err)
	}
	states, err := file.States()
	if err != nil || len(states) != len(resources) {
		w.t.Fatalf("%d sources, %v", len(states), err)
	}
	for _, st := range states {
		s, err := file.View(st.Source)
		if err != nil {
			w.t.Fatal(err)
		}
		cached, err := s.ListErr()
		if err != nil {
			w.t.Fatal(err)
		}
		w.sameObjects(st.Source.Resource, cached)
		filetest.SameIndices(w.t, w.indexers, s, cached)
		told(st.Source.Resource, cached)
	}
}

// sameObjects compares the whole JSON of each object with the server's. The
// server is asked for the versions that it was not asked for before.
func (w *writer) sameObjects(resource string, cached []any) {
	w.t.Helper()
	there := map[version]any{}
	for _, obj := range cached {
		there[versionOf(w.t, resource, obj)] = obj
	}
	list, err := w.md.Resource(resources[resource]).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, item := range list.Items {
		v := versionOf(w.t, resource, &item)
		obj := there[v]
		if obj == nil {
			w.t.Fatalf("the server has %+v, the file has not", v)
		}
		delete(there, v)
		got, err := json.Marshal(obj)
		if err != nil {
			w.t.Fatal(err)
		}
		sum := sha256.Sum256(got)
		if known, ok := w.verified[v]; ok && known == sum {
			continue
		}
		want, err := w.dyn.Resource(resources[resource]).Namespace(item.Namespace).Get(w.t.Context(), item.Name,
			metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		same := asJSON(w.t, want)
		if resource != "widgets" {
			same = throughType(w.t, resource, same)
		}
		if got := asJSON(w.t, obj); !reflect.DeepEqual(same, got) {
			w.t.Fatalf("%+v: the server has\n%v\nthe file\n%v", v, same, got)
		}
		w.verified[v] = sum
	}
	if len(there) > 0 {
		w.t.Fatalf("the file has what the server has not: %v", slices.Collect(maps.Keys(there)))
	}
}

func versionOf(t *testing.T, resource string, obj any) version {
	t.Helper()
	key, err := cache.MetaNamespaceKeyFunc(obj)
	if err != nil {
		t.Fatal(err)
	}
	m := obj.(metav1.Object)
	return version{resource, key, m.GetUID(), m.GetResourceVersion()}
}

func asJSON(t *testing.T, obj any) map[string]any {
	t.Helper()
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// throughType gives the server's JSON the empty fields that Go types print,
// and takes apiVersion and kind away, which typed clients do not fill.
func throughType(t *testing.T, resource string, m map[string]any) map[string]any {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var obj any = &corev1.Pod{}
	if resource == "configmaps" {
		obj = &corev1.ConfigMap{}
	}
	if err := json.Unmarshal(b, obj); err != nil {
		t.Fatal(err)
	}
	out := asJSON(t, obj)
	delete(out, "kind")
	delete(out, "apiVersion")
	return out
}

type line struct{ what, uid, rv string }

// ungrouped names resources as the tests do: the command adds their group.
func ungrouped(told []byte) string {
	return strings.ReplaceAll(string(told), " widgets.example.com ", " widgets ")
}

// lastTold returns, for each resource and key, the last line of all lives, and
// checks that no object takes another's place without a delete.
func lastTold(t *testing.T, path string) map[string]map[string]line {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]map[string]line{}
	for i, l := range strings.Split(strings.TrimSpace(ungrouped(b)), "\n") {
		f := strings.Fields(l)
		if len(f) != 5 {
			continue // cut by the kill, and told again later
		}
		res, key, n := f[1], f[2], line{what: f[0], uid: f[3], rv: f[4]}
		if last[res] == nil {
			last[res] = map[string]line{}
		}
		if old, ok := last[res][key]; ok && old.what != "DELETED" && n.what != "DELETED" && old.uid != n.uid {
			t.Fatalf("line %d: %s %s came back with another UID and no delete between", i+1, res, key)
		}
		last[res][key] = n
	}
	return last
}

// toldAll: the handler has been told each object's last version, and the delete of each
// object that it was told and that is gone.
func (w *writer) toldAll(resource string, cached []any, last map[string]line) {
	w.t.Helper()
	for _, obj := range cached {
		m := obj.(metav1.Object)
		key := m.GetNamespace() + "/" + m.GetName()
		n := last[key]
		if n.what == "DELETED" || n.rv != m.GetResourceVersion() || n.uid != string(m.GetUID()) {
			w.t.Fatalf("%s %s is at %s and the handler was last told %+v", resource, key, m.GetResourceVersion(), n)
		}
		delete(last, key)
	}
	for key, n := range last {
		if n.what != "DELETED" {
			w.t.Fatalf("%s %s is gone and the handler was last told %+v", resource, key, n)
		}
	}
}
