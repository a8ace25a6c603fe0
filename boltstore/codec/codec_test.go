package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/codec"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

func newOf(t reflect.Type) runtime.Object { return reflect.New(t).Interface().(runtime.Object) }

func codecFor(t testing.TB, example runtime.Object) codec.Codec {
	t.Helper()
	c, err := codec.For(example)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// comesBack is the property of all codecs: obj comes back, its bytes depend on nothing
// else, and neither direction keeps or changes its arguments.
func comesBack(t testing.TB, c codec.Codec, obj runtime.Object) {
	t.Helper()
	before := obj.DeepCopyObject()
	out, err := c.Append([]byte("dst"), obj)
	if err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(obj, before) {
		t.Fatal("Append changed the object")
	}
	b, ok := bytes.CutPrefix(out, []byte("dst"))
	if !ok {
		t.Fatal("Append overwrote dst")
	}
	data := bytes.Clone(b)
	got, err := c.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 0xA5
	}
	if !apiequality.Semantic.DeepEqual(obj, got) {
		t.Fatalf("%s: %T is another\nwas %+v\nis  %+v", c.Name(), obj, obj, got)
	}
	for range 3 { // maps iterate differently each time
		again, err := c.Append(nil, obj.DeepCopyObject())
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%s: equal %T, other bytes (%v)", c.Name(), obj, err)
		}
	}
}

func TestEveryKindComesBack(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	all := append(kinds(), reflect.TypeFor[metav1.PartialObjectMetadata]())
	for _, k := range all {
		t.Run(k.String(), func(t *testing.T) {
			c := codecFor(t, newOf(k))
			comesBack(t, c, newOf(k))
			for i := range rounds {
				obj := newOf(k)
				filler(int64(i), i%2 == 1).Fill(obj)
				comesBack(t, c, obj)
			}
		})
	}
	if len(all) < 150 {
		t.Fatalf("only %d kinds", len(all))
	}
}

// TestWhoTakesProtobuf pins the choice of codec for telling kinds.
func TestWhoTakesProtobuf(t *testing.T) {
	for _, c := range []struct {
		example runtime.Object
		want    byte
	}{
		{&corev1.Pod{}, codec.IDProtobuf},
		{(*corev1.Node)(nil), codec.IDProtobuf},
		{&metav1.PartialObjectMetadata{}, codec.IDProtobuf},
		{&appsv1.StatefulSet{}, codec.IDJSON},        // volumeClaimTemplates
		{&appsv1.ControllerRevision{}, codec.IDJSON}, // RawExtension
		{&corev1.PodList{}, codec.IDJSON},            // items
		{&Widget{}, codec.IDJSON},
		{&crd{}, codec.IDJSON},
	} {
		if got := codecFor(t, c.example); got.ID() != c.want {
			t.Errorf("%T: %s", c.example, got.Name())
		}
	}
	var names []string
	for _, k := range kinds() {
		if c := codecFor(t, newOf(k)); c.ID() == codec.IDJSON && !strings.HasSuffix(k.Name(), "List") {
			names = append(names, k.String())
		}
	}
	t.Logf("json: %v", names)
}

// TestGoldenObjects reads the objects that Kubernetes releases are tested with.
func TestGoldenObjects(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	releases, objects := map[string]bool{}, 0
	for i, file := range files {
		if testing.Short() && i%7 != 0 {
			continue
		}
		if ext := filepath.Ext(file); ext != ".json" && ext != ".pb" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if ext := filepath.Ext(file); ext == ".json" { // a server sends no space
			var b bytes.Buffer
			if err := json.Compact(&b, data); err != nil {
				t.Fatal(err)
			}
			data = b.Bytes()
		}
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) {
			continue // a kind that has gone since, or a WatchEvent, which is none
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			comesBack(t, codecFor(t, obj), obj)
		})
		releases[filepath.Dir(file)] = true
		objects++
	}
	if objects < 100 || !testing.Short() && objects < 1000 || len(releases) < 3 {
		t.Fatalf("only %d objects of %d releases", objects, len(releases))
	}
}

func TestWrongTypes(t *testing.T) {
	if _, err := codec.For(nil); !errors.Is(err, codec.ErrUnsupported) {
		t.Errorf("For(nil): %v", err)
	}
	for _, example := range []runtime.Object{&corev1.Pod{}, &appsv1.StatefulSet{}, unstructuredOf(nil)} {
		c := codecFor(t, example)
		for _, obj := range []runtime.Object{nil, &corev1.Node{},
			reflect.Zero(reflect.TypeOf(example)).Interface().(runtime.Object)} {
			out, err := c.Append([]byte("dst"), obj)
			if !errors.Is(err, codec.ErrUnsupported) || string(out) != "dst" {
				t.Errorf("%s: Append(%s) = %q, %v", c.Name(), fmt.Sprintf("%T", obj), out, err)
			}
		}
	}
}
