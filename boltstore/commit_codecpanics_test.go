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
	if _, err := s.Feed.Prepare(cache.Added, configMap("ns", "bad", 1, nil)); err == nil ||
		!strings.Contains(err.Error(), `encode "ns/bad": the codec panicked: not this one`) {
		t.Error(err)
	}
	p := &testProducer{}
	s.Feed.Attach(p)
	good := configMap("ns", "good", 2, nil)
	p.add(t, s, good)
	p.wait(t)
	serves(t, s, []runtime.Object{good})
}

// badlyRead is a caller's codec that panics when it reads an object with some content.
type badlyRead struct{ codec.Codec }

func (badlyRead) ID() byte { return codec.IDCustom }

func (p badlyRead) Decode(payload []byte) (runtime.Object, error) {
	obj, err := p.Codec.Decode(payload)
	if err == nil && obj.(*corev1.ConfigMap).Data["words"] == "bad" {
		panic("not this one")
	}
	return obj, err
}

// TestCodecPanicsOnReading: an object that the program's codec cannot read is an error of
// its readers. It ends no program, and is no damage to the file's pages.
func TestCodecPanicsOnReading(t *testing.T) {
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	path, o := testPath(t), Options{Window: time.Nanosecond, ObjectMemory: -1}
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{Codec: badlyRead{c}})
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("ns", "good", 1, nil), configMap("ns", "bad", 2, map[string]string{"words": "bad"}))
	p.wait(t)
	closeTest(t, db)
	db = openTest(t, path, o)
	s = claimTest(t, db, Claim{Codec: badlyRead{c}})
	for what, read := range readsOf(t, s, "ns/bad") {
		if err := read(); err == nil || !strings.Contains(err.Error(), "not this one") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if db.h.met() != nil {
		t.Error("it counts as damage to the file")
	}
}

// readsOf are the ways in which an object may be read, each with its error.
func readsOf(t *testing.T, s *Claimed, key string) map[string]func() error {
	return map[string]func() error{
		"get":  func() error { _, _, err := s.GetByKey(key); return err },
		"list": func() error { _, err := s.ListErr(); return err },
		"entry": func() error {
			for _, e := range journalFrom(t, s, 1) {
				if _, err := e.Object(); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
