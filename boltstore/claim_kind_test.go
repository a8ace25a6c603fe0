package boltstore

import (
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestScopeIsShown: if a custom resource is defined again in the other scope, its objects
// decide the scope, not the earlier description.
func TestScopeIsShown(t *testing.T) {
	for _, tc := range []struct {
		described, want Scope
		namespace       string
	}{{ScopeCluster, ScopeNamespaced, "web"}, {ScopeNamespaced, ScopeCluster, ""}, {ScopeCluster, ScopeCluster, ""},
		{ScopeNamespaced, ScopeNamespaced, "web"}} {
		db := openTest(t, testPath(t), Options{})
		s := claimTest(t, db, Claim{Source: Source{Group: "example.com", Version: "v1", Resource: "widgets",
			Form: FormUnstructured}, Example: &unstructured.Unstructured{}})
		must(t, s.Describe(Description{Scope: tc.described}))
		relist(t, s, "6", RelistOptions{}, nil, 1)
		if st := stateIn(t, db); st.Scope != tc.described {
			t.Errorf("%+v: without objects it is %q", tc, st.Scope)
		}
		w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": "a", "resourceVersion": "7"}}}
		w.SetNamespace(tc.namespace)
		relist(t, s, "8", RelistOptions{}, []runtime.Object{w}, 1)
		if st := stateIn(t, db); st.Scope != tc.want || st.Namespaced != (tc.want == ScopeNamespaced) {
			t.Errorf("%+v: it is %q", tc, st.Scope)
		}
	}
}

// TestKindIsLearned: an informer that knows only the resource claims it without a kind.
// The first object shows the kind; the kind of a built-in resource is known.
func TestKindIsLearned(t *testing.T) {
	widgets := Source{Group: "example.com", Version: "v1", Resource: "widgets", Form: FormUnstructured}
	widget := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": "a", "namespace": "web", "resourceVersion": "7"}}}
	}
	kind := func(db *DB, want string) {
		t.Helper()
		states, err := db.States()
		if err != nil || len(states) != 1 {
			t.Fatal(states, err)
		}
		if got := states[0].APIVersion + " " + states[0].Kind; got != want {
			t.Errorf("the kind is %q, want %q", got, want)
		}
	}
	for name, show := range map[string]func(s *Claimed){
		"list":  func(s *Claimed) { relist(t, s, "8", RelistOptions{}, []runtime.Object{widget()}, 1) },
		"event": func(s *Claimed) { relist(t, s, "6", RelistOptions{}, nil, 1); _ = s.Add(widget()) },
	} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			s := claimTest(t, db, Claim{Source: widgets, Example: &unstructured.Unstructured{}})
			kind(db, " ")
			show(s)
			kind(db, "example.com/v1 Widget")
			s.Release()
			closeTest(t, db)
			db = openTest(t, path, Options{})
			s = claimTest(t, db, Claim{Source: widgets, Example: &unstructured.Unstructured{}})
			kind(db, "example.com/v1 Widget")
			relist(t, s, "9", RelistOptions{}, nil, 1)
			kind(db, "example.com/v1 Widget")
			if got, ok, err := s.GetByKey("web/a"); ok && err == nil &&
				got.(*unstructured.Unstructured).GetKind() != "Widget" {
				t.Errorf("%v", got)
			}
		})
	}
	t.Run("another one", func(t *testing.T) { // its definition was made again
		db := openTest(t, testPath(t), Options{})
		s := claimTest(t, db, Claim{Source: widgets, Example: &unstructured.Unstructured{}})
		relist(t, s, "8", RelistOptions{}, []runtime.Object{widget()}, 1)
		for i, shows := range []string{"Wodget", "Widget"} {
			w := widget()
			w.SetKind(shows)
			w.SetResourceVersion(strconv.Itoa(9 + i))
			must(t, s.Add(w))
			kind(db, "example.com/v1 "+shows)
		}
	})
	t.Run("described", func(t *testing.T) { // by discovery, before there is an object
		path := testPath(t)
		db := openTest(t, path, Options{})
		s := claimTest(t, db, Claim{Source: widgets, Example: &unstructured.Unstructured{}})
		must(t, s.Describe(Description{Kind: "Widget"}))
		kind(db, "example.com/v1 Widget")
		relist(t, s, "8", RelistOptions{}, nil, 1)
		kind(db, "example.com/v1 Widget")
		writes := transactions(t, db)
		must(t, s.Describe(Description{Kind: "Widget"}))
		if transactions(t, db) != writes {
			t.Error("what is known was written")
		}
		closeTest(t, db)
		db = openTest(t, path, Options{})
		s = claimTest(t, db, Claim{Source: widgets, Example: &unstructured.Unstructured{}})
		kind(db, "example.com/v1 Widget")
		must(t, s.Describe(Description{Kind: "Wadget"})) // it was defined again
		kind(db, "example.com/v1 Wadget")
		w := widget()
		w.SetKind("Wodget")
		w.SetResourceVersion("9")
		must(t, s.Add(w))
		kind(db, "example.com/v1 Wodget")
	})
	t.Run("transformed", func(t *testing.T) { // the source is what was asked for
		db := openTest(t, testPath(t), Options{})
		s := claimTest(t, db, Claim{Source: widgets, Example: &unstructured.Unstructured{}})
		s.Feed.ExpectProducer()
		other := func(obj runtime.Object) (runtime.Object, error) {
			obj.(*unstructured.Unstructured).SetKind("Other")
			return obj, nil
		}
		relist(t, s, "8", RelistOptions{Transform: other}, []runtime.Object{widget()}, 1)
		kind(db, "example.com/v1 Widget")
		w, _ := other(widget())
		must(t, s.Update(w)) // the program's own
		kind(db, "example.com/v1 Widget")
	})
	t.Run("of the example", func(t *testing.T) { // which the caller knows
		db := openTest(t, testPath(t), Options{})
		s := claimTest(t, db, Claim{Source: widgets, Example: widget()})
		w := widget()
		w.SetKind("Wodget")
		relist(t, s, "8", RelistOptions{}, []runtime.Object{w}, 1)
		must(t, s.Describe(Description{Kind: "Wodget"}))
		kind(db, "example.com/v1 Widget")
	})
	t.Run("built in", func(t *testing.T) {
		db := openTest(t, testPath(t), Options{})
		claimTest(t, db, Claim{Source: Source{Group: "apps", Version: "v1", Resource: "deployments",
			Form: FormMetadata}, Example: &metav1.PartialObjectMetadata{}})
		kind(db, "apps/v1 Deployment")
	})
}

// TestKindOfAnExample: a program may write half a kind into its example, or another
// version's. client-go does not look at it for Go types. The source is of one version.
func TestKindOfAnExample(t *testing.T) {
	for _, says := range []metav1.TypeMeta{{}, {Kind: "Deployment"}, {APIVersion: "v1", Kind: "Deployment"},
		{APIVersion: "apps/v1", Kind: "deployments"}} {
		db := openTest(t, testPath(t), Options{})
		src := Source{Group: "apps", Version: "v1", Resource: "deployments", Form: FormTyped}
		s := claimTest(t, db, Claim{Source: src, Example: &appsv1.Deployment{TypeMeta: says}})
		relist(t, s, "8", RelistOptions{}, nil, 1)
		if st := stateIn(t, db); st.APIVersion != "apps/v1" || st.Kind != "Deployment" {
			t.Errorf("%+v: the kind is %q, %q", says, st.APIVersion, st.Kind)
		}
		if _, err := db.View(src); err != nil {
			t.Errorf("%+v: %v", says, err)
		}
	}
	for _, says := range []metav1.TypeMeta{{Kind: "Widget"}, {APIVersion: "example.com/v2", Kind: "Widget"}} {
		for form, example := range map[Form]runtime.Object{
			FormMetadata: &metav1.PartialObjectMetadata{TypeMeta: says},
			FormTyped:    &gadget{TypeMeta: says},
		} {
			db := openTest(t, testPath(t), Options{})
			s := claimTest(t, db, Claim{Source: Source{Group: "example.com", Version: "v1", Resource: "widgets",
				Form: form}, Example: example})
			relist(t, s, "8", RelistOptions{}, nil, 1)
			if st := stateIn(t, db); st.APIVersion != "example.com/v1" || st.Kind != "Widget" {
				t.Errorf("%s, %+v: the kind is %q, %q", form, says, st.APIVersion, st.Kind)
			}
		}
	}
}

// gadget is the Go type of the kind Widget.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (g *gadget) DeepCopyObject() runtime.Object {
	return &gadget{g.TypeMeta, *g.ObjectMeta.DeepCopy()}
}
