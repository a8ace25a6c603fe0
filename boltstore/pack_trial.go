package boltstore

import (
	"reflect"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// trialObjects are how many objects of a claim are tried.
const trialObjects = 20

// trial has the first objects of a claim decoded and compared: what a type's
// own marshalers leave out cannot be told otherwise. Once an object has come
// back changed, all later ones are tried.
type trial struct {
	left   atomic.Int64
	failed atomic.Bool
}

// newTrial returns nil for the types that Kubernetes generates together with
// their forms: tests show that they come back.
func newTrial(example runtime.Object) *trial {
	pkg := reflect.TypeOf(example).Elem().PkgPath()
	if strings.HasPrefix(pkg, "k8s.io/api/") || strings.HasPrefix(pkg, "k8s.io/apimachinery/") {
		return nil
	}
	t := &trial{}
	t.left.Store(trialObjects)
	return t
}

// run says whether obj comes back from its payload as it is.
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
