package boltstore

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// widget is a custom resource in the Go type of one build of a program. Parts is the type of
// its parts.
type widget[Parts any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Parts Parts `json:"parts"`
}

func (w *widget[Parts]) DeepCopyObject() runtime.Object {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

type (
	fewParts struct {
		Color string `json:"color,omitempty"`
	}
	moreParts struct {
		fewParts `json:",inline"`

		Size   int64                  `json:"size,omitempty"`
		Ratio  float64                `json:"ratio,omitempty"`
		Since  metav1.Time            `json:"since,omitempty"`
		Notes  map[string][]string    `json:"notes,omitempty"`
		Nested []map[string]*fewParts `json:"nested,omitempty"`
	}
)

// TestOtherFields: after a field has gone from an object's Go type, as when an earlier build
// of the program comes back, the file's objects are as whole as that type can be: with
// ServeOutdated, and in the last state of an object that a list no longer has.
func TestOtherFields(t *testing.T) {
	src := Source{Group: "example.com", Version: "v1", Resource: "widgets", Form: FormTyped}
	meta := func(name, version string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "1", ResourceVersion: version}
	}
	stored := func(name string) runtime.Object {
		w := &widget[moreParts]{ObjectMeta: meta(name, "1"),
			Parts: moreParts{Size: 1 << 40, Ratio: 0.5, Since: metav1.Unix(1, 0),
				Notes:  map[string][]string{"a": {"b", ""}, "c": nil},
				Nested: []map[string]*fewParts{nil, {"x": {Color: "red"}, "y": nil}}}}
		w.Parts.Color = "blue"
		return w
	}
	for _, serve := range []bool{true, false} {
		path := testPath(t)
		db := openTest(t, path, Options{})
		s := claimTest(t, db, Claim{Source: src, Example: &widget[moreParts]{}})
		relist(t, s, "5", RelistOptions{}, []runtime.Object{stored("one"), stored("two")}, 10)
		closeTest(t, db)

		db = openTest(t, path, Options{})
		s = claimTest(t, db, Claim{Source: src, Example: &widget[fewParts]{}, ServeOutdated: serve})
		one := &widget[fewParts]{ObjectMeta: meta("one", "1"), Parts: fewParts{"blue"}}
		two := &widget[fewParts]{ObjectMeta: meta("two", "1"), Parts: fewParts{"blue"}}
		var want []any
		if serve {
			want = []any{one, two}
		}
		sameObjects(t, "outdated", want, s.List())
		from := s.State().Seq + 1
		relist(t, s, "6", RelistOptions{}, []runtime.Object{one}, 10)
		if err := s.Err(); err != nil {
			t.Errorf("damaged: %v", err)
		}
		told := false
		for _, e := range journalFrom(t, s, from) {
			if e.Type != cache.Deleted {
				continue
			}
			told = true
			obj, err := e.Object()
			gone, ok := obj.(cache.DeletedFinalStateUnknown)
			if err != nil || !ok {
				t.Fatalf("%v, %v", obj, err)
			}
			sameObjects(t, "gone", []any{two}, []any{gone.Obj})
		}
		if !told {
			t.Error("no delete")
		}
	}
}

// TestUnreadableFields: contents that cannot be decoded in the present Go type, since a field
// has another type or form, are not served, also with ServeOutdated, and are no damage.
func TestUnreadableFields(t *testing.T) {
	type number struct {
		Color int `json:"color,omitempty"`
	}
	for name, example := range map[string]runtime.Object{"number": &widget[number]{}} {
		t.Run(name, func(t *testing.T) {
			src := Source{Group: "example.com", Version: "v1", Resource: "widgets", Form: FormTyped}
			path := testPath(t)
			db := openTest(t, path, Options{})
			s := claimTest(t, db, Claim{Source: src, Example: &widget[fewParts]{}})
			old := &widget[fewParts]{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1",
				ResourceVersion: "1"}, Parts: fewParts{"blue"}}
			relist(t, s, "5", RelistOptions{}, []runtime.Object{old}, 10)
			closeTest(t, db)

			db = openTest(t, path, Options{})
			c := Claim{Source: src, Example: example, ServeOutdated: true,
				Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
			s = claimTest(t, db, c)
			if list, err := s.ListErr(); len(list) > 0 || err != nil || s.Err() != nil || s.Outdated() != OutdatedType {
				t.Errorf("%d objects, %v, %v, %q", len(list), err, s.Err(), s.Outdated())
			}
		})
	}
}

// TestDamageBesideOtherFields: if one object is damaged, ServeOutdated serves the others, and says
// so.
func TestDamageBesideOtherFields(t *testing.T) {
	src := Source{Group: "example.com", Version: "v1", Resource: "widgets", Form: FormTyped}
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{Source: src, Example: &widget[moreParts]{}})
	var objs []runtime.Object
	for i, name := range []string{"a", "b", "c"} {
		objs = append(objs, &widget[moreParts]{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "1",
			ResourceVersion: "1"}, Parts: moreParts{Size: int64(i) + 1}})
	}
	relist(t, s, "5", RelistOptions{}, objs, 10)
	damageRecord(t, db, src, "ns/b")
	s.Release()
	must(t, db.Close())

	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{Source: src, Example: &widget[fewParts]{}, ServeOutdated: true})
	if list, err := s.ListErr(); len(list) != 2 || !errors.Is(err, ErrDamaged) || !errors.Is(s.Err(), ErrDamaged) {
		t.Errorf("%d objects, %v, %v", len(list), err, s.Err())
	}
	relist(t, s, "6", RelistOptions{},
		[]runtime.Object{&widget[fewParts]{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1",
			ResourceVersion: "1"}}}, 10)
}
