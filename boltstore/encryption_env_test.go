package boltstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubewake/kubewake/boltstore/seal"
)

// TestKeysetFromEnv: a keyset in the environment opens a file that the same keyset in a
// file has encrypted.
func TestKeysetFromEnv(t *testing.T) {
	at, path := filepath.Join(t.TempDir(), "keyset.json"), testPath(t)
	if err := seal.Generate(at); err != nil {
		t.Fatal(err)
	}
	fillSmall(t, path, Options{Keyset: seal.File(at)})
	b, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	const name = "KUBEWAKE_TEST_KEYSET"
	t.Setenv(name, string(b))
	db := openTest(t, path, Options{Keyset: seal.Env(name)})
	if n := len(claimTest(t, db, Claim{Indexers: indexers}).List()); n != 21 || !db.Encrypted() {
		t.Fatalf("%d objects", n)
	}
}
