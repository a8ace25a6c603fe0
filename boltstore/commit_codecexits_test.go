package boltstore

import (
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// leaving is a caller's codec that ends its goroutine for an object called "bad".
type leaving struct {
	codec.Codec
	reads bool // and does so when it reads
}

func (leaving) ID() byte { return codec.IDCustom }

func (l leaving) Append(dst []byte, obj apiruntime.Object) ([]byte, error) {
	if !l.reads && obj.(*corev1.ConfigMap).Name == "bad" {
		runtime.Goexit()
	}
	return l.Codec.Append(dst, obj)
}

func (l leaving) Decode(payload []byte) (apiruntime.Object, error) {
	obj, err := l.Codec.Decode(payload)
	if l.reads && err == nil && obj.(*corev1.ConfigMap).Name == "bad" {
		runtime.Goexit()
	}
	return obj, err
}

// exitChecks calls functions of the store in goroutines of their own. Each must return an
// error that says why.
func exitChecks(t *testing.T, calls map[string]func() error) {
	t.Helper()
	for what, call := range calls {
		var err error
		if !apart(func() { err = call() }) {
			t.Errorf("%s: the caller's goroutine has ended", what)
		} else if err == nil || !strings.Contains(err.Error(), "has ended its goroutine") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// refusedIn lists the objects, and returns the error of one that could not be stored.
func refusedIn(t *testing.T, s *Claimed, objs ...apiruntime.Object) (refused error) {
	t.Helper()
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ apiruntime.Object, err error) { refused = err }})
	must(t, err)
	must(t, r.Page(objs))
	_, err = r.Commit("9", time.Now())
	must(t, err)
	return refused
}

// writesOf are the ways in which an object may come, each with its error. good comes beside
// it in a list.
func writesOf(t *testing.T, s *Claimed, good, bad *corev1.ConfigMap) map[string]func() error {
	return map[string]func() error{
		"prepare": func() error { _, err := s.Feed.Prepare(cache.Added, bad); return err },
		"write":   func() error { return s.Add(bad) },
		"list":    func() error { return refusedIn(t, s, good, bad) },
	}
}

// TestCodecThatExits: an object on which the program's codec ends its goroutine is refused
// like one that cannot be encoded, and a reader gets an error. Nobody else's goroutine ends.
func TestCodecThatExits(t *testing.T) {
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	path, o := testPath(t), Options{Window: time.Nanosecond, ObjectMemory: -1}
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{Codec: leaving{Codec: c}})
	good, bad := configMap("ns", "good", 2, nil), configMap("ns", "bad", 3, nil)
	exitChecks(t, writesOf(t, s, good, bad))
	serves(t, s, []apiruntime.Object{good})
	closeTest(t, db)

	path = testPath(t)
	db = openTest(t, path, o)
	s = claimTest(t, db, Claim{Codec: leaving{Codec: c, reads: true}})
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, good, bad)
	p.wait(t)
	closeTest(t, db)
	db = openTest(t, path, o)
	s = claimTest(t, db, Claim{Codec: leaving{Codec: c, reads: true}})
	exitChecks(t, readsOf(t, s, "ns/bad"))
	if db.h.met() != nil {
		t.Error("it counts as damage to the file")
	}
}

// TestKeyFunctionThatExits: the same holds for the key function.
func TestKeyFunctionThatExits(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{KeyFunc: func(obj any) (string, error) {
		if m, ok := obj.(*corev1.ConfigMap); ok && m.Name == "bad" {
			runtime.Goexit()
		}
		return cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	}})
	good, bad := configMap("ns", "good", 2, nil), configMap("ns", "bad", 3, nil)
	exitChecks(t, writesOf(t, s, good, bad))
	serves(t, s, []apiruntime.Object{good})
}
