package boltstore

import (
	"testing"
)

// TestViewDoesNotWrite: on a file open for reading or for writing, a view
// serves reads and refuses writes.
func TestViewDoesNotWrite(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	if err := claimTest(t, db, Claim{}).Add(configMap("a", "b", 1, nil)); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		if readOnly {
			closeTest(t, db)
			db = openTest(t, path, Options{ReadOnly: true})
		}
		s, err := db.View(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.ListKeys()) != 1 {
			t.Fatal(s.ListKeys())
		}
	}
}
