package boltstore

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// panicky is a caller's codec that panics on an object called "bad".
type panicky struct{ codec.Codec }

func (panicky) ID() byte { return codec.IDCustom }

func (p panicky) Append(dst []byte, obj runtime.Object) ([]byte, error) {
	if obj.(*corev1.ConfigMap).Name == "bad" {
		panic("not this one")
	}
	return p.Codec.Append(dst, obj)
}

// TestCodecPanics: an object on which the program's codec panics is refused like one that
// cannot be encoded. Otherwise the program would panic at each start.
func TestCodecPanics(t *testing.T) {
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{Codec: panicky{c}})
	if _, err := s.Prepare(cache.Added, configMap("ns", "bad", 1, nil)); err == nil || !strings.Contains(err.Error(), `encode "ns/bad": the codec panicked: not this one`) {
		t.Error(err)
	}
	p := &testProducer{}
	s.Attach(p)
	good := configMap("ns", "good", 2, nil)
	p.add(t, s, good)
	p.wait(t)
	serves(t, s, []runtime.Object{good})
}
