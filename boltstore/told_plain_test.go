package boltstore

import (
	"os"
	"testing"
)

// TestPlainHandlerOfALostSource: if a source may have been lost with its file, it is
// unknown whether it had plain handlers. So they count as awaited. A source of a new file
// had none.
func TestPlainHandlerOfALostSource(t *testing.T) {
	for name, emptied := range map[string]bool{"a new file": false, "a file that was emptied": true} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			if emptied {
				must(t, os.WriteFile(path, nil, 0o600))
			}
			db := openTest(t, path, Options{})
			if s := claimTest(t, db, Claim{}); s.Delivery.AwaitsPlain() != emptied {
				t.Errorf("a plain handler is awaited: %t", s.Delivery.AwaitsPlain())
			}
		})
	}
}

// TestPlainHandlerOfADamagedMeta: the facts about plain handlers in a source's meta are
// lost with the meta.
func TestPlainHandlerOfADamagedMeta(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	s.Delivery.AddsPlain()
	must(t, s.Delivery.ExpectPlain())
	s.Release()
	damageMeta(t, db)
	must(t, db.Close())
	if s := claimTest(t, openTest(t, path, Options{}), Claim{}); !s.Delivery.AwaitsPlain() {
		t.Error("no plain handler is awaited")
	}
}
