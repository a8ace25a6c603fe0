package stores_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

var pods = boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}

// podIndexers are indexers with the same pods: client-go's, and ours by all ways to read.
func podIndexers(t *testing.T) map[string]cache.Indexer {
	all := map[string]cache.Indexer{}
	fill := func(i cache.Indexer) cache.Indexer {
		t.Helper()
		for n := range 100 {
			must(0, i.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", n%3),
				Name:   fmt.Sprint("pod", n),
				Labels: map[string]string{"tenth": fmt.Sprint(n % 10)}}}))(t)
		}
		return i
	}
	for _, by := range []cache.Indexers{{}, {cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}} {
		own := func() cache.Indexers { // each changes its own
			c := cache.Indexers{}
			for name, fn := range by {
				c[name] = fn
			}
			return c
		}
		is := fmt.Sprint(", namespace index ", len(by))
		all["client-go"+is] = fill(cache.NewIndexer(cache.MetaNamespaceKeyFunc, own()))
		for _, memory := range []int64{-1, 1 << 20} {
			path := newPath(t)
			db := open(t, path, boltstore.Options{ObjectMemory: memory})
			s, err := db.Claim(boltstore.Claim{Source: pods, Example: &corev1.Pod{}, Indexers: own()})
			if err != nil {
				t.Fatal(err)
			}
			all[fmt.Sprint("ours, memory ", memory, is)] = fill(s)
			all[fmt.Sprint("a view, memory ", memory, is)] = stores.ReadOnly(must(db.View(pods))(t))
		}
	}
	return all
}

func namesOf[T runtime.Object](objs []T, err error) string {
	var names []string
	for _, o := range objs {
		m, bad := meta.Accessor(o)
		if bad != nil {
			return bad.Error()
		}
		names = append(names, m.GetNamespace()+"/"+m.GetName())
	}
	return fmt.Sprint(sorted(names), err)
}

// TestListers: client-go's listers answer the same over ours as over client-go's
// indexer, with and without an index.
func TestListers(t *testing.T) {
	seventh := labels.SelectorFromSet(labels.Set{"tenth": "7"})
	questions := map[string]func(i cache.Indexer) string{}
	for selector, by := range map[string]labels.Selector{"all": labels.Everything(), "some": seventh,
		"none": labels.Nothing(), "no match": labels.SelectorFromSet(labels.Set{"no": "match"})} {
		questions["ListAll "+selector] = func(i cache.Indexer) string {
			var found []runtime.Object
			err := cache.ListAll(i, by, func(o any) { found = append(found, o.(runtime.Object)) })
			return namesOf(found, err)
		}
		for _, ns := range []string{"ns1", "other", ""} {
			questions["ListAllByNamespace "+ns+selector] = func(i cache.Indexer) string {
				var found []runtime.Object
				err := cache.ListAllByNamespace(i, ns, by, func(o any) { found = append(found, o.(runtime.Object)) })
				return namesOf(found, err)
			}
			questions["GenericLister "+ns+selector] = func(i cache.Indexer) string {
				return namesOf(cache.NewGenericLister(i, corev1.Resource("pods")).ByNamespace(ns).List(by))
			}
			questions["PodLister "+ns+selector] = func(i cache.Indexer) string {
				return namesOf(corelisters.NewPodLister(i).Pods(ns).List(by))
			}
		}
	}
	for _, name := range []string{"pod1", "pod4", "other"} {
		questions["Get "+name] = func(i cache.Indexer) string {
			p, err := corelisters.NewPodLister(i).Pods("ns1").Get(name)
			o, err2 := cache.NewGenericLister(i, corev1.Resource("pods")).ByNamespace("ns1").Get(name)
			if apierrors.IsNotFound(err) != apierrors.IsNotFound(err2) {
				t.Error(err, err2)
			}
			if err != nil {
				return fmt.Sprint(err, err2)
			}
			return p.Name + o.(*corev1.Pod).Name
		}
	}
	indexers := podIndexers(t)
	for what, ask := range questions {
		want := ask(indexers["client-go, namespace index 1"])
		for name, i := range indexers {
			if got := ask(i); got != want {
				t.Errorf("%s of %s: %s, want %s", what, name, got, want)
			}
		}
	}
}

// TestReadOnly: an indexer of a view cannot be written to, and reads the file as it is.
func TestReadOnly(t *testing.T) {
	db := open(t, newPath(t), boltstore.Options{})
	s, err := db.Claim(boltstore.Claim{Source: pods, Example: &corev1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	must(0, s.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}}))(t)
	i := stores.ReadOnly(must(db.View(pods))(t))
	for _, err := range []error{i.Add(&corev1.Pod{}), i.Update(&corev1.Pod{}), i.Delete(&corev1.Pod{}),
		i.Replace(nil, "5"), i.AddIndexers(nil)} {
		if !errors.Is(err, stores.ErrReadOnly) {
			t.Error(err)
		}
	}
	i.Bookmark("5")
	if rv := i.LastStoreSyncResourceVersion(); rv != "" || i.Resync() != nil {
		t.Error(rv)
	}
	must(0, s.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "b"}}))(t)
	if n := len(must(corelisters.NewPodLister(i).List(labels.Everything()))(t)); n != 2 {
		t.Error(n)
	}
}
