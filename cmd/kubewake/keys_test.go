package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// TestKeysRotate: the keyset gets another primary key, and the file a new data key at
// once. The older keyset no longer opens it.
func TestKeysRotate(t *testing.T) {
	dir := t.TempDir()
	keys, old, path := filepath.Join(dir, "keyset.json"), filepath.Join(dir, "old.json"), filepath.Join(dir, "k.db")
	if err := seal.Generate(keys); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(keys)
	if err == nil {
		err = os.WriteFile(old, before, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	opens := func(keys string, o boltstore.Options) error {
		o.Keyset = seal.File(keys)
		db, err := boltstore.Open(path, o)
		if err != nil {
			return err
		}
		if db.KeysDue() {
			t.Error("a new data key is due")
		}
		return db.Close()
	}
	if err := opens(keys, boltstore.Options{}); err != nil {
		t.Fatal(err)
	}
	cmd := newKeys(genericiooptions.NewTestIOStreamsDiscard())
	cmd.SetArgs([]string{"rotate", "--keyset", keys, "--db", path})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if err := opens(keys, boltstore.Options{ReadOnly: true}); err != nil {
		t.Error(err)
	}
	if err := opens(old, boltstore.Options{ReadOnly: true}); err == nil {
		t.Error("the older keyset still opens it")
	}
}

// TestKeysRotateOfAFileInUse: the keyset has its new key once the file turns out to be in use,
// and the error says so.
func TestKeysRotateOfAFileInUse(t *testing.T) {
	dir := t.TempDir()
	keys, path := filepath.Join(dir, "keyset.json"), filepath.Join(dir, "k.db")
	if err := seal.Generate(keys); err != nil {
		t.Fatal(err)
	}
	db, err := boltstore.Open(path, boltstore.Options{Keyset: seal.File(keys)})
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	reader, err := boltstore.Open(path, boltstore.Options{Keyset: seal.File(keys), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	before, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	cmd := newKeys(genericiooptions.NewTestIOStreamsDiscard())
	cmd.SetArgs([]string{"rotate", "--keyset", keys, "--db", path})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	failed := cmd.Execute()
	after, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	if failed == nil || string(before) == string(after) ||
		!strings.Contains(failed.Error(), "it has a new primary key") ||
		!strings.Contains(failed.Error(), "open already") {
		t.Errorf("error %v; the keyset was changed: %v", failed, string(before) != string(after))
	}
}
