package codec_test

import (
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/codec"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Variants of a tree: each differs from the first in one thing.
type (
	leafBase    struct{ N int32 }
	leafAdded   struct{ N, M int32 }
	leafRenamed struct{ O int32 }
	leafRetyped struct{ N int64 }
)

func tree(leaf reflect.Type, tag reflect.StructTag) reflect.Type {
	// Named types differ by name as well, so the leaf is made anonymous.
	var fields []reflect.StructField
	for f := range leaf.Fields() {
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type})
	}
	mid := reflect.StructOf([]reflect.StructField{
		{Name: "Items", Type: reflect.MapOf(reflect.TypeFor[string](),
			reflect.SliceOf(reflect.PointerTo(reflect.StructOf(fields))))},
	})
	return reflect.StructOf([]reflect.StructField{
		{Name: "Spec", Type: mid, Tag: tag},
		{Name: "Other", Type: reflect.TypeFor[string]()},
	})
}

func TestStructureHashSeesEveryChange(t *testing.T) {
	tag := reflect.StructTag(`json:"spec" protobuf:"bytes,1,opt,name=spec"`)
	base := tree(reflect.TypeFor[leafBase](), tag)
	seen := map[string]string{}
	for name, typ := range map[string]reflect.Type{
		"base":     base,
		"added":    tree(reflect.TypeFor[leafAdded](), tag),
		"renamed":  tree(reflect.TypeFor[leafRenamed](), tag),
		"retyped":  tree(reflect.TypeFor[leafRetyped](), tag),
		"json":     tree(reflect.TypeFor[leafBase](), `json:"Spec" protobuf:"bytes,1,opt,name=spec"`),
		"protobuf": tree(reflect.TypeFor[leafBase](), `json:"spec" protobuf:"bytes,2,opt,name=spec"`),
		"moved":    reflect.StructOf([]reflect.StructField{base.Field(1), base.Field(0)}),
		"removed":  reflect.StructOf([]reflect.StructField{base.Field(0)}),
		"pointer":  reflect.PointerTo(base),
		"slice":    reflect.SliceOf(base),
		"array":    reflect.ArrayOf(2, base),
		"array 3":  reflect.ArrayOf(3, base),
		"quantity": reflect.TypeFor[resource.Quantity](),
		"own JSON": reflect.TypeFor[Temperature](),
		"nil":      nil,
	} {
		h := codec.StructureHash(typ)
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
		if codec.StructureHash(typ) != h {
			t.Errorf("%s: two hashes", name)
		}
	}
	if codec.StructureHash(tree(reflect.TypeFor[leafBase](), tag)) != codec.StructureHash(base) {
		t.Error("equal types, other hash")
	}
}

func TestStructureHashOfEveryKind(t *testing.T) {
	seen := map[string]reflect.Type{}
	for _, k := range kinds() {
		h := codec.StructureHash(reflect.PointerTo(k))
		if other := seen[h]; other != nil {
			t.Errorf("%v and %v have one hash", k, other)
		}
		seen[h] = k
	}
}

// TestStructureHashIsStable: another process computes the same hash.
func TestStructureHashIsStable(t *testing.T) {
	pod, widget := reflect.TypeFor[*corev1.Pod](), reflect.TypeFor[*Widget]()
	hash := "hash=" + codec.StructureHash(pod) + codec.StructureHash(widget)
	if os.Getenv("KUBEWAKE_PRINT_HASH") != "" {
		t.Log(hash)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestStructureHashIsStable$")
	cmd.Env = append(os.Environ(), "KUBEWAKE_PRINT_HASH=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), hash) {
		t.Fatalf("want %s, have %s (%v)", hash, out, err)
	}
}

// TestStructureHashIsPinned: the hash does not change, since then all existing files
// would be relisted.
func TestStructureHashIsPinned(t *testing.T) {
	typ := reflect.TypeFor[struct {
		Time     metav1.Time          `json:"time"`
		Micro    *metav1.MicroTime    `json:"micro"`
		Duration metav1.Duration      `json:"duration"`
		Quantity []resource.Quantity  `json:"quantity"`
		Fields   metav1.FieldsV1      `json:"fields"`
		Port     intstr.IntOrString   `json:"port"`
		Raw      runtime.RawExtension `json:"raw"`
		Any      map[string]any       `json:"any"`
		Std      time.Time            `json:"std"`
		Own      Temperature          `json:"own"`
	}]()
	if h := codec.StructureHash(typ); h != "877491c4b2db64fe7ead9408b6420aef" {
		t.Errorf("it is %s", h)
	}
}
