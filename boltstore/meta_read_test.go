package boltstore

import "testing"

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
			return s.lastParsed()
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
