package boltstore

import (
	"reflect"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// trialObjects is how many objects of a claim are tried.
const trialObjects = 20

// trial decodes and compares the first objects of a claim. Nothing else shows that a
// type's own marshalers leave something out. Once an object has come back changed, all
// later ones are tried.
type trial struct {
	left   atomic.Int64
	failed atomic.Bool
}

// newTrial returns nil for types that Kubernetes generates together with their forms.
// Tests show that they come back whole.
func newTrial(example runtime.Object) *trial {
	pkg := reflect.TypeOf(example).Elem().PkgPath()
	if strings.HasPrefix(pkg, "k8s.io/api/") || strings.HasPrefix(pkg, "k8s.io/apimachinery/") {
		return nil
	}
	t := &trial{}
	t.left.Store(trialObjects)
	return t
}

// run returns an error if obj does not come back from its payload as it is.
func (t *trial) run(c codec.Codec, payload []byte, obj runtime.Object) error {
	if t == nil || t.left.Load() <= 0 {
		return nil
	}
	err := codec.RoundTrip(c, payload, obj)
	if err != nil {
		t.failed.Store(true)
	} else if !t.failed.Load() {
		t.left.Add(-1)
	}
	return err
}
