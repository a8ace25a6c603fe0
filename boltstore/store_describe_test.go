package boltstore

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/internal/sealtest"
)

func stateIn(t *testing.T, db *DB) State {
	t.Helper()
	states, err := db.States()
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	return states[0]
}

// TestDescribe: discovery's answer is in the file, even for a source without objects,
// and survives copies and resets of the source.
func TestDescribe(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	if st := stateIn(t, db); st.Scope != "" || st.Namespaced {
		t.Fatalf("%+v", st)
	}
	want, categories := []string{"configmap", "cm"}, []string{"all"}
	columns := []Column{{Name: "Size", Type: "integer", Format: "int32", JSONPath: ".spec.size", Priority: 1},
		{Name: "Age", Type: "date", Description: "how old", JSONPath: ".metadata.creationTimestamp"}}
	if err := s.Describe(Description{Scope: ScopeNamespaced, Names: want, Categories: categories,
		Columns: columns}); err != nil {
		t.Fatal(err)
	}
	known := func(when string, db *DB) {
		t.Helper()
		if st := stateIn(t, db); st.Scope != ScopeNamespaced || !st.Namespaced || !slices.Equal(st.Names, want) ||
			!slices.Equal(st.Categories, categories) || !slices.Equal(st.Columns, columns) {
			t.Errorf("%s: %+v", when, st)
		}
	}
	known("described", db)
	view, err := db.View(s.Source())
	must(t, err)
	if err := view.Describe(Description{Scope: ScopeCluster}); err == nil ||
		!strings.Contains(err.Error(), "is a view") {
		t.Errorf("a view: %v", err)
	}
	writes := transactions(t, db)
	for _, same := range []Description{{}, {Scope: ScopeNamespaced}, {Names: want}, {Categories: categories},
		{Columns: columns}} {
		if err := s.Describe(same); err != nil {
			t.Fatal(err)
		}
	}
	if transactions(t, db) != writes {
		t.Error("what is known was written")
	}
	known("described again", db)
	long := slices.Clone(columns)
	for i := range long {
		long[i].Description = strings.Repeat("long ", 200)
	}
	if err := s.Describe(Description{Columns: long}); err != nil {
		t.Fatal(err)
	}
	if st := stateIn(t, db); st.Columns[0].Name != "Size" || st.Columns[0].Description != "" ||
		st.Columns[1].Description != "" {
		t.Errorf("long descriptions: %+v", st.Columns)
	}
	if err := s.Describe(Description{Columns: columns}); err != nil {
		t.Fatal(err)
	}
	if err := s.Upstream.Empty(); err != nil {
		t.Fatal(err)
	}
	known("set aside", db)
	if err := s.Add(configMap("a", "x", 1, nil)); err != nil {
		t.Fatal(err)
	}
	s.Release()
	closeTest(t, db)
	if _, err := Compact(t.Context(), path, Options{Keyset: sealtest.Default()}, nil); err != nil {
		t.Fatal(err)
	}
	db = openTest(t, path, Options{})
	known("compacted", db)

	s = claimTest(t, db, Claim{})
	must(t, s.Describe(Description{Names: []string{}, Categories: []string{}, Columns: []Column{}}))
	if st := stateIn(t, db); st.Scope != ScopeNamespaced || len(st.Names)+len(st.Categories)+len(st.Columns) > 0 {
		t.Errorf("described as having none: %+v", st)
	}
}

// TestScopeByObjects: without a description, the objects show the scope.
func TestScopeByObjects(t *testing.T) {
	for namespace, want := range map[string]Scope{"a": ScopeNamespaced, "": ScopeCluster} {
		db := openTest(t, testPath(t), Options{})
		s := claimTest(t, db, Claim{})
		if err := s.Add(configMap(namespace, "x", 1, nil)); err != nil {
			t.Fatal(err)
		}
		if st := stateIn(t, db); st.Scope != want || st.Namespaced != (want == ScopeNamespaced) {
			t.Errorf("%q: %+v", namespace, st)
		}
	}
	src := configMaps
	src.Namespace = "a"
	db := openTest(t, testPath(t), Options{})
	claimTest(t, db, Claim{Source: src})
	if st := stateIn(t, db); st.Scope != ScopeNamespaced {
		t.Errorf("%+v", st)
	}
}

// TestStatesAreTheCallers: a caller may change what State and Stats return.
func TestStatesAreTheCallers(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	must(t, s.Describe(Description{Names: []string{"configmap", "cm"}, Categories: []string{"all"},
		Columns: []Column{{Name: "Age"}}}))
	must(t, s.Add(configMap("ns", "a", 1, nil)))
	for range 2 {
		st, stats := s.State(), db.Stats()
		if st.Names[0] != "configmap" || st.Categories[0] != "all" || st.Columns[0].Name != "Age" {
			t.Errorf("%+v", st)
		}
		st.Names[0], st.Categories[0], st.Columns[0].Name = "", "", ""
		for _, h := range []Histogram{stats.Transactions, stats.Changes, stats.ChangeBytes} {
			if h.Bounds[0] == 0 {
				t.Errorf("%+v", h)
			}
			clear(h.Bounds)
			clear(h.Counts)
		}
		must(t, s.Add(configMap("ns", "b", 2, nil))) // the commit writes the description again
	}
	if st := stateIn(t, db); len(st.Names) != 2 || st.Names[0] != "configmap" {
		t.Errorf("in the file %q", st.Names)
	}
}

// TestDescribedScopeIsTold: the scope of a new source is told as soon as it is described,
// though the source's next commit writes it.
func TestDescribedScopeIsTold(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	if err := s.Describe(Description{Scope: ScopeCluster}); err != nil {
		t.Fatal(err)
	}
	states, err := db.Sources()
	if err != nil || len(states) != 1 || states[0].Scope != ScopeCluster {
		t.Errorf("%v %+v", err, states)
	}
}
