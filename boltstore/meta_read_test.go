package boltstore

import (
	"reflect"
	"testing"
)

// TestMetaIsParsedOnce: reads share the meta that the first one has parsed, until a commit
// changes it. Then they see the commit.
func TestMetaIsParsedOnce(t *testing.T) {
	db := openTest(t, testPath(t), Options{ObjectMemory: -1})
	s := claimTest(t, db, Claim{})
	var before *parsedMeta
	for i := range 3 {
		must(t, s.Add(configMap("ns", "one", i+1, nil)))
		read := func() *parsedMeta {
			if _, ok, err := s.GetByKey("ns/one"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			return db.parsed.last(s.id)
		}
		first := read() // held here, so that the collector leaves it
		if first == nil || first == before {
			t.Fatalf("commit %d: a read has not parsed the meta of it", i)
		}
		if again := read(); again != first {
			t.Errorf("commit %d: the second read has parsed the meta again", i)
		}
		before = first
	}
}

// TestSources: Sources is States without the handlers.
func TestSources(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	must(t, s.Add(configMap("ns", "one", 1, nil)))
	s.Feed.Attach(&testProducer{})
	claimHandler(t, s, "one")
	states, err := db.States()
	must(t, err)
	sources, err := db.Sources()
	must(t, err)
	if len(states) != 1 || len(states[0].Handlers) != 1 || states[0].InUse == false {
		t.Fatalf("%+v", states)
	}
	states[0].Handlers = nil
	states[0].ClaimedAge, sources[0].ClaimedAge = nil, nil // time goes on
	if !reflect.DeepEqual(states, sources) {
		t.Errorf("%+v, want %+v", sources, states)
	}
}
